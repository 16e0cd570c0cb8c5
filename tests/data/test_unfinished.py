"""What a killed build leaves: gone on with where it can be believed, removed where not; a living one is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from killing import disk_full_at, killed_at
from toy_source import source

from engram.data import writing
from engram.data.formats.form import SplitSource
from engram.data.store import Store, verify
from engram.data.unfinished import NOTE, begin
from engram.data.writing import build
from engram.errors import EngramError

ROW = 3 * 4 * 4


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two images, each noted."""
    monkeypatch.setattr(writing, "BLOCK_BYTES", 2 * ROW)
    monkeypatch.setattr(writing, "NOTE_BYTES", 2 * ROW)


def made(folder: Path, given: SplitSource | None = None, resume: bool = True) -> Store:
    return build(folder / "s", "toy", "train", given or source(), "made here", quiet=True, resume=resume)


def stopped(after: int) -> SplitSource:
    """A source that is interrupted from the keyboard after so many images."""
    seen = 0

    def read(c: int) -> Iterator[np.ndarray]:
        nonlocal seen
        for image in source().read_class(c):
            if seen == after:
                raise KeyboardInterrupt
            seen += 1
            yield image

    return replace(source(), read_class=read)


def watched(seen: list[int]) -> SplitSource:
    def read(c: int) -> Iterator[np.ndarray]:
        seen.append(c)
        return source().read_class(c)

    return replace(source(), read_class=read)


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def interrupt(folder: Path, after: int = 9) -> Path:
    with pytest.raises(KeyboardInterrupt):
        made(folder, stopped(after))
    assert not (folder / "s").exists(), "half a store is none"
    (left,) = hidden(folder)
    return left


def test_an_interrupted_build_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, seen = made(tmp_path / "whole"), list[int]()
    left = interrupt(tmp_path)
    assert {path.name for path in left.iterdir()} == {"images.npy", NOTE}
    again = made(tmp_path, watched(seen))
    assert seen == [2], "eight of twelve images were there: all of the first two classes"
    assert again.digest == whole.digest and verify(again) and not hidden(tmp_path)


@pytest.mark.parametrize("harm", ["bytes", "cut", "note", "other classes", "not asked to"])
def test_what_cannot_be_believed_begins_anew(tmp_path: Path, harm: str) -> None:
    left, seen = interrupt(tmp_path), list[int]()
    images = (left / "images.npy").read_bytes()
    if harm == "bytes":
        (left / "images.npy").write_bytes(images[:150] + b"?" + images[151:])
    elif harm == "cut":
        (left / "images.npy").write_bytes(images[:200])
    elif harm == "note":
        (left / NOTE).write_text("{")
    given = replace(watched(seen), class_names=("a", "b", "d")) if harm == "other classes" else watched(seen)
    store = made(tmp_path, given, resume=harm != "not asked to")
    assert seen == [0, 1, 2] and verify(store) and not hidden(tmp_path)


def test_every_kill_leaves_nothing_that_the_next_build_does_not_clear_away(tmp_path: Path) -> None:
    digest, kills = made(tmp_path / "whole").digest, 0
    while killed_at(kills + 1, partial(made, tmp_path / str(kills))):
        assert made(tmp_path / str(kills)).digest == digest
        assert [path.name for path in (tmp_path / str(kills)).iterdir()] == ["s"], f"operation {kills + 1}"
        kills += 1
    assert kills > 20


def test_a_store_that_a_killed_build_had_moved_aside_is_put_back_before_the_next(tmp_path: Path) -> None:
    old = made(tmp_path)
    (tmp_path / "s").rename(tmp_path / ".s.0123456789ab.replaced")
    with pytest.raises(EngramError, match="gave 4 images"):
        made(tmp_path, source(given=(3, 4, 4)))
    assert Store.open(tmp_path / "s").digest == old.digest and not hidden(tmp_path)


def test_a_living_build_and_strange_folders_are_left_alone(tmp_path: Path) -> None:
    living = begin(tmp_path / "s", resume=True)
    (tmp_path / ".s.notes").mkdir()
    made(tmp_path)
    assert {path.name for path in hidden(tmp_path)} == {living.folder.name, ".s.notes"}
    living.images.close()
    made(tmp_path)
    assert [path.name for path in hidden(tmp_path)] == [".s.notes"]


def test_a_full_disk_is_one_sentence_and_leaves_its_room(tmp_path: Path) -> None:
    tmp_path.joinpath("other").write_text("")
    for place in range(1, 100):
        try:
            with disk_full_at(place) as happened:
                made(tmp_path)
        except EngramError as error:
            assert "s could not be written (No space left on device): nothing was left behind" in str(error)
            assert [path.name for path in tmp_path.iterdir()] == ["other"], f"operation {place}"
        if not happened:
            break
    assert place > 20 and (tmp_path / "s").is_dir()


def test_a_disk_that_knows_no_locks_is_written_to_and_its_leftovers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(37, "No locks available")

    left = interrupt(tmp_path)
    monkeypatch.setattr("fcntl.flock", unknown)
    assert verify(made(tmp_path)) and hidden(tmp_path) == [left], "another machine may be at it"
