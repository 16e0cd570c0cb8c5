"""Which records answer which question: by the digest of the recipe and the protocol that was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engram.card import Revision
from engram.ledger import Evaluation, RunRecord, Trainers
from engram.protocol import DEFAULTS, agrees
from engram.recipes import Recipe
from engram.recipes.protocols import Ask, expected_protocols
from engram.recipes.schema import digest_of
from engram.revisions import revisions_of
from engram.studies.schema import ScaleName

TASKS_DRAWN = ("n_sequences", "seed")
"""keys of a protocol that say which tasks are drawn and how many, not what a task is"""


@dataclass(frozen=True)
class Answer:
    """One record's answer to one protocol, with the run that trained the model."""

    record: RunRecord
    evaluation: Evaluation
    trainer: RunRecord

    @property
    def seed(self) -> int:
        return int(self.record.recipe["train"]["seed"])

    @property
    def training(self) -> Mapping[str, Any]:
        return self.trainer.training

    @property
    def since(self) -> tuple[Revision, ...]:
        """Changes of the method's behaviour that came after this answer."""
        return revisions_of(self.record.method, self.record.recipe["method_settings"])[self.record.revision :]

    @property
    def complete(self) -> bool:
        """Trained for all iterations of its recipe, or a method that is not trained. Without the run's record: no."""
        done = self.training.get("iterations")
        return not self.record.trained_by if done is None else done >= self.record.recipe["train"]["iterations"]


class Ledger:
    """Finished records by recipe, whatever the seed; the newest of equal questions counts.

    Runs of one recipe may differ in origin: the revision of the method, and the weights or features they started from.
    One origin counts, that of today's revision or the nearest before it, and of the newest run; the others are never
    pooled with it.
    """

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self.records = sorted(records, key=lambda r: (r.started, r.run_id))
        self.trainers = Trainers(self.records)

    @cached_property
    def _finished(self) -> dict[str, list[RunRecord]]:
        found: dict[str, list[RunRecord]] = {}
        for record in self.records:
            if record.status == "finished" and record.kind in ("train", "bench"):
                found.setdefault(digest_of(record.recipe, without_seed=True), []).append(record)
        return found

    def runs(self, recipe: Recipe) -> list[RunRecord]:
        """Finished train and bench records of a recipe, any seed, oldest first."""
        return self._finished.get(digest_of(recipe.to_dict(), without_seed=True), [])

    def answers(self, recipe: Recipe, ask: Ask, scale: ScaleName) -> dict[int, list[Answer]]:
        """seed -> the newest answer to each protocol of the question; seeds that answered all of them."""
        wanted = expected_protocols(recipe, ask)
        found: dict[tuple[Any, ...], dict[int, dict[int, Answer]]] = {}
        for record in self.runs(recipe):
            for evaluation in record.evaluations:
                answer = Answer(record, evaluation, self.trainers.of(record))
                if scale == "paper" and not answer.complete:
                    continue
                for number, expected in enumerate(wanted):
                    if agrees(evaluation.protocol, expected):
                        found.setdefault(record.origin, {}).setdefault(answer.seed, {})[number] = answer
        whole = [
            {
                seed: [answers[n] for n in range(len(wanted))]
                for seed, answers in sorted(seeds.items())
                if len(answers) == len(wanted)
            }
            for seeds in found.values()
        ]
        return max(filter(None, whole), key=_newest, default={})

    def asked_as(self, answer: Answer, changes: Mapping[str, Any]) -> Answer | None:
        """The same weights asked the same but for ``changes``: this answer if it agrees, else the newest that does."""
        wanted = {**DEFAULTS, **answer.evaluation.protocol, **changes}
        if agrees(answer.evaluation.protocol, wanted):
            return answer
        expected = {key: value for key, value in wanted.items() if key not in TASKS_DRAWN}
        found = [
            Answer(record, evaluation, answer.trainer)
            for record in self.records
            if (record.status, self.trainers.of(record).run_id) == ("finished", answer.trainer.run_id)
            for evaluation in record.evaluations
            if agrees(evaluation.protocol, expected)
        ]
        return found[-1] if found else None

    def trainings(self, recipe: Recipe) -> dict[int, RunRecord]:
        """seed -> the newest finished training run with validation curves."""
        runs = [r for r in self.runs(recipe) if r.kind == "train" and r.curves.get("iteration")]
        newest = max(runs, key=lambda r: (r.revision, r.started), default=None)
        return {int(r.recipe["train"]["seed"]): r for r in runs if newest and r.origin == newest.origin}

    @cached_property
    def _audits(self) -> dict[str, RunRecord]:
        audits = [r for r in self.records if r.kind == "audit" and r.status == "finished"]
        return {digest_of(r.recipe, without_seed=True): r for r in sorted(audits, key=lambda r: r.revision)}

    def audit(self, recipe: Recipe) -> RunRecord | None:
        """The newest finished audit of a recipe."""
        return self._audits.get(digest_of(recipe.to_dict(), without_seed=True))


def _newest(answers: Mapping[int, list[Answer]]) -> tuple[int, str, str]:
    records = [answer.record for of_seed in answers.values() for answer in of_seed]
    return max((r.revision, r.started, r.run_id) for r in records)
