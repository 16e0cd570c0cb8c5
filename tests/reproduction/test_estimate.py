"""Times of runs, from steps that records measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from study_ledger import add_record

from engram.recipes import load_recipe
from engram.reproduction.estimate import images_per_step
from engram.reproduction.plan import Place, Plan, make_plan
from engram.studies import load_study

LEAK = "cml_bgnn/glyphs_leak_class_order"
CPU = {"device": "cpu, 2 threads"}


def leak_plan(place: Place, seeds: tuple[int, ...] = ()) -> Plan:
    return make_plan([load_study("order_leak")], "short", seeds, place)


def test_recorded_runs_are_matched_and_step_times_are_measured_ones(place: Place) -> None:
    training = {"iterations": 200, "seconds": 60.0}
    add_record(place.results, LEAK, training=training, **CPU)
    add_record(place.results, LEAK, ask={"slot_order": "shuffled"}, number=1, **CPU)
    plan = leak_plan(place)
    assert [p.state for p in plan.jobs] == ["recorded", "to run", "to run"]
    shuffled = plan.to_run[0]  # the same method and backbone: 0.3 s a step over its 200 steps
    assert shuffled.seconds == pytest.approx(60 + 2 * 8 + 30) and shuffled.note == "from steps of this method"
    assert leak_plan(Place(place.results, place.runs, None, "cuda")).to_run[0].seconds is None  # no time of a GPU


def test_images_of_a_step_are_those_of_all_its_tasks_and_of_base_classes() -> None:
    settings = load_recipe(LEAK).to_dict()
    data = {**settings["data"], "n_way": 5, "n_shot": 1, "n_query": 3, "stream_length": 10, "class_batch": 7}
    assert images_per_step({**settings, "data": data, "train": {**settings["train"], "sequences": 4}}) == 807


def test_steps_of_the_same_backbone_tell_something_and_those_of_another_nothing(place: Place) -> None:
    alike = replace(load_recipe(LEAK), name="egnn/alike", method="egnn", method_settings={})
    training = {"iterations": 200, "seconds": 60.0}
    add_record(place.results, replace(alike, backbone="resnet12"), training=training, **CPU)
    assert {p.seconds for p in leak_plan(place).to_run} == {None}
    add_record(place.results, alike, training=training, number=1, **CPU)
    assert {p.note for p in leak_plan(place).to_run} == {"from steps of this backbone"}
