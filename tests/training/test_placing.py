"""Where images go: to the device within the budget, and what is a size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, assert_same_end, changed, go, make_stores, on_disk

from engram.data.store import Store
from engram.errors import EngramError
from engram.recipes.protocols import training_protocol, training_ranges
from engram.recipes.schema import Recipe
from engram.training.batches import BatchSource
from engram.training.placing import DEPTH, Room, free_memory, read_size

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


GRAPH = changed(method="cml_bgnn", method_settings={"width": 8, "n_layers": 2})
RANGES = replace(RECIPE, data=replace(RECIPE.data, stream_length_range=(1, 3), n_query_range=(1, 3)))


def source(recipe: Recipe, store: Store) -> BatchSource:
    data = recipe.data
    return BatchSource(
        store, training_protocol(recipe), data.augmentation, CPU, data.class_batch, training_ranges(recipe)
    )


@pytest.mark.parametrize(
    "recipe", [RECIPE, GRAPH, STAGE_ONE, RANGES], ids=lambda r: f"{r.method}{bool(r.data.n_query_range)}"
)
def test_weights_are_those_of_a_training_from_memory(recipe: Recipe, tmp_path: Path) -> None:
    memory = go(tmp_path / "memory", recipe)
    disk = go(tmp_path / "disk", recipe, stores=on_disk(tmp_path), store_memory="0")
    assert disk.training["from_disk"] and not memory.training["from_disk"]
    assert_same_end(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.parametrize("recipe", [RECIPE, STAGE_ONE], ids=lambda r: r.method)
def test_a_stop_changes_nothing_though_later_steps_were_drawn(recipe: Recipe, tmp_path: Path) -> None:
    stores = on_disk(tmp_path)
    go(tmp_path / "whole", recipe)
    go(tmp_path / "disk", recipe, stores=stores, store_memory="0", max_iterations=3)
    go(tmp_path / "memory", recipe, max_iterations=3)
    go(tmp_path / "disk", recipe, resume=True)  # from memory where it was from disk, and the other way round
    go(tmp_path / "memory", recipe, stores=stores, store_memory="0", resume=True)
    for folder in ("disk", "memory"):
        assert_same_end(tmp_path / "whole", tmp_path / folder)


def test_images_of_a_step_lie_where_those_of_the_last_did(tmp_path: Path) -> None:
    """A captured step reads them from there, and nobody else's; the state is that of the steps that were given."""
    memory, disk = source(STAGE_ONE, make_stores()["train"]), source(STAGE_ONE, on_disk(tmp_path)["train"])
    assert memory.ahead is None and disk.ahead is not None
    places = set()
    for _ in range(2 * DEPTH):
        first, second = memory.draw(0.0), disk.draw(0.0)
        assert disk.tasks_state == memory.tasks_state
        assert all(torch.equal(a.query, b.query) for a, b in zip(first.episodes, second.episodes, strict=True))
        assert first.class_batch and second.class_batch and torch.equal(first.class_batch[0], second.class_batch[0])
        places.add(disk.at_hand.images.data_ptr())
        assert len(disk.at_hand.images) == 2 * 2 * 9 + 16 and disk.at_hand.file is None
    assert len(places) == 1
    assert disk.tasks.bit_generator.state != disk.tasks_state, "drawn ahead"


def test_a_store_cut_short_under_way_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    stores = on_disk(tmp_path)
    with (tmp_path / "train" / "images.npy").open("r+b") as stream:
        stream.truncate(500)
    with pytest.raises(EngramError, match="train/images.npy has 500 bytes where .* are needed: it was cut short"):
        go(tmp_path / "run", stores=stores, store_memory="0")
