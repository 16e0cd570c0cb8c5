"""Run records: one JSON for each run, append-only, with all that is needed to judge a number. Standard library only."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engram import spellings
from engram.errors import EngramError
from engram.files import read_versioned
from engram.ledger.content import check_content
from engram.ledger.layout import finite, readable, rounded
from engram.structure import structure

RESULTS = Path("results/runs")
"""where records lie unless a command says otherwise"""
LEDGER_VERSION = 2
"""2: revision of the method, digests of what a run starts from"""


@dataclass(frozen=True)
class Evaluation:
    """One protocol answered by one model."""

    protocol: dict[str, Any]
    """the Protocol, with the dataset's digest"""
    tasks_digest: str
    """of the frozen index list: equal digests mean equal questions"""
    metrics: dict[str, Any]
    """accuracy, interval, accuracy_by_position, interval_by_position, nll, ece, brier, reliability, edge_accuracy,
    query_pairs"""
    seconds: float = 0.0
    tasks_file: str = ""
    """per-task results beside the record, compressed"""


@dataclass(frozen=True, repr=False)
class RunRecord:
    """All that is needed to judge a number: what was run, on what, and what came out."""

    run_id: str
    kind: Literal["train", "bench", "audit", "import"]
    status: Literal["finished", "interrupted", "failed"]
    method: str
    recipe_name: str
    recipe: dict[str, Any]
    recipe_digest: str
    seed: int
    started: str
    seconds: float
    commit: str
    device: str
    versions: dict[str, str]
    evaluations: list[Evaluation] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=dict)
    """iteration, loss, and validation accuracy, interval and edge accuracy over training"""
    training: dict[str, Any] = field(default_factory=dict)
    """iterations done, seconds of training, tasks per second, best iteration, parameters, card"""
    trained_by: str = ""
    """run_id of the training run, for a bench of its checkpoint"""
    audit: list[dict[str, Any]] = field(default_factory=list)
    """findings of an audit, probe by probe"""
    audit_protocol: dict[str, Any] = field(default_factory=dict)
    """the Protocol of the streams an audit asked about"""
    error: str = ""
    note: str = ""
    revision: int = 0
    """of the method's behaviour, see `engram.card`; records of version 1 are of revision 0"""
    start: dict[str, str] = field(default_factory=dict)
    """digests of the weights and features the model started from; {} = from its seed, or unknown in version 1"""
    version: int = LEDGER_VERSION
    filed_as: str = ""
    """how the name of its file begins where that is not `run_stem`; never written, for the file says it"""

    @property
    def recipe_today(self) -> str:
        """The name its recipe has today: what records of one recipe have in common."""
        return spellings.name_today(self.recipe_name)

    @property
    def accuracy(self) -> float | None:
        """Of the first protocol answered, a fraction of 1; None where there is none."""
        return self.evaluations[0].metrics.get("accuracy") if self.evaluations else None

    @property
    def interval(self) -> float | None:
        """Half-width of the 95 % interval of `accuracy` over independent sequences."""
        return self.evaluations[0].metrics.get("interval") if self.evaluations else None

    @property
    def summary(self) -> str:
        """``proto_net/glyphs_quick, train finished, seed 111, 97.31 ± 0.42 %``"""
        name = self.recipe_name if "/" in self.recipe_name else f"{self.method} {self.recipe_name}"
        words = [name, f"{self.kind} {self.ending}", f"seed {self.seed}"]
        if self.accuracy is not None:
            words.append(f"{100 * self.accuracy:.2f}" + (f" ± {100 * self.interval:.2f} %" if self.interval else " %"))
        return ", ".join(words)

    @property
    def ending(self) -> str:
        """The status in words: a run that used up its minutes has finished, but not all of its steps."""
        return "stopped by its minutes" if self.training.get("stopped_by") == "max_minutes" else self.status

    def __repr__(self) -> str:
        return f"RunRecord({self.run_id}: {self.summary})"

    @property
    def origin(self) -> tuple[Any, ...]:
        """What beside recipe and seed made the model: runs of different origin are never seeds of one another."""
        return (self.revision, *sorted(self.start.items()))

    @property
    def builds_on(self) -> str:
        """The weights or features the model started from, or its teacher, by name; "" where it has its seed alone."""
        teacher = self.recipe.get("train", {}).get("teacher")
        return str(self.training.get("features") or self.recipe.get("backbone_weights") or teacher or "")


def _seal(raw: dict[str, Any]) -> str:
    """Of a record's content, to tell a hand-edited one; records from before seals have none."""
    content = json.dumps({k: v for k, v in raw.items() if k != "seal"}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def run_stem(method: str, recipe_name: str) -> str:
    """``cml_bgnn.mini_5w1s``; another method over that recipe is filed under its own name, ``mine.Thing.mini_5w1s``."""
    method, setting = spellings.filed_under(method, recipe_name), recipe_name.split("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9_.-]+", ".", f"{method}.{setting}").strip(".")


def record_path(folder: Path, record: RunRecord) -> Path:
    """``cml_bgnn.mini_5w1s.20260101-120000-ab12cd.json``"""
    stem = record.filed_as or run_stem(record.method, record.recipe_name)
    return folder / f"{stem}.{record.run_id}.json"


def check_results_folder(folder: Path) -> None:
    """Refuse a folder that records could not be written to, before hours of work; nothing is made or changed."""
    for wanted in (folder, folder / "tasks"):
        place = next(p for p in (wanted.absolute(), *wanted.absolute().parents) if p.exists())
        if not place.is_dir():
            raise EngramError(f"the results folder {folder} cannot be made: {place} is not a folder")
        if not os.access(place, os.W_OK | os.X_OK):
            raise EngramError(f"the results folder {folder} cannot be written: {place} gives no permission")


def write_record(folder: Path, record: RunRecord) -> Path:
    """Append a record; an existing one is never overwritten."""
    path = record_path(folder, record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        raw = json.loads(json.dumps(finite(asdict(record))))
        del raw["filed_as"]
        raw["curves"] = rounded(raw["curves"])
        raw["evaluations"] = [each | {"metrics": rounded(each["metrics"])} for each in raw["evaluations"]]
        raw["seal"] = _seal(raw)
        temporary.write_text(readable(raw))
        os.link(temporary, path)  # fails where the record exists: the ledger is append-only
        temporary.unlink()
    except FileExistsError as error:
        raise EngramError(f"the run record {path} exists already and records are never overwritten") from error
    except OSError as error:
        raise EngramError(f"the run record {path} could not be written: {error.strerror}") from error
    return path


def read_record(path: Path) -> RunRecord:
    try:
        raw = read_versioned(path, LEDGER_VERSION, called="ledger version", way_out="update it")
        if (seal := raw.pop("seal", None)) and seal != _seal(raw):
            raise EngramError(
                f"the run record {path} was changed after it was written (its seal is {seal}, its content's "
                f"{_seal(raw)}): restore it from git or remove it"
            )
        if raw["version"] > 1 and (absent := {"revision", "start"} - raw.keys()):
            raise ValueError(f"it does not say its {min(absent)}")
        if (today := spellings.saved_today(raw)) is not raw:
            today["filed_as"] = path.name.removesuffix(f".{raw['run_id']}.json")
        return _structured(today)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EngramError(
            f"the run record {path} cannot be read ({error}): restore it from git or remove it"
        ) from error


def _structured(raw: dict[str, Any]) -> RunRecord:
    """A record whose keys are of their kinds; else a ValueError, here at the door."""
    if not isinstance(raw.get("evaluations"), list):
        raise ValueError("its evaluations are no list")
    try:
        record = structure({**raw, "evaluations": [], "curves": {}}, RunRecord, "in it")
        evaluations = [structure(e, Evaluation, "evaluations") for e in raw["evaluations"]]
        record = replace(record, evaluations=evaluations, curves=raw.get("curves", {}))
        check_content(record)
    except EngramError as error:
        raise ValueError(str(error)) from error
    return record


def read_ledger(folder: Path) -> tuple[list[RunRecord], list[str]]:
    """All readable records, oldest first, and a sentence for each that is not."""
    records, problems = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(read_record(path))
        except EngramError as error:
            problems.append(str(error))
    return sorted(records, key=lambda r: r.run_id), problems
