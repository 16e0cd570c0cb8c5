"""The commands of a job, in order."""

from __future__ import annotations

from engram.reproduction.place import Place
from engram.reproduction.plan import make_plan
from engram.reproduction.steps import commands_of
from engram.studies import load_study


def test_commands_of_a_head_on_frozen_features(place: Place) -> None:
    jobs = make_plan([load_study("memory_stream_named")], "short", (), place).jobs
    head = next(p for p in jobs if p.job.recipe.name == "content_memory/mini_5w1s_named")
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
