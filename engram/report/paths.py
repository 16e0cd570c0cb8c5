"""The fast and the plain path of training, one minus the other: ``<!-- speed:begin paths -->``.

A pair is two runs of one recipe, seed and commit: one replayed captured steps, the other, with ``--plain``, did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from engram.evaluation.metrics import paired_difference
from engram.ledger import Evaluation, RunRecord, correctness, record_path
from engram.protocol import describe_protocol
from engram.report.columns import markdown_table
from engram.report.rows import percent

HEADER = ("Recipe", "Steps", "Protocol", "Fast, %", "Plain, %", "Fast minus plain, points")


def pairs(records: Sequence[RunRecord]) -> Iterator[tuple[RunRecord, RunRecord]]:
    """Fast and plain, the newest of each kind."""
    kinds: dict[tuple[str, int, str], dict[bool, RunRecord]] = {}
    for record in sorted(records, key=lambda r: (r.started, r.run_id)):
        captured = record.training.get("captured")
        if (record.kind, record.status) == ("train", "finished") and captured is not None:
            key = record.recipe_digest, record.seed, record.commit
            kinds.setdefault(key, {})[bool(captured)] = record
    for found in kinds.values():
        if len(found) == 2:
            yield found[True], found[False]


def paths_table(records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """A row for each protocol that both runs of a pair answered on the same tasks; "" without a pair."""
    body = []
    for fast, plain in pairs(records):
        for ours in fast.evaluations:
            for theirs in (e for e in plain.evaluations if e.tasks_digest == ours.tasks_digest):
                found = paired_difference(correctness(ours, folder), correctness(theirs, folder))
                gap = f"{100 * found['difference']:+.2f} ± {100 * found['interval']:.2f}"
                figures = _figure(fast, ours, runs), _figure(plain, theirs, runs), gap
                asked = f"{fast.training['iterations']:,}", describe_protocol(ours.protocol)
                body.append((f"`{fast.recipe_name}`", *asked, *figures))
    return markdown_table(HEADER, body, right=(1, 3, 4, 5)) if body else ""


def _figure(record: RunRecord, evaluation: Evaluation, runs: str) -> str:
    figure = percent(evaluation.metrics["accuracy"], evaluation.metrics["interval"])
    return f"[{figure}]({record_path(Path(runs), record).as_posix()})"
