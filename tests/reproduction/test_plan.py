"""What is recorded and what is missing; nothing is run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from study_ledger import add_record

from engram.recipes import load_recipe
from engram.reproduction.local import commands_of
from engram.reproduction.plan import Place, Plan, Planned, checkpoint_state, make_plan, why_no_data
from engram.studies import load_study
from engram.studies.jobs import Job

JOB = Job(load_recipe("proto_net/glyphs_quick"), ((),), ("mine",))


def test_a_run_has_a_folder_of_its_own_or_the_one_others_look_for(place: Place) -> None:
    assert place.folder(JOB) == place.runs / JOB.key
    assert place.folder(replace(JOB, folder="runs/stage_one")) == Path("runs/stage_one")
    head = replace(JOB, recipe=replace(JOB.recipe, backbone_weights="weights/stage_one.mini_conv4"))
    assert place.features(head) == place.runs / "features" / "stage_one.mini_conv4"


def test_the_newest_checkpoint_counts_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    assert checkpoint_state(tmp_path) is None
    for number in (100, 20):
        (tmp_path / f"step-{number:08d}").mkdir()
        (tmp_path / f"step-{number:08d}" / "state.json").write_text(f'{{"iteration": {number}}}')
    assert checkpoint_state(tmp_path) == {"iteration": 100}
    for damaged in ('{"iterat', "[1]", '{"iteration": "100"}', '{"iteration": 1, "seconds": []}', "[" * 100_000):
        (tmp_path / "step-00000100" / "state.json").write_text(damaged)
        assert checkpoint_state(tmp_path) is None


@pytest.mark.parametrize(("device", "on_gpu"), [("cpu", False), ("cuda", True), ("cuda:1", True)])
def test_a_named_device_is_believed(device: str, on_gpu: bool) -> None:
    assert Place(device=device).on_gpu is on_gpu


def test_why_there_is_no_data_is_one_clause(tmp_path: Path) -> None:
    assert why_no_data("glyphs", None) == ""
    assert why_no_data("miniimagenet", None) == "miniimagenet needs its files"
    (tmp_path / "other").touch()
    assert why_no_data("miniimagenet", tmp_path) == f"no miniimagenet in {tmp_path}"


LEAK = "cml_bgnn/glyphs_leak_class_order"
CPU = {"device": "cpu, 2 threads"}


def leak_plan(place: Place, seeds: tuple[int, ...] = ()) -> Plan:
    return make_plan([load_study("order_leak")], "short", seeds, place)


def test_an_empty_ledger_misses_everything_and_knows_no_times(place: Place) -> None:
    plan = leak_plan(place)
    assert [p.state for p in plan.jobs] == ["to run"] * 3 and plan.seconds == 0
    assert all(p.seconds is None and "time unknown" in p.note for p in plan.jobs)


def test_only_conflicts_between_runs_that_the_plan_asks_for_are_told(place: Place) -> None:
    for number, accuracy in enumerate((0.6, 0.7)):
        add_record(place.results, "proto_net/glyphs_quick", accuracy, number=number)
    assert not leak_plan(place).problems
    for number, accuracy in enumerate((0.6, 0.7), start=2):
        add_record(place.results, LEAK, accuracy, number=number)
    (sentence,) = leak_plan(place).problems
    assert LEAK in sentence and "the newer one counts" in sentence


def test_a_missing_bench_of_a_lost_checkpoint_means_training_again_and_asking_everything(place: Place) -> None:
    add_record(place.results, LEAK, **CPU)
    planned = leak_plan(place).jobs[0]
    assert planned.train and planned.asks == ((), (("slot_order", "shuffled"),))


def test_a_checkpoint_is_gone_on_with_or_only_asked(place: Place) -> None:
    record = add_record(place.results, LEAK, **CPU)
    planned = leak_plan(place).jobs[0]
    step = place.folder(planned.job) / "step-00000200"
    step.mkdir(parents=True)
    state = {"iteration": 200, "seconds": 50.0, "run_id": record.run_id}
    (step / "state.json").write_text(json.dumps(state))
    finished = leak_plan(place).jobs[0]
    assert not finished.train and finished.asks == ((("slot_order", "shuffled"),),)
    (bench,) = [c for c in commands_of(finished, place) if c[0] == "bench"]
    assert bench[:4] == ("bench", str(place.folder(planned.job)), "--slot-order", "shuffled")
    (step / "state.json").write_text(json.dumps({**state, "iteration": 100}))
    resumed = leak_plan(place).jobs[0]
    assert resumed.train and "goes on from iteration 100" in resumed.note
    train = commands_of(resumed, place)[0]
    assert train[:2] == ("train", LEAK) and "--resume" in train and "--seed" in train


def test_a_run_cut_short_is_trained_on_at_scale_paper(place: Place) -> None:
    recipe = "cml_bgnn/glyphs_5w1s_public_class_order"
    add_record(place.results, recipe, training={"iterations": 100, "seconds": 9.0}, **CPU)

    def first() -> Planned:
        return make_plan([load_study("order_leak")], "paper", (111,), place).jobs[0]

    step = place.folder(first().job) / "step-00000100"
    step.mkdir(parents=True)
    (step / "state.json").write_text(json.dumps({"iteration": 100, "seconds": 9.0}))
    assert first().job.recipe.name == recipe and first().train and "goes on from iteration 100" in first().note
