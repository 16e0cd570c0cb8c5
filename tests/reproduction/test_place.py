"""What lies where runs are made: folders, checkpoints, data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engram.recipes import load_recipe
from engram.reproduction.place import Place, checkpoint_state, why_no_data
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
    (tmp_path / "step-00000100" / "state.json").write_text('{"iterat')
    assert checkpoint_state(tmp_path) is None


@pytest.mark.parametrize(("device", "on_gpu"), [("cpu", False), ("cuda", True), ("cuda:1", True)])
def test_a_named_device_is_believed(device: str, on_gpu: bool) -> None:
    assert Place(device=device).on_gpu is on_gpu


def test_why_there_is_no_data_is_one_clause(tmp_path: Path) -> None:
    assert why_no_data("glyphs", None) == ""
    assert why_no_data("miniimagenet", None) == "miniimagenet needs its files"
    (tmp_path / "other").touch()
    assert why_no_data("miniimagenet", tmp_path) == f"no miniimagenet in {tmp_path}"
