"""What is recorded, what is missing, how long it takes, and the commands that follow; nothing is run."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from subprocess import run

import pytest
from rich.console import Console
from study_ledger import add_record, write_study

from engram.errors import EngramError
from engram.reproduction.carry_out import check_budget, open_studies, reproduce
from engram.reproduction.display import duration, show_plan
from engram.reproduction.place import Place
from engram.reproduction.plan import Plan, Planned, make_plan
from engram.reproduction.process import environment
from engram.reproduction.steps import commands_of
from engram.studies import load_study

LEAK = "cml_bgnn/glyphs_leak_class_order"
CPU = {"device": "cpu, 2 threads"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    return Place(tmp_path / "ledger", tmp_path / "runs", None, "cpu")


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


def test_recorded_runs_are_matched_and_step_times_are_measured_ones(place: Place) -> None:
    training = {"iterations": 200, "seconds": 60.0}
    add_record(place.results, LEAK, training=training, **CPU)
    add_record(place.results, LEAK, ask={"slot_order": "shuffled"}, number=1, **CPU)
    plan = leak_plan(place)
    assert [p.state for p in plan.jobs] == ["recorded", "to run", "to run"]
    shuffled = plan.to_run[0]  # the same method and backbone: 0.3 s a step over its 200 steps
    assert shuffled.seconds == pytest.approx(60 + 2 * 8 + 30) and shuffled.note == "from steps of this method"
    assert leak_plan(Place(place.results, place.runs, None, "cuda")).to_run[0].seconds is None  # no time of a GPU


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


def test_commands_of_a_head_on_frozen_features(place: Place) -> None:
    jobs = make_plan([load_study("memory_stream_named")], "short", (), place).jobs
    head = next(p for p in jobs if p.job.recipe.name == "cml_bgnn/mini_5w1s_content_named")
    assert head.state == "no data" and "miniimagenet needs its files" in head.note
    memory = next(p for p in jobs if p.job.recipe.name == "proto_memory/mini_5w1s_frozen")
    commands = commands_of(memory, place)
    assert commands[0][:2] == ("features", "weights/stage_one.mini_conv4") and not memory.train
    assert [c[0] for c in commands[1:]] == ["bench"] * 3
    assert commands[1][:4] == ("bench", "proto_memory", "--recipe", "proto_memory/mini_5w1s_frozen")
    encoders = [p.job.recipe.name for p in jobs if p.job.recipe.method == "stage_one"]
    assert encoders == ["stage_one/mini_resnet12_wide"]  # its weights are not there, those of conv4 are in the box


def test_a_time_box_is_passed_on_and_counts_earlier_calls(place: Place) -> None:
    jobs = make_plan([load_study("order_leak_mini")], "short", (), place).jobs
    command = commands_of(jobs[0].__class__(**{**vars(jobs[0]), "train": True}), place)[0]
    assert command[command.index("--max-minutes") + 1] == "4" and "--whole-run" in command


def test_a_budget_too_small_for_one_run_is_refused(place: Place) -> None:
    add_record(place.results, "cml_bgnn/glyphs_leak", seed=5, training={"iterations": 200, "seconds": 600.0}, **CPU)
    plan = leak_plan(place)
    with pytest.raises(
        EngramError, match="a budget of 2 minutes is too small for one run: the shortest missing one, cml"
    ):
        check_budget(plan, 2.0)
    with pytest.raises(EngramError, match="budget = -1 minutes but it must be above 0"):
        check_budget(plan, -1.0)
    check_budget(plan, 20.0)
    check_budget(plan, None)


def test_records_left_out_and_recipes_not_there_are_shown(place: Place) -> None:
    add_record(place.results, LEAK)
    (place.results / "broken.json").write_text("{")
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    show_plan(make_plan([load_study("order_leak"), load_study("table2")], "paper", (), place), console, "local")
    text = console.export_text()
    assert "broken.json" in text and "no data: tieredimagenet needs its files" in " ".join(text.split())
    assert [duration(s) for s in (5, 300, 9000, 400_000)] == ["5 s", "5 min", "2.5 h", "4.6 days"]


def test_bad_calls_get_one_sentence(place: Place, tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="there is no study 'tabel1'; did you mean 'table1'"):
        reproduce(["tabel1"], dry_run=True)
    with pytest.raises(EngramError, match="which study"):
        open_studies([])
    row = 'label = "mine"\ncells = [{ column = "1-shot", recipe = "proto_net/glyphs_quik" }]'
    mine = write_study(tmp_path / "mine.toml", row)
    with pytest.raises(EngramError, match="there is no recipe 'proto_net/glyphs_quik'; did you mean"):
        reproduce([str(mine)], dry_run=True)
    with pytest.raises(EngramError, match="seeds = 1, 1 but they must be different"):
        reproduce(["table1"], seeds=(1, 1), dry_run=True)


def test_a_dry_run_of_all_is_fast_and_needs_no_torch(place: Place) -> None:
    code = (
        "import sys, time, engram.reproduction.carry_out as r; r.reproduce(['all'], dry_run=True); "
        "print('torch' in sys.modules, time.process_time())"
    )
    began = time.monotonic()
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    torch, seconds = done.stdout.split()[-2:]
    assert torch == "False" and float(seconds) < 3, (done.stdout, time.monotonic() - began)
