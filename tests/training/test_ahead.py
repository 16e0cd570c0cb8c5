"""Training from disk: the same draws, images and weights as from memory, bit for bit, also through a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, assert_same_end, changed, go, make_stores, on_disk

from engram.data import rows as data_rows
from engram.data.rows import can_share
from engram.data.store import Store
from engram.errors import EngramError
from engram.recipes.protocols import training_protocol, training_ranges
from engram.recipes.schema import Recipe
from engram.training.ahead import DEPTH, Ahead, ByProcesses
from engram.training.batches import BatchSource

CPU = torch.device("cpu")
GRAPH = changed(method="cml_bgnn", method_settings={"width": 8, "n_layers": 2})
RANGES = replace(RECIPE, data=replace(RECIPE.data, stream_length_range=(1, 3), n_query_range=(1, 3)))


@pytest.fixture(params=["threads", "processes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU, and as on a GPU."""
    if request.param == "processes":
        if not can_share():
            pytest.skip("this system has no memory that processes can share so")
        monkeypatch.setattr(data_rows, "PROCESSES", 2)
        monkeypatch.setattr(Ahead, "_way", lambda ahead: ByProcesses(ahead.store, None))


def source(recipe: Recipe, store: Store) -> BatchSource:
    data = recipe.data
    return BatchSource(
        store, training_protocol(recipe), data.augmentation, CPU, data.class_batch, training_ranges(recipe)
    )


@pytest.mark.parametrize("room", ["0", "1500"], ids=["none near", "half near"])
@pytest.mark.parametrize(
    "recipe", [RECIPE, GRAPH, STAGE_ONE, RANGES], ids=lambda r: f"{r.method}{bool(r.data.n_query_range)}"
)
def test_weights_are_those_of_a_training_from_memory(recipe: Recipe, room: str, tmp_path: Path, way: None) -> None:
    memory = go(tmp_path / "memory", recipe)
    disk = go(tmp_path / "disk", recipe, stores=on_disk(tmp_path), store_memory=room)
    assert disk.training["from_disk"] and not memory.training["from_disk"]
    assert_same_end(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.parametrize("recipe", [RECIPE, STAGE_ONE], ids=lambda r: r.method)
def test_a_stop_changes_nothing_though_later_steps_were_drawn(recipe: Recipe, tmp_path: Path, way: None) -> None:
    stores = on_disk(tmp_path)
    go(tmp_path / "whole", recipe)
    go(tmp_path / "disk", recipe, stores=stores, store_memory="0", max_iterations=3)
    go(tmp_path / "memory", recipe, max_iterations=3)
    go(tmp_path / "disk", recipe, resume=True)  # from memory where it was from disk, and the other way round
    go(tmp_path / "memory", recipe, stores=stores, store_memory="0", resume=True)
    for folder in ("disk", "memory"):
        assert_same_end(tmp_path / "whole", tmp_path / folder)


@pytest.mark.parametrize("near", [0, 13])
def test_images_of_a_step_lie_where_those_of_the_last_did(near: int, tmp_path: Path, way: None) -> None:
    """A captured step reads them from there, and nobody else's; the state is that of the steps that were given."""
    store = on_disk(tmp_path)["train"].with_near(100 * near + 99, CPU)
    memory, disk = source(STAGE_ONE, make_stores()["train"]), source(STAGE_ONE, store)
    assert disk.ahead and disk.ahead.far_bytes == 100 * (30 - near) and (store.near is None) == (near == 0)
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


def test_images_that_are_near_are_not_read(tmp_path: Path, way: None) -> None:
    store = on_disk(tmp_path)["train"].with_near(100 * 20, CPU)
    with (tmp_path / "train" / "images.npy").open("r+b") as stream:
        stream.truncate(store.file.start if store.file else 0)  # no row is left to be read
    drawn = source(STAGE_ONE, store)
    drawn.ahead.draw = lambda: {"base_rows": np.array([19, 0, 7, 7])}  # type: ignore[union-attr]
    lists = drawn.draw_lists()
    images = make_stores()["train"].images[[19, 0, 7, 7]]
    assert torch.equal(drawn.at_hand.images[lists["base_rows"]], images)


def test_a_store_cut_short_under_way_ends_the_run_with_a_sentence(tmp_path: Path, way: None) -> None:
    stores = on_disk(tmp_path)
    with (tmp_path / "train" / "images.npy").open("r+b") as stream:
        stream.truncate(500)
    with pytest.raises(EngramError, match="train/images.npy has 500 bytes where .* are needed: it was cut short"):
        go(tmp_path / "run", stores=stores, store_memory="0")
