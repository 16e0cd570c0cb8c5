"""Two ways to train beside each other: from disk and in memory (`benchmarks.store_disk`), fast and plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engram.ledger import Evaluation, RunRecord
from engram.protocol import describe_protocol
from engram.report.results import NOT_MEASURED
from engram.report.rows import gap_text, linked, paired
from engram.report.table import Column, Table, percent


@dataclass(frozen=True)
class Stepped:
    """One recipe of one file."""

    recipe: str
    content: Mapping[str, Any]
    link: str

    def of(self, where: str, key: str) -> Any:
        """What was measured with the store on ``disk`` or in ``memory``; None where it was not."""
        return self.content["setting"]["recipes"][self.recipe].get(where, {}).get(key)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


COLUMNS: tuple[Column[Stepped], ...] = (
    Column("Recipe", lambda s: f"`{s.recipe}`"),
    Column("Device", lambda s: s.content["device"]),
    Column("Step in memory, ms", lambda s: _number(s.of("memory", "step_ms"), 2), right=True),
    Column("From disk, ms", lambda s: _number(s.of("disk", "step_ms"), 2), right=True),
    Column("Disk / memory", lambda s: _number(s.content["rates"].get(f"{s.recipe}, disk / memory"), 2), right=True),
    Column("Images of a step", lambda s: _number(s.of("disk", "images_per_step"), 0), right=True),
    Column("Steps", lambda s: _number(s.of("disk", "steps"), 0), right=True),
    Column("Read for them, GB", lambda s: _number(s.of("disk", "read_gb"), 2), right=True),
    Column("Resident, MiB", lambda s: _number(s.of("disk", "resident_mib"), 0), right=True),
    Column("Measured", lambda s: s.link),
)


def store_section(files: Sequence[tuple[Mapping[str, Any], str]], folder: str) -> str:
    """The newest file of each device: a row for each recipe, and a sentence on the store itself."""
    newest = {content["device"]: (content, name) for content, name in files}
    rows = [
        Stepped(recipe, content, f"[{content['measured'][:10]}]({folder}/{name})")
        for _, (content, name) in sorted(newest.items())
        for recipe in content["setting"]["recipes"]
    ]
    said = [_of_store(content) for _, (content, _) in sorted(newest.items())]
    return "\n\n".join((Table(COLUMNS, rows, empty=NOT_MEASURED).markdown(), *said))


def _of_store(content: Mapping[str, Any]) -> str:
    rates, setting = content["rates"], content["setting"]
    return (
        f"{content['device']}: {setting['n_images']:,} pictures, {setting['store_gb']:.2f} GB, were built in "
        f"{rates['build_s']:.0f} s with {rates['build_resident_mib']:,.0f} MiB resident and opened in "
        f"{rates['open_s']:.3f} s. The disk alone gave {rates['disk_alone_gb_per_s']:.2f} GB/s of single pictures. "
        f"Load average before: {content['load_average']:.1f}."
    )


class Paths(NamedTuple):
    """Two runs of one recipe, seed and commit: one replayed captured steps, the other, with ``--plain``, did not."""

    fast: RunRecord
    plain: RunRecord
    ours: Evaluation
    theirs: Evaluation
    """the same tasks"""


def paths_table(records: Sequence[RunRecord], runs: str, folder: Path) -> Table[Paths]:
    """A row for each protocol that both runs of a pair answered on the same tasks, the newest of each kind."""
    kinds: dict[tuple[str, int, str], dict[bool, RunRecord]] = {}
    for record in sorted(records, key=lambda r: (r.started, r.run_id)):
        captured = record.training.get("captured")
        if (record.kind, record.status) == ("train", "finished") and captured is not None:
            kinds.setdefault((record.recipe_digest, record.seed, record.commit), {})[bool(captured)] = record
    rows = [
        Paths(found[True], found[False], ours, theirs)
        for found in kinds.values()
        if len(found) == 2
        for ours in found[True].evaluations
        for theirs in found[False].evaluations
        if theirs.tasks_digest == ours.tasks_digest
    ]

    def figure(record: RunRecord, evaluation: Evaluation) -> str:
        return linked(percent(evaluation.metrics["accuracy"], evaluation.metrics["interval"]), record, runs)

    columns: tuple[Column[Paths], ...] = (
        Column("Recipe", lambda p: f"`{p.fast.recipe_name}`"),
        Column("Steps", lambda p: f"{p.fast.training['iterations']:,}", right=True),
        Column("Protocol", lambda p: describe_protocol(p.ours.protocol)),
        Column("Fast, %", lambda p: figure(p.fast, p.ours), right=True),
        Column("Plain, %", lambda p: figure(p.plain, p.theirs), right=True),
        Column("Fast minus plain, points", lambda p: gap_text(paired(p.ours, p.theirs, folder)), right=True),
    )
    return Table(columns, rows, empty=NOT_MEASURED)
