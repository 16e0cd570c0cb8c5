import json
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_source import source

from engram.data.store import Store, verify
from engram.data.writing import build
from engram.errors import EngramError


def test_gather_keeps_the_index_shape(tmp_path: Path) -> None:
    store = build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    images = store.gather(torch.tensor([[0, 3], [8, 11]]))
    assert images.shape == (2, 2, 3, 4, 4)
    assert images[1, 1, 0, 0, 0] == 23


def test_verify_notices_a_changed_pixel(tmp_path: Path) -> None:
    build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    images = np.load(tmp_path / "s" / "images.npy")
    images[0, 0, 0, 0] += 1
    np.save(tmp_path / "s" / "images.npy", images)
    assert not verify(Store.open(tmp_path / "s"))


@pytest.mark.parametrize("damage", ["truncate", "missing", "json"])
def test_a_damaged_store_is_named_with_the_way_out(tmp_path: Path, damage: str) -> None:
    build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    images = tmp_path / "s" / "images.npy"
    if damage == "truncate":
        images.write_bytes(images.read_bytes()[:-100])
    elif damage == "missing":
        images.unlink()
    else:
        (tmp_path / "s" / "store.json").write_text("{")
    with pytest.raises(EngramError, match="cannot be opened .* delete the folder"):
        Store.open(tmp_path / "s")


def test_a_store_of_a_newer_version_is_refused_with_both_numbers(tmp_path: Path) -> None:
    build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    path = tmp_path / "s" / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(EngramError, match="version 99 but this Engram reads up to 1"):
        Store.open(tmp_path / "s")


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(EngramError, match="add up to 4 but there are 5"):
        Store.from_arrays(np.zeros((5, 2), np.uint8), [2, 2])


def test_float_features_are_a_store_too() -> None:
    store = Store.from_arrays(np.arange(12, dtype=np.float32).reshape(6, 2), [3, 3])
    assert store.image_shape == (2,) and store.gather(torch.tensor([5])).tolist() == [[10.0, 11.0]]


def test_some_classes_are_a_store_of_their_own() -> None:
    store = Store.from_arrays(np.arange(12, dtype=np.float32).reshape(6, 2), [2, 1, 3], class_names=["a", "b", "c"])
    part = store.classes((1, 3))
    assert part.info.class_names == ("b", "c") and part.class_sizes.tolist() == [1, 3] and part.digest == store.digest
    assert torch.equal(part.gather(torch.tensor([0, 3])), store.images[[2, 5]])
    assert store.classes(()) is store and torch.equal(store.classes([0, 3]).images, store.images)


@pytest.mark.parametrize("ends", [(0,), (2, 2), (-1, 2), (1, 4), (0, 1, 2)])
def test_classes_that_are_not_there_are_told(ends: tuple[int, ...]) -> None:
    store = Store.from_arrays(np.zeros((6, 2), np.float32), [2, 2, 2], "toy", "train")
    with pytest.raises(EngramError, match=r"train_classes = \[.*\] but toy train has 3 classes: .* such as \[0, 1\]"):
        store.classes(ends)


def test_a_store_on_disk_is_read_where_its_rows_lie(tmp_path: Path) -> None:
    store = build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    part, memory = store.classes((1, 3)), store.to("cpu")
    assert store.file and part.file and memory.file is None and store.n_bytes == 12 * 48
    assert torch.equal(part.gather(torch.tensor([0, 8])), memory.images[[3, 11]])
    assert torch.equal(part.to("cpu").images, memory.images[3:])
    for rows in ([12], [-1]):
        with pytest.raises(IndexError):
            store.gather(torch.tensor(rows))
