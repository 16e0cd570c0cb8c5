"""Which records count, and which answer a question: digests, seals, per-task results, scales, conflicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from study_ledger import add_record

from engram.card import Revision
from engram.errors import EngramError
from engram.ledger import read_record, record_path
from engram.recipes import load_recipe, schema
from engram.recipes.protocols import ask_of, expected_protocols
from engram.recipes.schema import digest_of
from engram.revisions import REVISIONS
from engram.studies import load_study
from engram.studies.jobs import jobs_of, with_seed
from engram.studies.matching import Ledger
from engram.studies.records import conflicts, trusted_records

QUICK = "cml_bgnn/glyphs_quick_class_order"
SHUFFLED = (("slot_order", "shuffled"),)


def test_a_sealed_record_tells_any_edit(tmp_path: Path) -> None:
    path = record_path(tmp_path, add_record(tmp_path, QUICK))
    assert read_record(path).seed == 111
    raw = json.loads(path.read_text())
    raw["note"] = "edited"
    path.write_text(json.dumps(raw))
    with pytest.raises(EngramError, match="was changed after it was written"):
        read_record(path)
    records, problems = trusted_records(tmp_path)
    assert not records and str(path) in problems[0]


@pytest.mark.parametrize("edit", ["accuracy", "iterations", "half", "tasks"])
def test_a_record_without_a_seal_must_agree_with_itself(tmp_path: Path, edit: str) -> None:
    """Records from before seals: an edited accuracy or setting, a cut file, a changed file of tasks."""
    kept = add_record(tmp_path, QUICK, number=1)
    path = record_path(tmp_path, add_record(tmp_path, QUICK, number=2))
    raw = json.loads(path.read_text())
    del raw["seal"]
    if edit == "accuracy":
        raw["evaluations"][0]["metrics"]["accuracy"] += 0.05
    if edit == "iterations":
        raw["recipe"]["train"]["iterations"] += 1
    path.write_text(json.dumps(raw) if edit != "half" else path.read_text()[:200])
    if edit == "tasks":
        np.savez(tmp_path / raw["evaluations"][0]["tasks_file"], correct=np.ones((40, 8, 5)))
    records, problems = trusted_records(tmp_path)
    assert [r.run_id for r in records] == [kept.run_id]
    assert len(problems) == 1 and path.name in problems[0]


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


RECORDS = sorted((Path(__file__).parents[2] / "results" / "runs").glob("*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: p.stem)
def test_the_digest_of_a_committed_record_is_still_that_of_its_recipe(path: Path) -> None:
    record = read_record(path)
    assert digest_of(record.recipe) == record.recipe_digest


def test_a_later_key_is_left_out_of_a_digest_at_its_declared_default_whatever_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The default of learning_rate is 0.001 and that of names "anonymous": none of them is empty."""
    recipe = load_recipe(QUICK)
    before = digest_of(recipe.to_dict())
    monkeypatch.setattr(schema, "LATER", schema.LATER | {"learning_rate", "names"})
    plain = replace(
        recipe, train=replace(recipe.train, learning_rate=1e-3), data=replace(recipe.data, names="anonymous")
    )
    silent = plain.to_dict()
    del silent["train"]["learning_rate"], silent["data"]["names"], silent["test"]["names"]
    assert digest_of(plain.to_dict()) == digest_of(silent) != before
    other = replace(plain, train=replace(plain.train, learning_rate=0.0))
    assert digest_of(other.to_dict()) != digest_of(plain.to_dict())  # empty, but not the default


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


def test_a_record_that_does_not_say_what_it_starts_from_is_left_out(tmp_path: Path) -> None:
    started = replace(load_recipe(QUICK), backbone_weights="runs/stage_one")
    add_record(tmp_path, started, start={})
    add_record(tmp_path, QUICK, number=2, revision=7)
    add_record(tmp_path, started, start={}, version=1, number=3)  # from before digests were kept: known as such
    records, problems = trusted_records(tmp_path)
    assert [r.version for r in records] == [1]
    assert any("builds on runs/stage_one but does not say by which digest" in p for p in problems)
    assert any("revision 7 of cml_bgnn but this Engram knows" in p for p in problems)


def test_a_record_without_revision_is_told(tmp_path: Path) -> None:
    path = record_path(tmp_path, add_record(tmp_path, QUICK))
    raw = json.loads(path.read_text())
    del raw["revision"], raw["seal"]
    path.write_text(json.dumps(raw))
    with pytest.raises(EngramError, match="it does not say its revision"):
        read_record(path)


def test_a_bench_counts_as_complete_by_the_run_that_trained_it(tmp_path: Path) -> None:
    trained = add_record(tmp_path, QUICK, training={"iterations": 10, "seconds": 5.0})
    add_record(tmp_path, QUICK, ask={"slot_order": "shuffled"}, number=1, trained_by=trained.run_id)
    ledger = Ledger(trusted_records(tmp_path)[0])
    recipe = load_recipe(QUICK)
    assert ledger.answers(recipe, SHUFFLED, "short") and not ledger.answers(recipe, SHUFFLED, "paper")


def test_a_question_the_recipe_asks_anyway_is_not_asked_twice() -> None:
    recipe = load_recipe("cml_bgnn/mini_5w1s_public_short")  # tests with 1 and with 15 queries
    assert [p["n_query"] for p in expected_protocols(recipe, ())] == [1, 15]
    assert ask_of(recipe, {"n_query": 1, "stream_length": 8}) == ()
    assert ask_of(recipe, {"slot_order": "shuffled"}) == ()
    assert ask_of(recipe, {"slot_order": "class-order"}) == (("slot_order", "class-order"),)


def test_one_job_per_model_whatever_the_number_of_cells() -> None:
    jobs, absent = jobs_of([load_study("order_leak")], "short")
    assert not absent and len(jobs) == 3
    leak = jobs[0]
    assert leak.asks == ((), SHUFFLED) and leak.minutes == 0.0 and leak.recipe.train.seed == 111
    seeds = jobs_of([load_study("order_leak")], "short", seeds=(1, 2))[0]
    assert len(seeds) == 6 and len({j.key for j in seeds}) == 6


def test_seeds_change_the_digest_but_not_that_without_them() -> None:
    recipe = load_recipe(QUICK)
    other = with_seed(recipe, 5)
    assert recipe.digest != other.digest
    assert digest_of(recipe.to_dict(), True) == digest_of(other.to_dict(), True) != recipe.digest
