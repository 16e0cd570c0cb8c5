"""Where checkpoints lie: a person's own folders come before the box."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.models.checkpoint import load
from engram.places import WEIGHTS, located, remove_own


def test_weights_of_a_recipe_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = Path("weights/stage_one.mini_conv4")
    assert located(name) == WEIGHTS / "stage_one.mini_conv4"
    assert load(name).state.method == "stage_one"
    name.mkdir(parents=True)  # a person's own folder of that name comes first
    assert located(name) == name
    assert located(Path("weights/none")) == Path("weights/none")


def test_only_files_of_ours_are_deleted(tmp_path: Path) -> None:
    for name in ("own/a.npy", "mixed/a.npy", "mixed/notes.txt", "far/a.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "far")
    for name in ("own", "mixed", "link", "nowhere"):
        remove_own(tmp_path / name, ("*.npy",))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["far/a.npy", "mixed/notes.txt"] and not (tmp_path / "own").exists()
