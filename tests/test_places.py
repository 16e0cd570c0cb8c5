"""Where checkpoints lie: a person's own folders come before the box."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.models.checkpoint import load
from engram.places import WEIGHTS, located, model_folder


def test_weights_of_a_recipe_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = Path("weights/stage_one.mini_conv4")
    assert located(name) == WEIGHTS / "stage_one.mini_conv4"
    assert load(name).state.method == "stage_one"
    name.mkdir(parents=True)  # a person's own folder of that name comes first
    assert located(name) == name
    assert located(Path("weights/none")) == Path("weights/none")


def test_an_empty_name_is_no_folder() -> None:
    assert model_folder(".") == Path()
    for empty in ("", " "):
        with pytest.raises(EngramError, match="the name of the MODEL is empty"):
            model_folder(empty)
