"""Batches of base classes beside the tasks; where none are asked for, nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from toy_run import RECIPE, make_stores

from engram.data.episodes import draw_tasks, episodes_at
from engram.data.pixels import Crop
from engram.data.store import Store
from engram.errors import EngramError
from engram.processes import Share
from engram.recipes.protocols import training_protocol, training_ranges
from engram.training.batches import BatchSource, check_ranges

CPU = torch.device("cpu")


def source(store: Store | None = None, augmentation: str = "none", **changes: Any) -> BatchSource:
    return BatchSource(store or make_stores()["train"], training_protocol(RECIPE), augmentation, CPU, **changes)


def test_draws_without_a_class_batch_are_those_of_the_tasks_alone() -> None:
    """The stream of draws of runs from before: tasks only, one after the other from the seed."""
    store, protocol, rng = make_stores()["train"], training_protocol(RECIPE), np.random.default_rng(RECIPE.train.seed)
    drawn = source()
    for _ in range(3):
        batch = drawn.draw(0.5)
        episodes, answers = episodes_at(store, draw_tasks(store, protocol, rng), protocol.n_way)
        assert batch.class_batch is None and batch.progress == 0.5
        for mine, expected in zip(batch.episodes, episodes, strict=True):
            assert torch.equal(mine.support, expected.support) and torch.equal(mine.query, expected.query)
        assert all(torch.equal(a.query_labels, b.query_labels) for a, b in zip(batch.answers, answers, strict=True))


def test_class_batch_is_even_over_images_and_knows_its_classes() -> None:
    """Each image says its own row, so its class can be looked up; classes of 2, 0, 5 and 13 images."""
    counts = [2, 0, 5, 13]
    labels = np.repeat(np.arange(4), counts)
    store = Store.from_arrays(torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1), counts, "toy", "train")
    drawn = source(store, class_batch=2000)
    images, ids = drawn.draw(0.0).class_batch or ()
    assert images.shape == (2000, 1, 1, 1) and images.dtype == torch.uint8 and ids.dtype == torch.int64
    rows = images.flatten().numpy()
    assert np.array_equal(labels[rows], ids.numpy())
    share = np.bincount(rows, minlength=20) / 2000
    assert share.min() > 0.03 and share.max() < 0.07


@pytest.mark.parametrize("augmentation", ["none", "crop_flip", "affine", "standard"])
def test_class_batch_comes_with_the_tasks_augmented_and_repeatable(augmentation: str) -> None:
    first, again = (source(augmentation=augmentation, class_batch=30).draw(0.0) for _ in range(2))
    images, ids = first.class_batch or ()
    assert images.shape == (30, 1, 10, 10) and len(first.episodes) == 2
    assert torch.equal(images, (again.class_batch or ())[0]) and torch.equal(ids, (again.class_batch or ())[1])
    plain = (source(class_batch=30).draw(0.0).class_batch or ())[0]
    assert torch.equal(images, plain) == (augmentation == "none")


def test_features_are_not_augmented() -> None:
    features = Store.from_arrays(torch.arange(30.0).view(30, 1).half(), [5] * 6, "toy", "train")
    images, ids = source(features, "standard", class_batch=8).draw(0.0).class_batch or ()
    assert images.dtype == torch.float16 and torch.equal(ids, images.flatten().long() // 5)


def test_lengths_and_pools_are_drawn_from_their_ranges_for_every_batch() -> None:
    store = Store.from_arrays(torch.arange(60, dtype=torch.uint8).view(60, 1, 1, 1), [5] * 12, "toy", "train")
    data = replace(RECIPE.data, stream_length_range=(2, 5), pool_range=(3, 6))
    recipe = replace(RECIPE, data=data, train=replace(RECIPE.train, sequences=40))
    protocol, ranges = training_protocol(recipe), training_ranges(recipe)
    assert ranges == {"stream_length": (2, 5), "pool_classes": (3, 6)} and training_ranges(RECIPE) == {}
    first, again = (BatchSource(store, protocol, "none", CPU, ranges=ranges) for _ in range(2))
    lengths, pools = set(), set()
    for _ in range(40):
        batch, same = first.draw(0.0), again.draw(0.0)
        assert all(torch.equal(a.query, b.query) for a, b in zip(batch.episodes, same.episodes, strict=True))
        met = torch.stack([a.class_ids for a in batch.answers]).transpose(0, 1).flatten(1)
        lengths.add(len(batch.episodes))
        pools.add(max(len(classes.unique()) for classes in met))
    assert lengths == {2, 3, 4, 5} and pools == {3, 4, 5, 6}


def test_queries_per_class_are_drawn_for_every_batch_so_two_of_them_may_share_one() -> None:
    """With one query per class no step ever shows two queries of one class; with a range most do."""
    store = Store.from_arrays(torch.arange(60, dtype=torch.uint8).view(60, 1, 1, 1), [5] * 12, "toy", "train")
    recipe = replace(RECIPE, data=replace(RECIPE.data, n_query=1, n_query_range=(1, 3)))
    drawn = BatchSource(store, training_protocol(recipe), "none", CPU, ranges=training_ranges(recipe))
    counts = set()
    for _ in range(20):
        per_class = {
            (labels == c).sum().item() for a in drawn.draw(0.0).answers for labels in a.query_labels for c in range(3)
        }
        assert len(per_class) == 1  # one number for all tasks of a step
        counts |= per_class
    assert counts == {1, 2, 3}
    assert recipe.digest != replace(recipe, data=replace(recipe.data, n_query_range=())).digest


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_query_range": (1, 9)}, "has 5 images but 1 shots . 9 queries need 10"),
        ({"pool_range": (3, 7)}, "a pool of 7 classes was asked for but toy train has 6"),
        ({"pool_range": (3, 6), "drift": 0.5}, "the pool has 6 of the 6 classes"),
        ({"pool_range": (3, 6), "recurrence_gap": 1}, "needs a pool of exactly 6 classes but toy train offers 3"),
        ({"stream_length_range": (2, 9), "pool_classes": 6, "recurrence_gap": 1}, "but the stream has 2: raise"),
    ],
)
def test_ranges_the_store_cannot_serve_are_refused_at_their_ends(changes: dict[str, Any], sentence: str) -> None:
    recipe = replace(RECIPE, data=replace(RECIPE.data, **changes))
    with pytest.raises(EngramError, match=sentence):
        check_ranges(make_stores()["train"], training_protocol(recipe), training_ranges(recipe))


def test_tasks_and_class_batch_are_cropped_as_asked() -> None:
    plain, cropped = (
        source(augmentation="standard", class_batch=30, crop=crop).draw(0.0)
        for crop in (Crop(), Crop((0.2, 0.3), (0.75, 1.3333)))
    )
    assert not torch.equal((plain.class_batch or ())[0], (cropped.class_batch or ())[0])
    assert not torch.equal(plain.episodes[0].support, cropped.episodes[0].support)


@pytest.mark.parametrize("augmentation", ["none", "crop_flip", "affine", "standard"])
def test_two_processes_see_together_what_one_sees(augmentation: str) -> None:
    """The same tasks and the same augmented images, also where the next step is drawn."""
    one = source(augmentation=augmentation, class_batch=6)
    halves = [source(augmentation=augmentation, class_batch=6, shares=(Share(rank, 2),) * 2) for rank in range(2)]
    for _ in range(2):
        whole, first, second = (drawing.draw(0.0) for drawing in (one, *halves))
        for step, left, right in zip(whole.episodes, first.episodes, second.episodes, strict=True):
            assert torch.equal(torch.cat([left.support, right.support]), step.support)
            assert torch.equal(torch.cat([left.query, right.query]), step.query)
        assert whole.class_batch and first.class_batch and second.class_batch
        for both, left, right in zip(whole.class_batch, first.class_batch, second.class_batch, strict=True):
            assert torch.equal(torch.cat([left, right]), both)
