"""What is recorded and what is missing; nothing is run."""

from __future__ import annotations

import json

from study_ledger import add_record

from engram.reproduction.place import Place
from engram.reproduction.plan import Plan, Planned, make_plan
from engram.reproduction.steps import commands_of
from engram.studies import load_study

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
