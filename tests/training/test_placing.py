"""Where images go: to the device within the budget, and what is a size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_run import on_disk

from engram.errors import EngramError
from engram.training.placing import Room, free_memory, read_size

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1500", 1500), ("2GB", 2 * 10**9), ("1.5 mb", 1500000), ("3GiB", 3 * 2**30)]
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "2 bytes", "GB", "nan"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(EngramError, match=f"store_memory = '{text}' is no size: .* such as 2GB"):
        Room(CPU, text)


def test_stores_are_placed_as_long_as_there_is_room(tmp_path: Path) -> None:
    stores, size = on_disk(tmp_path), 30 * 100
    room = Room(CPU, str(2 * size - 1))
    train, val = room.place(stores["train"]), room.place(stores["val"])
    assert train.file is None and torch.equal(train.images, stores["train"].images)
    assert val is stores["val"] and val.file is not None
    assert room.place(train) is train, "what is there costs nothing"
    assert room.left == size - 1


def test_half_of_what_is_free_is_the_default() -> None:
    assert 0.2 < Room(CPU).left / (free_memory(CPU) / 2) < 5
