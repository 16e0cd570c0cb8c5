"""A whole run: what its record holds, and that a failed one is recorded too."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import RECIPE, Watched, make_stores, on_disk

from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import read_ledger, read_record, read_tasks
from engram.models.checkpoint import load
from engram.recipes.protocols import protocols_of
from engram.recipes.schema import Recipe
from engram.training.experiment import TrainedRun, adapt, train

SMALL = replace(RECIPE, test=replace(RECIPE.test, n_query=(1, 2), n_sequences=5))


def stores() -> dict[str, Store]:
    made = make_stores()
    test = made["val"]
    made["test"] = Store(test.images, test.offsets, replace(test.info, split="test"))
    return made


def go(tmp_path: Path, recipe: Recipe = SMALL, **arguments: Any) -> TrainedRun:
    given = {"out": tmp_path / "run", "results": tmp_path / "results", "device": "cpu", "progress": False}
    return train(recipe, **given | {"stores": stores()} | arguments)  # type: ignore[arg-type]


def test_what_a_record_holds(tmp_path: Path) -> None:
    run = go(tmp_path, note="a note", seed=7)
    record = read_record(run.record_file)
    assert (record.kind, record.status, record.method, record.seed) == ("train", "finished", "proto_net", 7)
    assert record.recipe["train"]["seed"] == 7 and record.recipe_digest == load(run.folder).state.recipe_digest
    assert record.run_id == load(run.folder).state.run_id and record.run_id in run.record_file.name
    assert record.note == "a note" and record.error == "" and record.seconds > 0
    assert record.training["weights"] == load(run.folder).digest() and len(record.training["weights"]) == 16
    assert record.commit and record.device.startswith("cpu") and {"python", "torch", "engram"} <= record.versions.keys()
    assert record.curves["iteration"] == [3, 6] and len(record.curves["validation_accuracy"]) == 2
    assert record.training["iterations"] == 6 and record.training["stopped_by"] == "iterations"
    assert record.training["card"]["title"] == "Prototypical Net"
    assert [e.protocol["n_query"] for e in record.evaluations] == [1, 2]
    digest = stores()["test"].digest
    assert all(e.protocol["dataset_digest"] == digest and e.metrics["accuracy"] > 0 for e in record.evaluations)
    assert not run.method.training


@pytest.mark.parametrize("predictions", [False, True])
def test_per_task_results_lie_beside_the_record(tmp_path: Path, predictions: bool) -> None:
    run = go(tmp_path, predictions=predictions)
    assert len(run.record.evaluations) == 2
    for evaluation in run.record.evaluations:
        assert evaluation.tasks_file.startswith("tasks/" + run.record_file.stem)
        correct = read_tasks(run.record_file.parent / evaluation.tasks_file)
        assert correct.shape == (5, 2, 1)
        assert correct.mean() == pytest.approx(evaluation.metrics["accuracy"], abs=1e-3)
        with np.load(run.record_file.parent / evaluation.tasks_file) as tasks:
            assert ("probabilities" in tasks) is predictions


def test_the_best_weights_are_the_ones_tested(tmp_path: Path) -> None:
    run = go(tmp_path)
    best = load(run.folder, "best").tensors("weights")
    assert all((value == best[name]).all() for name, value in run.method.state_dict().items())


def test_the_same_answers_with_all_images_on_disk(tmp_path: Path) -> None:
    disk = on_disk(tmp_path / "stores")
    test = disk["val"]
    disk["test"] = Store(test.images, test.offsets, replace(test.info, split="test"), test.file)
    memory, run = go(tmp_path), go(tmp_path / "disk", stores=disk, store_memory="0")
    assert run.record.training["from_disk"] and not memory.record.training["from_disk"]
    assert [e.metrics["accuracy"] for e in run.record.evaluations] == [
        e.metrics["accuracy"] for e in memory.record.evaluations
    ]
    with pytest.raises(EngramError, match="store_memory = 'lots' is no size"):
        go(tmp_path / "lots", store_memory="lots")


def test_without_a_test_there_are_no_evaluations(tmp_path: Path) -> None:
    assert go(tmp_path, test=False).record.evaluations == []


def test_a_split_that_nobody_asks_about_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[list[str]] = []

    def opening(data: object, splits: list[str], *rest: object) -> dict[str, Store]:
        wanted.append(splits)
        return stores()

    monkeypatch.setattr("engram.training.experiment.open_stores", opening)
    on_test = replace(SMALL, train=replace(SMALL.train, select_on_test=True))
    for number, (recipe, test) in enumerate([(SMALL, False), (SMALL, True), (on_test, False)]):
        go(tmp_path / str(number), recipe, stores=None, test=test)
    assert wanted == [["train", "val"], ["train", "val", "test"], ["train", "val", "test"]]


def test_a_failed_run_is_recorded_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "before_loss", staticmethod(lambda step: float("nan")))
    with pytest.raises(EngramError, match="the loss is not finite at step 1"):
        go(tmp_path, replace(SMALL, method="toy_run:Watched"), note="tried")
    (record,), problems = read_ledger(tmp_path / "results")
    assert not problems
    assert (record.status, record.method, record.note) == ("failed", "toy_run:Watched", "tried")
    assert record.error.startswith("the loss is not finite at step 1") and record.evaluations == []
    assert record.recipe_digest == replace(SMALL, method="toy_run:Watched").digest and record.seconds > 0


def test_the_test_protocol_is_checked_before_training(tmp_path: Path) -> None:
    impossible = replace(SMALL, test=replace(SMALL.test, n_way=9))
    with pytest.raises(EngramError, match="9 ways were asked for but toy test offers 6 classes"):
        go(tmp_path, impossible)
    assert not (tmp_path / "run").exists()
    with pytest.raises(EngramError, match="toy val offers 6 classes"):  # validation asks the same ways
        go(tmp_path, impossible, test=False)


def test_a_run_in_two_calls_has_two_records(tmp_path: Path) -> None:
    longer = replace(SMALL, train=replace(SMALL.train, iterations=40, validate_every=1))
    first = go(tmp_path, longer, max_minutes=1e-5, test=False)
    assert first.record.training["stopped_by"] == "max_minutes" and first.record.training["iterations"] < 40
    second = go(tmp_path, longer, resume=True)
    assert second.record.training["iterations"] == 40
    assert second.record.training["resumed_from"] == first.record.run_id != second.record.run_id
    assert len(read_ledger(tmp_path / "results")[0]) == 2


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    changed = adapt(SMALL, {"seed": 3, "iterations": None, "backbone": "conv64", "dataset": "glyphs"})
    assert changed.train == replace(SMALL.train, seed=3)
    assert (changed.backbone, changed.data) == ("conv64", replace(SMALL.data, dataset="glyphs"))
    assert changed.test == SMALL.test and changed.method == SMALL.method
    assert [p.dataset for p in protocols_of(changed)] == ["glyphs", "glyphs"]
    narrow = replace(SMALL, backbone="conv32", backbone_settings={"width": 8})
    assert adapt(narrow, {"seed": 3}).backbone_settings == {"width": 8}
    assert adapt(narrow, {"backbone": "conv4"}).backbone_settings == {}  # another backbone has other keys


def test_bf16_on_a_cpu_only_where_the_call_asks_for_it(tmp_path: Path) -> None:
    recipe = replace(SMALL, train=replace(SMALL.train, precision="bf16"))
    for name, asked, used in (("a", None, "fp32"), ("b", "bf16", "bf16"), ("c", "fp32", "fp32")):
        run = go(tmp_path / name, recipe, test=False, **({"precision": asked} if asked else {}))
        assert run.record.training["precision"] == used


def test_what_needs_no_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="'chance' has nothing to train: use engram bench chance"):
        go(tmp_path, method="chance")


def test_overrides_are_checked_too() -> None:
    for overrides, sentence in (({"seed": -1}, "seed = -1"), ({"iterations": 0}, "iterations = 0 but at least 1")):
        with pytest.raises(EngramError, match=sentence):
            adapt(SMALL, overrides)


def test_test_protocols_say_how_the_method_normalises(tmp_path: Path) -> None:
    assert {p.batch_norm for p in protocols_of(SMALL)} == {"running"}
    assert {p.batch_norm for p in protocols_of(SMALL, batch_norm="none")} == {"none"}
    run = go(tmp_path, replace(SMALL, method="toy_run:ByTask"))
    assert {e.protocol["batch_norm"] for e in run.record.evaluations} == {"task"}


def test_a_full_disk_costs_the_per_task_results_and_not_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *arguments: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half a fi")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engram.evaluation.evaluate.write_tasks", full)
    run = go(tmp_path, note="a note")
    record = read_record(run.record_file)
    assert record.status == "finished" and record.accuracy == pytest.approx(run.results[0].accuracy)
    assert [e.tasks_file for e in record.evaluations] == ["", ""]
    assert record.note.startswith("a note; the per-task results") and "No space left on device" in record.note
    assert not list((tmp_path / "results/tasks").iterdir())


def test_a_tracker_hears_of_every_validation(tmp_path: Path) -> None:
    heard: list[tuple[int, float]] = []
    run = go(tmp_path, test=False, on_validation=lambda step, result: heard.append((step, result.accuracy)))
    curves = run.record.curves
    assert heard == list(zip(curves["iteration"], curves["validation_accuracy"], strict=True)) and len(heard) == 2


def test_results_are_read_at_a_glance(tmp_path: Path) -> None:
    run = go(tmp_path)
    metrics = run.record.evaluations[0].metrics
    assert (run.accuracy, run.interval) == (metrics["accuracy"], metrics["interval"])
    assert (run.results[0].accuracy, run.results[0].interval) == (run.accuracy, run.interval)
    figure = f"{100 * metrics['accuracy']:.2f} ± {100 * metrics['interval']:.2f} %"
    for shown in (run, run.record, run.results[0]):
        assert figure in repr(shown) and len(repr(shown)) < 250 and repr(shown).startswith(type(shown).__name__)
    untested = go(tmp_path / "untested", test=False)
    assert untested.accuracy is None and untested.interval is None and "%" not in repr(untested)
