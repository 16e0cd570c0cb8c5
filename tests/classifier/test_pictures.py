"""The files people really have: huge, in odd colours, animated, or no pictures at all."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from engram.classifier.pictures import as_bytes, batches, side_by_side
from engram.errors import EngramError

SHAPE = (3, 84, 84)


def read(path: Path) -> np.ndarray:
    return as_bytes(path, str(path), SHAPE)


def test_a_photo_of_40_megapixels(tmp_path: Path) -> None:
    Image.new("RGB", (8000, 5000), (200, 10, 60)).save(tmp_path / "big.jpg")
    assert np.abs(read(tmp_path / "big.jpg").mean((1, 2)) - (200, 10, 60)).max() < 3


def test_more_pixels_than_memory_should_hold(tmp_path: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(tmp_path / "bomb.png")  # kilobytes that unfold to 100 million pixels
    with pytest.raises(EngramError, match="too large .*10000 x 10000 = 100000000 pixels where 80000000"):
        read(tmp_path / "bomb.png")


def test_cmyk_and_animation(tmp_path: Path) -> None:
    Image.new("CMYK", (50, 40), (0, 255, 255, 0)).save(tmp_path / "print.jpg")
    red, green, blue = read(tmp_path / "print.jpg").mean((1, 2))
    assert red > 200 and green < 60 and blue < 60
    frames = [Image.new("RGB", (30, 30), colour) for colour in ("blue", "red")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert read(tmp_path / "moving.gif").mean((1, 2)).argmax() == 2  # the first frame


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("paper.pdf", b"%PDF-1.7 and so on", "is not an image, whatever its name says"),
        ("script.jpg", b"#!/bin/sh\nrm -rf /\n", "is not an image"),
        ("bomb.png", b"PK\x03\x04" + b"0" * 100, "is not an image"),
        ("empty.png", b"", r"is empty \(0 bytes\)"),
    ],
)
def test_what_is_no_picture(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EngramError, match=sentence):
        read(tmp_path / name)


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to(tmp_path / "b.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    with pytest.raises(EngramError, match=r"a\.png cannot be read \(Too many levels of symbolic links\)"):
        read(tmp_path / "a.png")


def test_batches_tell_what_they_leave_out(tmp_path: Path) -> None:
    good = [np.full((20, 20, 3), value, np.uint8) for value in (10, 20, 30)]
    told: list[tuple[int, str]] = []
    parts = list(batches([good[0], "none.png", *good[1:]], SHAPE, 2, lambda place, why: told.append((place, why))))
    assert [len(part) for part in parts] == [1, 2] and torch.cat(parts)[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert [place for place, _ in told] == [1] and "none.png cannot be read" in told[0][1]


def test_threads_keep_the_order_and_the_filters_of_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    before = list(warnings.filters)

    def slow(number: int) -> int:
        with warnings.catch_warnings():  # as decoding does: it puts back what another thread may have set
            warnings.simplefilter("ignore")
            time.sleep(0.02 if number % 3 == 0 else 0.001)
        return number

    assert side_by_side(slow, range(12)) == list(range(12)) and warnings.filters == before
