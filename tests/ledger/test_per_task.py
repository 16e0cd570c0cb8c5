"""Per-task accuracies come back as they were, in their small form and in the old one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from study_ledger import add_record

from engram.errors import EngramError
from engram.ledger import Evaluation, read_record, record_path, trusted_records
from engram.ledger.per_task import MOST_LEVELS, correctness, read_tasks, readable_tasks, write_tasks
from engram.recipes import load_recipe, schema
from engram.recipes.schema import digest_of
from engram.studies.jobs import with_seed


@pytest.mark.parametrize("queries", [1, 5, 75, 4 * MOST_LEVELS])
def test_what_is_written_is_read(tmp_path: Path, queries: int) -> None:
    rng = np.random.default_rng(0)
    correct = (rng.integers(0, queries + 1, (2000, 2, 1)) / queries).astype(np.float32)
    write_tasks(tmp_path / "deep" / "tasks.npz", correct, {"labels": np.zeros(3, np.uint8)})
    found = read_tasks(tmp_path / "deep" / "tasks.npz")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, correct.astype(np.float64))


def test_it_is_smaller_and_the_old_form_is_read_too(tmp_path: Path) -> None:
    correct = (np.random.default_rng(0).integers(0, 76, (2000, 8, 1)) / 75).astype(np.float32)
    write_tasks(tmp_path / "new.npz", correct)
    np.savez_compressed(tmp_path / "old.npz", correct=correct)
    np.testing.assert_array_equal(read_tasks(tmp_path / "new.npz"), read_tasks(tmp_path / "old.npz"))
    assert (tmp_path / "new.npz").stat().st_size < 0.8 * (tmp_path / "old.npz").stat().st_size


def test_a_lost_or_cut_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    evaluation = Evaluation({}, "", {}, tasks_file="tasks/a.npz")
    with pytest.raises(EngramError, match=r"tasks/a\.npz cannot be read \(No such file or directory\): restore them"):
        correctness(evaluation, tmp_path)
    write_tasks(tmp_path / "tasks/a.npz", np.ones((3, 2, 1)))
    assert correctness(evaluation, tmp_path).mean() == 1
    (tmp_path / "tasks/a.npz").write_bytes(b"PK cut")
    with pytest.raises(EngramError, match=r"tasks/a\.npz cannot be read"):
        correctness(evaluation, tmp_path)


def test_an_evaluation_is_readable_with_its_whole_file_or_without_any(tmp_path: Path) -> None:
    evaluation = Evaluation({}, "", {}, tasks_file="a.npz")
    assert readable_tasks(Evaluation({}, "", {}), tmp_path) and not readable_tasks(evaluation, tmp_path)
    write_tasks(tmp_path / "a.npz", np.ones((2, 1, 1), np.float32))
    assert readable_tasks(evaluation, tmp_path)
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:40])
    assert not readable_tasks(evaluation, tmp_path)


def test_results_that_announce_more_than_is_admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tasks(tmp_path / "tasks.npz", np.zeros((2000, 8, 1), np.float32))
    monkeypatch.setattr("engram.ledger.per_task.MOST_BYTES", 1000)
    with pytest.raises(EngramError, match=r"cannot be read \(it announces \d+ bytes in a file of \d+\)"):
        correctness(Evaluation({}, "", {}, tasks_file="tasks.npz"), tmp_path)


QUICK = "cml_bgnn/glyphs_quick_class_order"


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


def test_a_record_that_does_not_say_what_it_starts_from_is_left_out(tmp_path: Path) -> None:
    recipe = load_recipe(QUICK)
    started = replace(recipe, backbone_weights="runs/stage_one")
    add_record(tmp_path, started, start={})
    add_record(tmp_path, replace(recipe, train=replace(recipe.train, teacher="runs/first")), start={}, number=4)
    add_record(tmp_path, QUICK, number=2, revision=7)
    add_record(tmp_path, started, start={}, version=1, number=3)  # from before digests were kept: known as such
    records, problems = trusted_records(tmp_path)
    assert [r.version for r in records] == [1]
    assert any("builds on runs/stage_one but does not say by which digest" in p for p in problems)
    assert any("builds on runs/first but does not say by which digest" in p for p in problems)
    assert any("revision 7 of cml_bgnn but this Engram knows" in p for p in problems)


def test_a_record_without_revision_is_told(tmp_path: Path) -> None:
    path = record_path(tmp_path, add_record(tmp_path, QUICK))
    raw = json.loads(path.read_text())
    del raw["revision"], raw["seal"]
    path.write_text(json.dumps(raw))
    with pytest.raises(EngramError, match="it does not say its revision"):
        read_record(path)


def test_seeds_change_the_digest_but_not_that_without_them() -> None:
    recipe = load_recipe(QUICK)
    other = with_seed(recipe, 5)
    assert recipe.digest != other.digest
    assert digest_of(recipe.to_dict(), True) == digest_of(other.to_dict(), True) != recipe.digest
