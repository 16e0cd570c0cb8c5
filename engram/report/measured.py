"""What benchmarks measured: files of results/speed and results/own, and pairs of runs, as tables.

``<!-- speed:begin NAME -->`` takes steps, growth, evaluation (the newest file of a recipe on a device counts), memory,
store or paths: the fast and the plain path of training, one minus the other. ``<!-- own:begin NAME -->`` takes
engines.KIND (validation classes), test.KIND, rounds.KIND, ways.imagenet, encoders.WAYS, suggest (test classes) or speed
of own pictures.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engram import spellings
from engram.errors import EngramWarning
from engram.files import read_json
from engram.ledger import RunRecord
from engram.report.own_pictures import confidence_table, encoders_table, memory_table, ways_table
from engram.report.results import NOT_MEASURED
from engram.report.stored import paths_table, store_section
from engram.report.suggested import suggest_table
from engram.report.table import Column, Table, percent

SPEED = {"steps": "step_total_ms", "growth": "growth", "evaluation": "rates", "paths": "", "memory": "", "store": ""}
"""section -> what a file must hold"""
KINDS = ("imagenet", "imagenet-lite1", "photographs", "glyphs")
OWN = tuple(f"{what}.{kind}" for what in ("engines", "test", "rounds") for kind in KINDS)
OWN += ("ways.imagenet", "ways.imagenet-lite1", "encoders.5", "encoders.20", "confidence", "suggest", "speed")
BUSY = 1.5
"""load average above which a table says so"""
PARTS = ("drawing", "augmentation", "encoder forward", "method and loss forward", "backward", "optimiser")
AXES = ("ways", "shots", "queries", "T", "image size")
ANSWERS = {"default": "inductive, the default", "temperature 1": "the same without temperature"}
ANSWERS |= {"transductive": "transductive"}


def files_of(folder: Path, pattern: str) -> list[tuple[dict[str, Any], str]]:
    """Contents and names, the last measured last; a file that is no measurement is named and left out."""
    files = []
    for path in folder.glob(pattern):
        try:
            content = read_json(path)
            if not isinstance(content, dict) or not isinstance(content.get("measured"), str):
                raise ValueError("it does not say when it was measured")
            files.append((content, path.name))
        except (OSError, ValueError) as error:
            warnings.warn(f"not in the tables: {path} is no measurement ({error})", EngramWarning, stacklevel=1)
    return sorted(files, key=lambda pair: (pair[0]["measured"], pair[1]))


@dataclass(frozen=True)
class Measured:
    """One file of results/speed."""

    link: str
    """to the file, with the day as its text"""
    content: Mapping[str, Any]
    axis: str = ""
    """what grows"""

    @property
    def setting(self) -> Mapping[str, Any]:
        return self.content["setting"]

    @property
    def recipe(self) -> str:
        return f"`{self.setting['recipe']}`{', plain' if self.setting.get('plain') is True else ''}"

    @property
    def device(self) -> str:
        load = self.content.get("load_average", 0.0)
        return f"{self.content['device']}{f', load average {load:.1f}' if load > BUSY else ''}"

    @property
    def grown(self) -> Mapping[str, Any]:
        return self.content["growth"][self.axis]

    def rate(self, name: str, digits: int) -> str:
        value = self.content["rates"].get(name)
        return "" if value is None else f"{value:,.{digits}f}"


def _part(name: str) -> Column[Measured]:
    return Column(name.capitalize(), lambda m: f"{m.content['parts_ms'][name]:,.2f}", right=True, places=("parts",))


STEPS, GROWTH, EVALUATION, DIVIDED = ("steps",), ("growth",), ("evaluation",), ("parts",)
SPEED_COLUMNS: tuple[Column[Measured], ...] = (
    Column("Parts, ms", lambda m: m.recipe, places=DIVIDED),
    Column("Recipe", lambda m: m.recipe, places=(*STEPS, *GROWTH, *EVALUATION)),
    Column("Device", lambda m: m.device),
    Column("Whole step, ms", lambda m: f"{m.content['step_total_ms']:,.2f}", right=True, places=STEPS),
    Column("Tasks/s", lambda m: m.rate("tasks_per_s", 0), right=True, places=STEPS),
    Column("Peak memory, MiB", lambda m: m.rate("peak_memory_mib", 0), right=True, places=STEPS),
    Column("Roofline, ms", lambda m: m.rate("roofline_ms", 2), right=True, places=STEPS),
    Column("Step / roofline", lambda m: m.rate("ratio_to_roofline", 2), right=True, places=STEPS),
    Column("Public loop / step", lambda m: m.rate("times_faster_than_public_loop", 1), right=True, places=STEPS),
    *map(_part, PARTS),
    Column("What grows", lambda m: m.axis, places=GROWTH),
    Column("Sizes", lambda m: ", ".join(map(str, m.grown["sizes"])), places=GROWTH),
    Column("Whole step, ms", lambda m: ", ".join(f"{c:,.1f}" for c in m.grown["step_total_ms"]), places=GROWTH),
    Column("Slope", lambda m: "" if m.grown["slope"] is None else f"{m.grown['slope']:.2f}", places=GROWTH),
    Column("From", lambda m: m.setting["asked"], places=EVALUATION),
    Column("Tasks", lambda m: f"{m.setting['tasks']:,}", places=EVALUATION),
    Column("Seconds", lambda m: m.rate("seconds", 2), places=EVALUATION),
    Column("Tasks/s", lambda m: m.rate("tasks_per_s", 0), places=EVALUATION),
    Column("Measured", lambda m: m.link, places=(*STEPS, *GROWTH, *EVALUATION)),
)


def speed_section(name: str, records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """The newest measurements as a table, each with a link to its file; whole steps are followed by their parts."""
    if name == "paths":
        return paths_table(records, runs, folder.parent / "runs").markdown()
    if name == "memory":
        files = files_of(folder, "memory_size.*.json")
        return memory_table(files[-1][0]).markdown() + _source(*files[-1], runs, "speed") if files else NOT_MEASURED
    if name == "store":
        return store_section(files_of(folder, "store_disk.*.json"), f"{runs.removesuffix('runs')}speed")
    benchmark = "evaluation" if name == "evaluation" else "train_step"
    found = _newest(folder, f"{runs.removesuffix('runs')}speed", benchmark, SPEED[name])
    rows = [Measured(m.link, m.content, axis) for m in found for axis in AXES] if name == "growth" else found
    tables = [Table(SPEED_COLUMNS, rows, name, empty=NOT_MEASURED)]
    if name == "steps":
        tables.append(Table(SPEED_COLUMNS, [m for m in found if set(PARTS) <= set(m.content["parts_ms"])], "parts"))
    return "\n\n".join(filter(None, (table.markdown() for table in tables)))


def step_times(folder: Path) -> dict[tuple[str, str], float]:
    """Milliseconds of a step with the device to itself, by digest of the recipe and device: the last measured."""
    found = _newest(folder, "", "train_step", SPEED["steps"])
    ours = [m for m in found if not m.setting.get("plain") and "recipe_digest" in m.setting]
    return {(m.setting["recipe_digest"], m.content["device"]): m.content["step_total_ms"] for m in ours}


def _newest(folder: Path, link: str, benchmark: str, needed: str) -> list[Measured]:
    """The last measurement of each recipe on each device; plain steps and features are rows of their own."""
    kept: dict[tuple[str, ...], Measured] = {}
    for content, name in files_of(folder, "*.json"):
        if content.get("benchmark") == benchmark and needed in content:
            measured = Measured(f"[{content['measured'][:10]}]({link}/{name})", content)
            kept[(measured.recipe, content["device"], measured.setting.get("asked", ""))] = measured
    return [kept[key] for key in sorted(kept)]


def own_section(name: str, runs: str, folder: Path) -> str:
    """The newest measurement as a table, with a link to its file."""
    what, _, kind = name.partition(".")
    stem = f"fit.{kind}" if what == "engines" else f"test.{kind}" if what in ("test", "rounds", "ways") else what
    if not (files := files_of(folder, f"{stem}.*.json")):
        return NOT_MEASURED
    content, file = files[-1]
    tables = {"engines": _engines, "test": _test, "rounds": _rounds, "ways": ways_table, "speed": _speed}
    tables |= {
        "suggest": suggest_table,
        "encoders": partial(encoders_table, n_way=kind),
        "confidence": confidence_table,
    }
    table = tables[what](content)
    return table.markdown() + _source(content, file, runs, "own")


def _source(content: Mapping[str, Any], file: str, runs: str, folder: str) -> str:
    return f"\n\nMeasured {content['measured'][:10]}: [{file}]({runs.removesuffix('runs')}{folder}/{file})"


def _engines(content: dict[str, Any]) -> Table[Any]:
    """A row for each engine, the default ones by accuracy, then those that answer all queries together."""
    at = str(content["chosen_at"])
    ordered = sorted(content["engines"].items(), key=lambda item: -item[1][at]["accuracy"])
    rows = sorted(ordered, key=lambda item: item[0].endswith(" transductive"))

    def engine(row: tuple[str, Any]) -> str:
        label = f"`{_engine(row[0])}`".replace(" transductive`", "`, transductive")
        return label + (", **the default**" if row[0] == content["chosen"] else "")

    def pictures(shots: str) -> Column[tuple[str, Any]]:
        name = f"{shots} picture{'s' if shots != '1' else ''} of each class"
        return Column(name, lambda row: percent(row[1][shots]["accuracy"], row[1][shots]["interval"]))

    asked = content["protocols"][at]
    note = (
        f"Accuracy in %, ± 95 % interval over {content['tasks']} tasks of {asked['n_way']} validation classes, "
        f"{asked['n_query']} queries of each."
    )
    return Table((Column("Engine", engine), *map(pictures, sorted(rows[0][1], key=int))), rows, note=note)


def _engine(name: str) -> str:
    """Its name today: no CML-BGNN but content memory was ever an engine with weights in the box."""
    return name.replace(spellings.FIRST, spellings.TODAY, 1)


def _test(content: dict[str, Any]) -> Table[Any]:
    columns: tuple[Column[tuple[str, str, Mapping[str, float]]], ...] = (
        Column("Pictures of each class", lambda row: row[0]),
        Column("Answers", lambda row: row[1]),
        Column("Accuracy, %", lambda row: percent(row[2]["accuracy"], row[2]["interval"])),
        Column("ECE, %", lambda row: percent(row[2]["ece"], digits=1)),
        Column("NLL", lambda row: f"{row[2]['nll']:.3f}"),
    )
    shots = sorted(content["shots"].items(), key=lambda item: int(item[0]))
    reject = content["rejection"]
    note = (
        f"`{_engine(content['engine'])}`, {content['tasks']} tasks of 5 test classes; ECE: expected calibration "
        f"error. Telling pictures of the task from those of five other classes, with 5 pictures of each class: the "
        f"area under the ROC curve is {reject['auroc']:.3f} ± {reject['interval']:.3f} with familiarity and "
        f"{reject['auroc_of_probability']:.3f} with the largest class probability."
    )
    return Table(columns, [(n, label, found[key]) for n, found in shots for key, label in ANSWERS.items()], note=note)


def _rounds(content: dict[str, Any]) -> Table[Any]:
    found = content["rounds"]

    def accuracy(place: int) -> Column[Sequence[float]]:
        return Column(str(place + 1), lambda row: percent(row[place], digits=1))

    note = (
        f"Each round `partial_fit` adds one picture of each of 5 test classes; from the first to the last round "
        f"accuracy rises by {100 * (found[-1] - found[0]):.1f} points."
    )
    return Table((Column("Round", lambda row: "Accuracy, %"), *map(accuracy, range(len(found)))), [found], note=note)


def _speed(content: dict[str, Any]) -> Table[Any]:
    side = content.get("setting", {}).get("size", 84)
    rows = (
        ("First call of a cold process, import and fit and predict", "cold_seconds", ".2f", " s"),
        ("Warm `fit` + `predict`", "warm_seconds", ".3f", " s"),
        (f"Pictures per second from files of {side}x{side}", "pictures_per_second", ".0f", ""),
        ("1,000 pictures that were seen before, answered", "cached_seconds", ".2f", " s"),
        ("`engram demo` usable in the browser", "page_seconds", ".2f", " s"),
        ("Slowest action on the page", "slowest_action_seconds", ".2f", " s"),
    )
    measured = Column[Any]("Measured", lambda row: f"{content[row[1]]:{row[2]}}{row[3]}")
    note = f"5-way 5-shot, 75 queries; {content['device']}, load average {content['load_average']:.1f}."
    return Table((Column[Any]("What", lambda row: row[0]), measured), [r for r in rows if r[1] in content], note=note)
