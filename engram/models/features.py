"""Frozen features: a trained backbone's view of a dataset as stores like any other, one for each split."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from engram.data.datasets import open_split
from engram.data.store import SplitSource, Store, build, check_replaceable
from engram.errors import EngramError
from engram.machine.device import choose_device
from engram.models.checkpoint import Checkpoint, load, load_method
from engram.recipes.schema import Recipe
from engram.types import Method

SPLITS = ("train", "val", "test")


@torch.no_grad()
def extract_features(
    model: Method | Checkpoint | Path,
    store: Store,
    device: torch.device | str = "cpu",
    batch: int = 512,
    dtype: str = "float16",
) -> np.ndarray:
    """(n, d) features of every image in the store's order: evaluation mode, no augmentation, maps flattened."""
    device = torch.device(device)
    checkpoint = load(model) if isinstance(model, Path) else model
    method = load_method(checkpoint, device) if isinstance(checkpoint, Checkpoint) else checkpoint.to(device)
    width = torch.Size(method.backbone.out_shape).numel()  # type: ignore[arg-type]
    features = np.empty((len(store.images), width), dtype)
    training = method.training
    method.eval()
    try:
        for start in range(0, len(features), batch):
            images = store.images[start : start + batch].to(device, non_blocking=True)
            with np.errstate(over="ignore"):  # looked at as a whole below
                features[start : start + batch] = method.backbone(images).flatten(1).cpu().numpy()
    finally:
        method.train(training)
    if not np.isfinite(features).all():
        raise EngramError(f"features of {store.info.dataset} {store.info.split} are not finite in {dtype}: use float32")
    return features


def write_features(
    checkpoint: Path,
    out: Path,
    dataset: str | None = None,
    splits: Sequence[str] = SPLITS,
    data: Path | None = None,
    device: str = "auto",
    stores: Mapping[str, Store] | None = None,
    dtype: str = "float16",
    quiet: bool = False,
) -> dict[str, Store]:
    """Write ``out/<split>`` for each split, under the dataset's own name and classes; ``source`` says who made them.

    ``dataset`` is the one the checkpoint was trained on where not given; ``stores`` are used in place of opening it.
    """
    for split in splits:
        check_replaceable(out / split)  # now, not after minutes of work
    found, where = load(checkpoint), choose_device(device)
    method = load_method(found, where)
    name = dataset or found.recipe.data.dataset
    opened = {s: stores[s] if stores else open_split(name, s, data) for s in splits}
    for store in opened.values():
        if store.image_shape != found.state.image_shape:
            before, here = ("x".join(map(str, shape)) for shape in (found.state.image_shape, store.image_shape))
            raise EngramError(
                f"{checkpoint} was trained on images of {before} but those of {store.info.dataset} {store.info.split} "
                f"are {here}: give the dataset it was trained on"
            )
    origin = (
        f"features of {found.recipe.backbone} by {found.recipe.name}, run {found.state.run_id}, {found.folder.name}"
    )
    return {
        s: _write(out / s, store, extract_features(method, store, where, dtype=dtype), origin, quiet)
        for s, store in opened.items()
    }


def _write(folder: Path, store: Store, features: np.ndarray, origin: str, quiet: bool) -> Store:
    info, offsets = store.info, store.offsets
    source = SplitSource(
        info.class_names,
        tuple(int(size) for size in store.class_sizes),
        lambda c: iter(features[offsets[c] : offsets[c + 1]]),
        features.shape[1:],
        info.group_size,
        str(features.dtype),
    )
    return build(folder, info.dataset, info.split, source, f"{origin}, from {store.digest[:16]}", quiet)


def open_stores(
    dataset: str, splits: Sequence[str], data: str | Path | None = None, features: str | Path | None = None
) -> dict[str, Store]:
    """The splits of a dataset as images, or as the features that `write_features` left in a folder."""
    if features is None:
        return {split: open_split(dataset, split, Path(data) if data else None) for split in splits}
    features = Path(features)
    for split in splits:
        if not (features / split / "store.json").is_file():
            raise EngramError(
                f"there are no features of {split} in {features}: write them with engram features RUN {features}, "
                f"where RUN is the run folder of an encoder"
            )
    opened = {split: Store.open(features / split) for split in splits}
    for split, store in opened.items():
        if store.info.split != split:
            raise EngramError(
                f"{features / split} holds features of {store.info.split}, not of {split}: write them again with "
                f"engram features RUN {features}, where RUN is the run folder of their encoder"
            )
    _check_one_maker(features, opened)
    return opened


def _check_one_maker(features: Path, stores: Mapping[str, Store]) -> None:
    """Splits that went through different encoders have nothing to say to each other."""
    makers = {split: store.maker for split, store in stores.items()}
    (first, maker), *others = makers.items()
    for split, other in others:
        if other != maker:
            raise EngramError(
                f"{features / first} holds {maker} but {features / split} holds {other}: write all splits with one "
                f"encoder (engram features)"
            )


def check_maker(store: Store, recipe: Recipe) -> None:
    """A recipe that names its encoder's weights is for features of such an encoder: its record would claim so."""
    made_by = re.match(r"features of (\S+) by ", store.maker)
    if recipe.backbone_weights and made_by and made_by[1] != recipe.backbone:
        raise EngramError(
            f"{recipe.name} builds on {recipe.backbone} ({recipe.backbone_weights}) but these are features of "
            f"{made_by[1]}: write those of {recipe.backbone} with engram features, or say --backbone {made_by[1]}"
        )
