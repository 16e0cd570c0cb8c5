"""Memory along the stream: late accuracy of each system, and paired differences.

Only miniImageNet streams of the test classes in one setting are read (`SETTING`), and only heads on frozen features.
Paired differences come from the per-task results beside the records, not from two rounded means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engram.card import system_name
from engram.ledger import Answer, Evaluation, Ledger, RunRecord, newest
from engram.protocol import Protocol, agrees
from engram.report.rows import gap_text, linked, paired
from engram.report.table import Column, Opened, Row, Table, percent

PARTS = ("table", "paired", "calibration")
NO_STREAMS = "No streams are recorded yet."
TABLE_NOTE = (
    "Accuracy in % over the last quarter of a stream of T tasks, ± its 95 % interval over streams. miniImageNet, 5-way "
    "1-shot, 15 queries per class, shuffled, all test classes. Transductive: the queries of a task inform each other."
)
NAMELESS_NOTE = "EGNN, ProtoNet and CML-BGNN use no names: one row, under anonymous, holds for both kinds of stream."
PAIRED_NOTE = (
    "Mean over streams of the difference in the last quarter, in points, ± its 95 % interval. Both systems answered "
    "the same streams on the same features; their records are linked in the table above."
)
CALIBRATION_NOTE = "Accuracy / stated confidence in %, then the expected calibration error, over the tasks of a column."
LENGTHS = (8, 32, 128)
STRETCHES = ((1, 1), (2, 8), (9, 32), (33, 128))
"""positions told together, first and last"""
VARIED = ("stream_length", "names", "erase_history", "test_samples", "n_sequences")
"""keys of a protocol in which the cells may differ; all others make another setting"""
SETTING = {k: v for k, v in Protocol("miniimagenet", n_query=15).question.items() if k not in VARIED}
TRANSDUCTIVE = ("propagation_memory", "egnn", "tpn", "cml_bgnn", "content_memory")
"""unless their settings say otherwise"""
SUPERSEDED = ("resnet12_wide, strong",)
"""encoders whose place a better one has taken: their records are kept, and left out of these tables"""
STRONGEST = "resnet12_wide, full"
"""encoder whose rows a page opens with"""
MEMORIES = {"slot": "memory by slot", "none": "no history"}


class StreamCell(NamedTuple):
    """One record's answer to one kind of stream."""

    names: str
    backbone: str
    """and which training of it, where there are several"""
    recipe: str
    """by its name of today"""
    erased: bool
    length: int
    record: RunRecord
    evaluation: Evaluation
    settings: Mapping[str, Any]
    """of the method"""

    @classmethod
    def of(cls, answer: Answer) -> StreamCell:
        record, protocol = answer.record, answer.evaluation.protocol
        names, erased = str(protocol.get("names", "anonymous")), bool(protocol.get("erase_history"))
        backbone, settings = _encoder(record.recipe), record.recipe.get("method_settings") or {}
        length = int(protocol.get("stream_length", 1))
        return cls(names, backbone, record.recipe_today, erased, length, record, answer.evaluation, settings)

    @property
    def questions(self) -> tuple[Any, ...]:
        """Equal for two records whose streams can be paired. The digest alone does not tell 400 x 32 from 100 x 128."""
        return self.evaluation.tasks_digest, self.evaluation.protocol.get("dataset_digest"), self.length

    @property
    def history(self) -> str:
        """CML-BGNN's; its default is the paper's"""
        return str(self.settings.get("history", "slot")) if self.record.method == "cml_bgnn" else ""

    @property
    def reads_names(self) -> bool:
        """Whether a name could tell it anything; if not, it answers named streams as it does anonymous ones."""
        return self.record.method.endswith("_memory")

    @property
    def remembers(self) -> bool:
        return self.reads_names or self.history == "slot"

    def late(self, runs: str) -> str:
        """Accuracy over the last quarter, with a link to the record."""
        found = self.evaluation.metrics["stream"]
        return linked(percent(found["last_quarter"], found["last_quarter_interval"]), self.record, runs)

    @property
    def label(self) -> str:
        """``CML-BGNN, memory by slot, transductive``"""
        words = [system_name(self.record.method)]
        if self.record.method == "cml_bgnn":
            words.append(MEMORIES[self.history])
        elif self.names == "anonymous" and self.settings.get("node") and not self.settings.get("past_picture"):
            words.append("by attention")
        words += ["history erased"] if self.erased else []
        together = self.settings.get("transductive", self.record.method in TRANSDUCTIVE)
        return ", ".join(words + (["transductive"] if together else []))


def _encoder(recipe: Mapping[str, Any]) -> str:
    """``resnet12_wide, full`` from the name of the weights it takes."""
    backbone, weights = str(recipe.get("backbone", "")), str(recipe.get("backbone_weights", ""))
    known, _, which = weights.rpartition("mini_")[2].partition(backbone)
    return f"{backbone}, {which.strip('_')}" if which and not known else backbone


def stream_cells(records: Sequence[RunRecord]) -> list[StreamCell]:
    """The newest finished answer of each recipe to each kind of stream in the setting, rows together, T ascending."""

    def fits(cell: StreamCell) -> bool:
        told = cell.record.training.get("features") and "stream" in cell.evaluation.metrics
        told = told and cell.backbone not in SUPERSEDED
        return bool(told) and cell.length in LENGTHS and agrees(cell.evaluation.protocol, SETTING)

    cells = newest(map(StreamCell.of, Ledger(records).given), lambda c: c[:5] if fits(c) else None).values()
    return sorted(cells, key=lambda c: (c.names != "named", c.backbone, c.erased, c.record.recipe_name, c.length))


class Side(NamedTuple):
    """One of two that are compared, at each of `LENGTHS`."""

    recipe: str
    names: str = "named"
    erased: bool = False


FULL = "_resnet12_wide_full"
ENCODERS = ("", "_resnet12_wide", FULL)
NAMED, PROTOTYPES = "content_memory/mini_5w1s_named", "proto_memory/mini_5w1s_frozen"
ANONYMOUS, INDUCTIVE = "content_memory/mini_5w1s_anonymous", "content_memory/mini_5w1s_named_inductive"
PAIRS = (
    (Side(NAMED), Side(PROTOTYPES)),
    (Side(NAMED), Side(INDUCTIVE)),
    (Side(INDUCTIVE), Side(PROTOTYPES)),
    (Side(INDUCTIVE, erased=True), Side(PROTOTYPES, erased=True)),
    *((Side(f"{NAMED}{e}"), Side(f"{PROTOTYPES}{e}")) for e in ENCODERS[1:]),
    (Side(f"{INDUCTIVE}{FULL}"), Side(f"{PROTOTYPES}{FULL}")),
    *((Side(f"{NAMED}{e}"), Side(f"{NAMED}{e}", erased=True)) for e in ENCODERS),
    *((Side(f"{ANONYMOUS}{e}", "anonymous"), Side(f"{ANONYMOUS}{e}", "anonymous", True)) for e in ENCODERS),
    *((Side(f"{ANONYMOUS}{e}", "anonymous"), Side(f"{PROTOTYPES}{e}", "anonymous")) for e in ENCODERS),
)
"""without names the prototype memory knows the stream's mean alone: what a task on its own gives"""
Lengths = Mapping[int, Row]  # by T


def _where(cell: Callable[[Row], StreamCell]) -> tuple[Column[Row], Column[Row]]:
    """The columns that every table of streams begins with."""
    return Column("Stream", lambda row: cell(row).names), Column("Encoder", lambda row: cell(row).backbone, once=True)


def _opened(
    columns: Sequence[Column[Row]], rows: Sequence[Row], cell: Callable[[Row], StreamCell], *notes: str
) -> Opened:
    """Rows of the strongest encoder, the others folded away; the last of the notes belongs to these."""
    strong = [row for row in rows if cell(row).backbone == STRONGEST]
    others = [row for row in rows if cell(row).backbone != STRONGEST]
    names = ", ".join(dict.fromkeys(cell(row).backbone for row in others))
    rest = Table(columns, others, "rest", note=" ".join(notes[-1:] if strong else notes), empty=NO_STREAMS)
    first = Table(columns, strong, "first", note=" ".join(notes[:-1]))
    return Opened(first, rest, f"Rows over weaker encoders ({names}): {len(others)}")


def _one(cells: Lengths[Row]) -> Row:
    return next(iter(cells.values()))


def late_table(records: Sequence[RunRecord], runs: str) -> Opened:
    """A row for each system, encoder and kind of stream, a column for each T."""
    rows: dict[tuple[Any, ...], dict[int, StreamCell]] = {}
    for cell in stream_cells(records):
        rows.setdefault(cell[:4], {})[cell.length] = cell

    def late(length: int) -> Column[Lengths[StreamCell]]:
        return Column(f"T = {length}", lambda cells: cells[length].late(runs) if length in cells else "", right=True)

    columns: tuple[Column[Lengths[StreamCell]], ...] = (
        *_where(_one),
        Column("System", lambda cells: _one(cells).label),
        Column("Recipe", lambda cells: f"`{_one(cells).record.recipe_name}`", places=("rest",)),
        *map(late, LENGTHS),
    )
    return _opened(columns, list(rows.values()), _one, TABLE_NOTE, NAMELESS_NOTE)


class Paired(NamedTuple):
    first: StreamCell
    second: StreamCell
    found: Mapping[str, Any] | None

    @property
    def words(self) -> str:
        same = self.first.recipe == self.second.recipe
        return f"{self.first.label}, minus {'the same model, history erased' if same else self.second.label}"


def paired_table(records: Sequence[RunRecord], folder: Path) -> Opened:
    """A row for each comparison, a column for each T at which its two records answered the same streams."""
    cells = {(c.recipe, c.names, c.erased, c.length): c for c in reversed(stream_cells(records))}
    rows: dict[tuple[Side, Side], dict[int, Paired]] = {}
    for pair in PAIRS:
        for length in LENGTHS:
            first, second = (cells.get((*side, length)) for side in pair)
            if first and second and first.questions == second.questions:
                found = paired(first.evaluation, second.evaluation, folder, True)
                rows.setdefault(pair, {})[length] = Paired(first, second, found)

    def gap(length: int) -> Column[Lengths[Paired]]:
        return Column(f"T = {length}", lambda row: gap_text(row[length].found) if length in row else "", right=True)

    counts = {(length, p.found["n"]) for row in rows.values() for length, p in row.items() if p.found}
    told = ", ".join(f"{n:,} of {length} tasks" for length, n in sorted(counts))

    def where(row: Lengths[Paired]) -> StreamCell:
        return _one(row).first

    columns = (*_where(where), Column("First minus second", lambda row: _one(row).words), *map(gap, LENGTHS))
    return _opened(columns, list(rows.values()), where, f"{PAIRED_NOTE} Streams: {told}.", "")


def calibration_table(records: Sequence[RunRecord], runs: str) -> Table[StreamCell]:
    """Whether stated confidence keeps up with accuracy as memory grows: each system, its longest stream that tells."""
    told = [cell for cell in stream_cells(records) if "ece_by_position" in cell.evaluation.metrics]
    longest = {cell[:4]: cell for cell in told}  # lengths ascend

    def stretch(first: int, last: int) -> Column[StreamCell]:
        def text(cell: StreamCell) -> str:
            keys = ("accuracy_by_position", "confidence_by_position", "ece_by_position")
            parts = [cell.evaluation.metrics[key][first - 1 : last] for key in keys]
            right, stated, error = (100 * sum(part) / len(part) if part else 0.0 for part in parts)
            return f"{right:.1f} / {stated:.1f}, {error:.1f}" if parts[0] else ""

        return Column(f"Task {first}" if first == last else f"Tasks {first} to {last}", text, right=True)

    columns: tuple[Column[StreamCell], ...] = (
        *_where(lambda cell: cell),
        Column("System", lambda cell: linked(cell.label, cell.record, runs)),
        *(stretch(*both) for both in STRETCHES),
    )
    return Table(columns, list(longest.values()), note=CALIBRATION_NOTE, empty=NO_STREAMS)
