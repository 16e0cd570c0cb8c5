"""A run small enough to be repeated often: patterns, a backbone with every kind of state, a watched method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from engram.data.formats.form import SplitSource
from engram.data.store import Store
from engram.data.writing import build
from engram.methods.proto_net import ProtoNet
from engram.models.checkpoint import PARTS, load
from engram.nn.backbones.conv import ConvBlock
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings
from engram.training.loop import TrainOutcome, train
from engram.training.running import Limits, Running
from engram.types import LossTerms, TrainBatch

RECIPE = Recipe(
    "proto_net/toy",
    "proto_net",
    DataSettings("toy", n_way=3, n_query=2, stream_length=2, augmentation="crop_flip"),
    TrainSettings(
        iterations=6,
        sequences=2,
        schedule="cosine",
        clip="global",
        clip_value=1.0,
        weight_decay=1e-4,
        validate_every=3,
        validation_sequences=4,
    ),
    TestSettings(n_way=3, stream_length=2),
    backbone=f"{__name__}:Small",
)

STAGE_ONE = replace(
    RECIPE,
    name="stage_one/toy",
    method="stage_one",
    method_settings={"n_base_classes": 6},
    data=replace(RECIPE.data, class_batch=16, augmentation="standard"),
)


class Small(nn.Module):
    """A backbone with every kind of state: weights, running statistics and dropout."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(image_shape[0], 4, 3, stride=2),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Flatten(),
            nn.LazyLinear(5),
        )
        self.layers(torch.zeros(2, *image_shape))
        self.out_shape = (5,)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)  # type: ignore[no-any-return]


class Watched(ProtoNet):
    """Calls ``before_loss`` with the number of the step, and multiplies the loss by what it returns."""

    before_loss: ClassVar[Callable[[int], float]] = staticmethod(lambda step: 1.0)
    steps: ClassVar[int] = 0
    progress: ClassVar[list[float]] = []

    def loss(self, batch: TrainBatch) -> LossTerms:
        Watched.steps += 1
        Watched.progress.append(batch.progress)
        terms = super().loss(batch)
        return LossTerms(terms.total * Watched.before_loss(Watched.steps), terms.terms)


class ByTask(ProtoNet):
    """Its instances claim more than its class does."""

    def __init__(self, backbone: nn.Module, config: Any) -> None:
        super().__init__(backbone, config)
        self.card = replace(type(self).card, batch_norm="task")


class OneBlock(nn.Sequential):
    """A backbone that kernels of our own can train."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__(ConvBlock(image_shape[0], 16, 0.2, padding=1, bias=False), nn.Flatten())
        self.out_shape = (16 * (image_shape[1] // 2) * (image_shape[2] // 2),)


class Perceptron(nn.Linear):
    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__(image_shape[0], 5)
        self.out_shape = (5,)


def changed(recipe: Recipe = RECIPE, train: dict[str, Any] | None = None, **changes: Any) -> Recipe:
    return replace(recipe, train=replace(recipe.train, **(train or {})), **changes)


def train_stage_one(folder: Path) -> Path:
    """A run that has learned something, in well under a second."""
    learning = changed(STAGE_ONE, {"iterations": 60, "learning_rate": 0.02, "validate_every": 30})
    go(folder, replace(learning, data=replace(STAGE_ONE.data, augmentation="none")))
    return folder


def make_stores(seed: int = 0) -> dict[str, Store]:
    rng = np.random.default_rng(seed)
    stores = {}
    for split in ("train", "val"):
        patterns = rng.uniform(0, 255, (6, 1, 1, 10, 10))
        images = (patterns + rng.normal(0, 30, (6, 5, 1, 10, 10))).clip(0, 255).astype(np.uint8).reshape(-1, 1, 10, 10)
        stores[split] = Store.from_arrays(images, [5] * 6, "toy", split)
    return stores


def on_disk(folder: Path) -> dict[str, Store]:
    """The same stores, in files."""
    opened = {}
    for split, store in make_stores().items():
        images, counts = store.images.numpy(), tuple(store.class_sizes.tolist())
        source = SplitSource(
            store.info.class_names, counts, lambda c, i=images: iter(i[5 * c : 5 * c + 5]), (1, 10, 10)
        )
        opened[split] = build(folder / split, "toy", split, source, "memory", quiet=True)
    return opened


QUIET = Running(progress=False, tensorboard=False)


def go(folder: Path, recipe: Recipe = RECIPE, **arguments: Any) -> TrainOutcome:
    stores = arguments.pop("stores", None) or make_stores()
    limits = Limits(**{f.name: arguments.pop(f.name) for f in fields(Limits) if f.name in arguments})
    running = replace(QUIET, **{f.name: arguments.pop(f.name) for f in fields(QUIET) if f.name in arguments})
    return train(recipe, stores, folder, **{"device": torch.device("cpu")} | arguments, limits=limits, running=running)


def assert_same_end(a: Path, b: Path) -> None:
    """Every tensor of the last checkpoints, the generators and the curves are equal, bit for bit."""
    first, second = load(a, "last"), load(b, "last")
    for part in PARTS:
        left, right = first.tensors(part), second.tensors(part)  # type: ignore[arg-type]
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left), part
    for name in ("iteration", "curves", "window", "numpy_generator", "optimiser", "best_iteration", "best_accuracy"):
        assert getattr(first.state, name) == getattr(second.state, name), name
