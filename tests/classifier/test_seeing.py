"""A picture passes an encoder once; the cache is bounded and may be missing."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import class_folders, pictures
from fuzzing import limited
from PIL import Image

from engram.classifier import seeing
from engram.classifier.engine import Engine
from engram.classifier.opening import open_engine
from engram.classifier.seeing import lying_at, see_labelled, see_pictures
from engram.errors import EngramError, EngramWarning


@pytest.fixture
def engine() -> Engine:
    return open_engine("proto_net", "photographs", None, False, "cpu")


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures went through the encoder, call by call."""
    counts, see = [], Engine.see
    monkeypatch.setattr(Engine, "see", lambda self, images: counts.append(len(images)) or see(self, images))
    return counts


def test_the_second_time_costs_nothing(engine: Engine, passed: list[int], tmp_path: Path) -> None:
    files = sorted(class_folders(tmp_path / "x", 2).rglob("*.png"))
    first = see_pictures(engine, files)
    copy = tmp_path / "copy.png"
    copy.write_bytes(files[0].read_bytes())  # by content, not by name
    assert first is not None and torch.equal(see_pictures(engine, [*files, copy]), torch.cat([first, first[:1]]))
    assert passed == [6]
    arrays = pictures(1)[0]
    again = [see_pictures(engine, form) for form in (arrays, arrays, [Image.fromarray(a) for a in arrays])]
    assert torch.equal(again[0], again[1]) and torch.equal(again[0], again[2]) and passed == [6, 3, 3]


def test_a_pipe_and_an_endless_device_are_told_and_not_read(engine: Engine, tmp_path: Path) -> None:
    files = sorted(class_folders(tmp_path / "x", 1).rglob("*.png"))
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    left_out: dict[int, str] = {}
    with limited():
        seen = see_pictures(engine, [*files, tmp_path / "pipe.png", tmp_path / "endless.png"], left_out.__setitem__)
    assert seen is not None and len(seen) == len(files) and list(left_out) == [len(files), len(files) + 1]
    assert all("regular file" in why for why in left_out.values())


def test_a_folder_whose_name_is_no_text_is_seen(engine: Engine, tmp_path: Path) -> None:
    file = next(class_folders(tmp_path / "x", 1).rglob("*.png"))
    other = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.png"))
    other.write_bytes(file.read_bytes())
    items, labels, _ = see_labelled(engine, [other], ["a"])
    assert len(items) == 1 and labels == ["a"]


def test_another_encoder_sees_for_itself(engine: Engine, passed: list[int]) -> None:
    other = replace(engine, light_ink=True)
    assert other.digest != engine.digest
    images = pictures(1)[0]
    see_pictures(engine, images), see_pictures(other, images)
    assert passed == [3, 3]


def test_the_oldest_are_dropped(engine: Engine, passed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeing, "MOST", 4)
    images = pictures(3)[0]
    see_pictures(engine, images)
    see_pictures(engine, images[-4:])
    assert passed == [9]
    see_pictures(engine, images[:2])
    assert passed == [9, 2]


def test_without_a_cache_it_only_takes_longer(
    engine: Engine, passed: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file"))
    images = pictures(1)[0]
    assert torch.equal(see_pictures(engine, images), see_pictures(engine, images)) and passed == [3, 3]
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    (tmp_path / seeing.FILE).write_text("no database, whatever its name says")
    assert see_pictures(engine, images) is not None and passed == [3, 3, 3]


def test_bad_pictures_are_told_by_their_place(engine: Engine, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_text("no picture")
    good, told = pictures(1)[0], []
    items, labels, digests = see_labelled(
        engine, [good[0], bad, good[1]], ["a", "b", "c"], lambda *why: told.append(why)
    )
    assert len(items) == len(digests.unique()) == 2 and labels == ["a", "c"] and [place for place, _ in told] == [1]
    with pytest.raises(EngramError, match="none of the 1 pictures can be read; the first: .*bad.jpg"):
        see_labelled(engine, [bad], ["b"], lambda *why: None)
    with pytest.raises(EngramError, match="bad.jpg"):
        see_labelled(engine, [good[0], bad], ["a", "b"])


def test_photographs_shown_to_weights_of_drawings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    rng = np.random.default_rng(0)
    drawings = np.full((4, 40, 40), 250, np.uint8)
    drawings[:, 10:30, 18:22] = 20
    glyphs = open_engine("proto_net", "glyphs", None, False, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        see_pictures(glyphs, list(drawings))
    scenes = [np.asarray(Image.fromarray(rng.integers(0, 256, (4, 4), dtype=np.uint8)).resize((40, 40))) for _ in "123"]
    for _ in range(2):  # again where they come from the cache
        with pytest.warns(EngramWarning, match="look like photographs, but the weights learned from drawings"):
            see_pictures(glyphs, scenes)


def test_where_labelled_files_lie_as_they_were(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    files = sorted(class_folders(tmp_path / "x", 1).rglob("*.png"))
    digests = see_labelled(engine, files, ["a", "b", "c"])[2].tolist()
    assert lying_at([*digests, 7]) == dict(zip(digests, files, strict=True))
    files[0].write_bytes(files[1].read_bytes())
    files[1].unlink()
    assert lying_at(digests) == {digests[2]: files[2]}
    monkeypatch.setenv("ENGRAM_CACHE", str(files[2]))
    assert lying_at(digests) == {}, "no cache to be had"
