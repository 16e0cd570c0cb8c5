"""Which record answers a question: by protocol, seed, scale and origin; the newest counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_ledger import add_record

from engram.card import REVISIONS, Revision
from engram.ledger import Ledger, Trainers, conflicts, newest, trusted_records
from engram.recipes import load_recipe

QUICK = "cml_bgnn/glyphs_quick_class_order"
SHUFFLED = (("slot_order", "shuffled"),)


def test_equal_digest_and_different_results_are_told_and_the_newest_counts(tmp_path: Path) -> None:
    first, second = (add_record(tmp_path, QUICK, a, number=n) for n, a in ((1, 0.6), (2, 0.7)))
    records, problems = trusted_records(tmp_path)
    assert not problems
    (sentence,) = conflicts(records)
    assert first.run_id in sentence and second.run_id in sentence and "the newer one counts" in sentence
    (answers,) = Ledger(records).answers(load_recipe(QUICK), (), "short").values()
    assert answers[0].record.run_id == second.run_id
    add_record(tmp_path, QUICK, 0.6, seed=222, number=3)  # another seed is no conflict
    assert len(conflicts(trusted_records(tmp_path)[0])) == 1


def test_answers_are_matched_by_protocol_seed_and_scale(tmp_path: Path) -> None:
    recipe = load_recipe(QUICK)
    add_record(tmp_path, QUICK)
    add_record(tmp_path, QUICK, 0.4, ask={"slot_order": "shuffled"}, seed=222, number=1)
    cut = {"iterations": 10, "seconds": 5.0}
    add_record(tmp_path, QUICK, seed=333, number=2, training=cut)
    add_record(tmp_path, QUICK, seed=444, number=3, status="failed", error="x")
    ledger = Ledger(trusted_records(tmp_path)[0])
    assert list(ledger.answers(recipe, (), "short")) == [111, 333]
    assert list(ledger.answers(recipe, (), "paper")) == [111]  # 333 was cut short
    assert list(ledger.answers(recipe, SHUFFLED, "short")) == [222]
    other = replace(recipe, train=replace(recipe.train, learning_rate=0.5))
    assert not ledger.answers(other, (), "short")


def test_runs_of_another_revision_or_start_are_never_pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(QUICK)
    add_record(tmp_path, QUICK, seed=111, number=1)
    add_record(tmp_path, QUICK, seed=222, number=2, start={"weights": "aa"})
    add_record(tmp_path, QUICK, seed=333, number=3, start={"weights": "bb"})
    add_record(tmp_path, QUICK, seed=444, number=4, start={"weights": "aa"})
    ledger = Ledger(trusted_records(tmp_path)[0])
    assert list(ledger.answers(recipe, (), "short")) == [222, 444]  # the origin of the newest run
    assert list(ledger.trainings(recipe)) == [222, 444]
    monkeypatch.setitem(REVISIONS, "cml_bgnn", (Revision("mended"),))
    ((old, *_), *_) = ledger.answers(recipe, (), "short").values()
    assert [r.what for r in old.since] == ["mended"]  # shown as what they are until there is a new run
    add_record(tmp_path, QUICK, seed=555, number=5)
    found = Ledger(trusted_records(tmp_path)[0]).answers(recipe, (), "short")
    assert list(found) == [555] and not found[555][0].since


def test_a_bench_counts_as_complete_by_the_run_that_trained_it(tmp_path: Path) -> None:
    trained = add_record(tmp_path, QUICK, training={"iterations": 10, "seconds": 5.0})
    add_record(tmp_path, QUICK, ask={"slot_order": "shuffled"}, number=1, trained_by=trained.run_id)
    ledger = Ledger(trusted_records(tmp_path)[0])
    recipe = load_recipe(QUICK)
    assert ledger.answers(recipe, SHUFFLED, "short") and not ledger.answers(recipe, SHUFFLED, "paper")


def test_newest_keeps_the_last_of_each_kind() -> None:
    assert newest([1, 12, 3, 14, 25], lambda n: n // 10 or None) == {1: 14, 2: 25}


def test_the_newest_answer_of_a_recipe_whatever_the_seed(tmp_path: Path) -> None:
    recipe = load_recipe(QUICK)
    assert Ledger([]).newest_answer(recipe) is None
    kept = [
        add_record(tmp_path, recipe, accuracy, seed=seed, number=number)
        for number, seed, accuracy in ((3, 222, 0.7), (1, 111, 0.6))
    ]
    asked = add_record(tmp_path, recipe, 0.5, ask={"slot_order": "shuffled"}, number=5)
    broken = replace(kept[0], run_id="20260101-000009-aaaaaa", recipe={}, started="2026-01-01T00:00:09Z")
    ledger = Ledger([*kept, asked, broken])
    answer = ledger.newest_answer(recipe)
    assert answer is not None and answer.record is kept[0] and answer.seed == 222
    assert ledger.runs(recipe) == [kept[1], kept[0], asked]
    assert ledger.newest_answer(replace(recipe, backbone="conv32")) is None


def test_what_gave_no_answer_is_kept_until_a_later_run_has(tmp_path: Path) -> None:
    runs = [
        add_record(tmp_path, QUICK, number=number, status=status)
        for number, status in ((1, "interrupted"), (2, "failed"), (3, "interrupted"))
    ]
    assert Ledger(runs).unanswered == [runs[2], runs[1]]  # the newer interruption stands for both
    done = add_record(tmp_path, QUICK, number=4)
    assert Ledger([*runs, done]).unanswered == [runs[1]]
    assert Ledger(runs).given == []


def test_the_newest_audit_is_of_the_latest_revision(tmp_path: Path) -> None:
    recipe = load_recipe(QUICK)
    old, new = (
        add_record(tmp_path, recipe, number=number, kind="audit", revision=revision)
        for number, revision in ((4, 0), (3, 1))
    )
    add_record(tmp_path, recipe, number=5, kind="audit", status="failed")
    ledger = Ledger([old, new])
    assert ledger.audit(recipe) is new and ledger.audits(lambda record: record.recipe_name) == {QUICK: new}
    assert ledger.audit(load_recipe("proto_net/glyphs_quick")) is None


def test_the_trainer_of_a_resumed_run_is_its_last_part(tmp_path: Path) -> None:
    made = add_record(tmp_path, QUICK)
    first = replace(made, run_id="a", status="interrupted", training={"iterations": 10, "resumed_from": ""})
    second = replace(made, run_id="b", training={"iterations": 30, "resumed_from": "a"})
    asked = replace(made, run_id="c", kind="bench", trained_by="a")  # the best weights were saved before the stop
    for known in ([first, second, asked], [second, asked]):
        assert Trainers(known).of(asked) is second and Trainers(known).of(second) is second
    assert Trainers([first, asked]).of(asked) is first
    assert Trainers([asked]).of(asked) is asked
