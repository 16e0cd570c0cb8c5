"""The only answers to: which record answers this question, which run trained it, which audit is the newest?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from engram.card import Revision, revisions_of
from engram.ledger.records import Evaluation, RunRecord
from engram.protocol import DEFAULTS, agrees
from engram.recipes import Recipe
from engram.recipes.protocols import Ask, expected_protocols
from engram.recipes.schema import digest_of

T = TypeVar("T")
Key = Callable[[T], Hashable | None]
TASKS_DRAWN = ("n_sequences", "seed")
"""keys of a protocol that say which tasks are drawn and how many, not what a task is"""


MADE_BY = re.compile(r"run (\S+), (?:best|step)-(\d+)")
"""in the words for features: the run of their encoder, and the step of its weights"""


def newest(items: Iterable[T], key: Key[T]) -> dict[Any, T]:
    """Of items that come oldest first the last for each value of ``key``; None leaves an item out."""
    return {value: item for item in items if (value := key(item)) is not None}


@dataclass(frozen=True)
class Answer:
    """One record's answer to one protocol, with the run that trained the model."""

    record: RunRecord
    evaluation: Evaluation
    trainer: RunRecord

    @property
    def question(self) -> tuple[Hashable, ...]:
        """Equal for two runs of one recipe, seed and origin that answered the same tasks: they should say the same."""
        protocol = json.dumps(self.evaluation.protocol, sort_keys=True)
        return self.record.recipe_digest, self.record.origin, protocol, self.evaluation.tasks_digest

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
    def encoder_kept(self) -> bool:
        """The encoder is as it was before: the head saw features, froze it, or was chosen while it was still held."""
        if self.training.get("features") or self.record.recipe["train"].get("freeze_backbone"):
            return True
        curves, waited = self.trainer.curves, self.training.get("frozen_accuracy")
        if waited is None:
            return False
        seen = zip(curves.get("iteration", []), curves.get("validation_accuracy", []), strict=False)
        let_go = next((step for step, accuracy in seen if abs(accuracy - waited) < 1e-6), 0)  # curves are rounded
        return bool(self.training.get("best_iteration", 0) <= let_go)

    @property
    def complete(self) -> bool:
        """Trained for all iterations of its recipe, or a method that is not trained. Without the run's record: no."""
        done = self.training.get("iterations")
        return not self.record.trained_by if done is None else done >= self.record.recipe["train"].get("iterations", 0)


class Trainers:
    """Which run trained the model of a record."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        ordered = sorted(records, key=lambda r: (r.started, r.run_id))
        self._by_id = {r.run_id: r for r in ordered}
        self._next = {r.training["resumed_from"]: r.run_id for r in ordered if r.training.get("resumed_from")}

    def of(self, record: RunRecord) -> RunRecord:
        """The last part of a run that was stopped and resumed: its best weights may be of an earlier part and name it.

        The record itself where the run has none.
        """
        run_id, seen = record.trained_by or record.run_id, set[str]()
        while run_id in self._next and run_id not in seen:  # records that name each other would lead round for ever
            seen.add(run_id)
            run_id = self._next[run_id]
        return self._by_id.get(run_id, record)


class Ledger:
    """Records, oldest first; the newest of equal questions counts.

    Runs of one recipe may differ in origin: the revision of the method, and the weights or features they started from.
    One origin counts, that of today's revision or the nearest before it, and of the newest run; the others are never
    pooled with it. A bench of other weights than validation chose is there to be compared; it answers for no recipe.
    """

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self.records = sorted(records, key=lambda r: (r.started, r.run_id))
        self.trainers = Trainers(self.records)

        done = (r for r in self.records if r.status == "finished" and r.kind in ("train", "bench"))
        self.finished = [r for r in done if "which_weights" not in r.training]

    @cached_property
    def given(self) -> list[Answer]:
        """Every answer of finished train and bench runs, oldest first."""
        return self._answers_of(self.finished)

    def _answers_of(self, runs: Iterable[RunRecord]) -> list[Answer]:
        return [Answer(run, evaluation, self.trainers.of(run)) for run in runs for evaluation in run.evaluations]

    @cached_property
    def unanswered(self) -> list[RunRecord]:
        """Failed runs, and the newest interrupted run of a recipe until a later run of it has finished."""
        kept: dict[str, RunRecord] = {}
        for record in (r for r in self.records if r.kind in ("train", "bench")):
            if record.status == "finished":
                kept.pop(record.recipe_digest, None)
            else:
                kept[record.recipe_digest if record.status == "interrupted" else record.run_id] = record
        return list(kept.values())

    @cached_property
    def _by_recipe(self) -> dict[str, list[RunRecord]]:
        found: dict[str, list[RunRecord]] = {}
        for record in self.finished:
            found.setdefault(_digest(record), []).append(record)
        return found

    def runs(self, recipe: Recipe) -> list[RunRecord]:
        """Finished train and bench records of a recipe, any seed, oldest first."""
        return self._by_recipe.get(digest_of(recipe.to_dict(), without_seed=True), [])

    def newest_answer(self, recipe: Recipe) -> Answer | None:
        """The newest, of any seed, to the first protocol of a recipe's own test."""
        expected = expected_protocols(recipe, ())[0]
        fitting = (a for a in self._answers_of(self.runs(recipe)) if agrees(a.evaluation.protocol, expected))
        return newest(fitting, lambda answer: True).get(True)

    def answers(self, recipe: Recipe, ask: Ask, scale: Literal["short", "paper"]) -> dict[int, list[Answer]]:
        """seed -> the newest answer to each protocol of the question; seeds that answered all of them.

        Scale paper takes only models that were trained for all iterations of the recipe.
        """
        given = [answer for answer in self._answers_of(self.runs(recipe)) if scale == "short" or answer.complete]
        found: dict[tuple[Any, ...], dict[int, list[Answer]]] = {}
        wanted = expected_protocols(recipe, ask)
        for expected in wanted:
            fitting = (answer for answer in given if agrees(answer.evaluation.protocol, expected))
            for (origin, seed), answer in newest(fitting, lambda a: (a.record.origin, a.seed)).items():
                found.setdefault(origin, {}).setdefault(seed, []).append(answer)
        whole = [{s: seeds[s] for s in sorted(seeds) if len(seeds[s]) == len(wanted)} for seeds in found.values()]
        return max(filter(None, whole), key=_age, default={})

    def asked_as(self, answer: Answer, changes: Mapping[str, Any]) -> Answer | None:
        """The same weights asked the same but for ``changes``: this answer if it agrees, else the newest that does."""
        wanted = {**DEFAULTS, **answer.evaluation.protocol, **changes}
        if agrees(answer.evaluation.protocol, wanted):
            return answer
        expected = {key: value for key, value in wanted.items() if key not in TASKS_DRAWN}
        fitting = (other for other in self.given if agrees(other.evaluation.protocol, expected))
        return newest(fitting, lambda a: a.trainer.run_id).get(answer.trainer.run_id)

    def nearest_centroid(self, answer: Answer) -> Answer | None:
        """What nearest centroid gives on the features an answer's head was trained on, asked the same tasks.

        That is how a run of stage one answers. The encoder is known by the run and step that the features name, or,
        where the head saw images through the encoder, by the digest of the weights it took over. None where the
        answer is of no such head, or nobody asked.
        """
        fitting = (a for a in self.given if a.record.method == "stage_one" and _same_tasks(a, answer))
        if made := MADE_BY.search(str(answer.training.get("features") or "")):
            return newest(fitting, _checkpoint).get((made[1], int(made[2])))
        by_digest = newest(fitting, lambda a: a.record.training.get("weights") or a.training.get("weights"))
        return by_digest.get(answer.record.start.get("weights"))

    def trainings(self, recipe: Recipe) -> dict[int, RunRecord]:
        """seed -> the newest finished training run with validation curves."""
        runs = [r for r in self.runs(recipe) if r.kind == "train" and r.curves.get("iteration")]
        last = max(runs, key=lambda r: (r.revision, r.started), default=None)
        return {int(r.recipe["train"]["seed"]): r for r in runs if last and r.origin == last.origin}

    def audits(self, key: Key[RunRecord]) -> dict[Any, RunRecord]:
        """The newest finished audit for each value of ``key``; a later revision counts before a later date."""
        audits = (r for r in self.records if r.kind == "audit" and r.status == "finished")
        return newest(sorted(audits, key=lambda r: r.revision), key)

    @cached_property
    def _audits(self) -> dict[str, RunRecord]:
        return self.audits(_digest)

    def audit(self, recipe: Recipe) -> RunRecord | None:
        """The newest finished audit of a recipe."""
        return self._audits.get(digest_of(recipe.to_dict(), without_seed=True))


def conflicts(records: Sequence[RunRecord]) -> list[str]:
    """A sentence for each pair of finished records with equal digest and questions but different results.

    Such runs differ in what a digest does not hold: the device, or the minutes of a time box. The newest counts.
    """
    last: dict[Hashable, Answer] = {}
    sentences = []
    for answer in Ledger(records).given:
        before, last[answer.question] = last.get(answer.question), answer
        old, new = (a.evaluation.metrics.get("accuracy") if a else None for a in (before, answer))
        if before and old is not None and new is not None and old != new:
            figures = [100 * float(old), 100 * float(new)]
            sentences.append(
                f"runs {before.record.run_id} and {answer.record.run_id} of {answer.record.recipe_name} have the same "
                f"digest and questions but scored {figures[0]:.2f} and {figures[1]:.2f} %: the newer one counts"
            )
    return sentences


def _same_tasks(first: Answer, second: Answer) -> bool:
    """Whether two answers are to the same tasks, asked the same: on images or on features of them."""
    asked = [{**DEFAULTS, **answer.evaluation.protocol, "dataset_digest": ""} for answer in (first, second)]
    return asked[0] == asked[1] and first.evaluation.tasks_digest == second.evaluation.tasks_digest


def _checkpoint(answer: Answer) -> tuple[str, int]:
    """The run and the step of the weights that a run of stage one answered with."""
    told = MADE_BY.search(str(answer.record.training.get("features") or ""))
    step = int(told[2]) if told else answer.training.get("best_iteration", 0)
    return answer.record.trained_by or answer.record.run_id, step


def _digest(record: RunRecord) -> str:
    """Of its recipe, whatever the seed; "" where the record holds no whole recipe."""
    try:
        return digest_of(record.recipe, without_seed=True)
    except (KeyError, TypeError, AttributeError):
        return ""


def _age(answers: Mapping[int, list[Answer]]) -> tuple[int, str, str]:
    records = [answer.record for of_seed in answers.values() for answer in of_seed]
    return max((r.revision, r.started, r.run_id) for r in records)
