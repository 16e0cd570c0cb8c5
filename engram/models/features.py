"""Frozen features: a trained backbone's view of a dataset as stores like any other, one for each split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from engram.data.datasets import open_split
from engram.data.formats.folder import FolderOptions
from engram.data.formats.form import SPLITS, SplitSource
from engram.data.pixels import Crop, augment
from engram.data.store import MIDDLE, MIRRORED, Store
from engram.data.writing import build, check_replaceable
from engram.errors import EngramError
from engram.machine.device import choose_device, kept_memory
from engram.models.checkpoint import Checkpoint, WhichWeights, load, load_method
from engram.nn.encoder import Mirrored, Windowed
from engram.protocol.fits import sides_of
from engram.recipes.schema import DataSettings, Recipe
from engram.types import Method

LEARNED_FROM = "images its encoder was trained on"
"""what the source of such features says"""


@torch.no_grad()
def extract_features(
    model: Method | Checkpoint | Path,
    store: Store,
    device: torch.device | str = "cpu",
    batch: int = 512,
    dtype: str = "float16",
    copies: int = 1,
    change: Callable[[Tensor], Tensor] | None = None,
    quiet: bool = True,
) -> np.ndarray:
    """(n * copies, d) features of every image in the store's order: evaluation mode, maps flattened.

    The ``copies`` of an image stand side by side; ``change`` is what happens to images before they are encoded.
    """
    device = torch.device(device)
    checkpoint = load(model) if isinstance(model, Path) else model
    method = load_method(checkpoint, device) if isinstance(checkpoint, Checkpoint) else checkpoint.to(device)
    width = torch.Size(method.backbone.out_shape).numel()  # type: ignore[arg-type]
    features = np.empty((len(store.images) * copies, width), dtype)
    training, console = method.training, Console(stderr=True)
    starts, says = range(0, len(features), batch), f"features of {store.info.dataset} {store.info.split}"
    method.eval()
    try:
        for start in track(starts, says, console=console, disable=quiet or not console.is_terminal, transient=True):
            rows = torch.arange(start, min(start + batch, len(features))) // copies
            images = store.gather(rows).to(device, non_blocking=True)
            images = change(images) if change else images
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
    which_weights: WhichWeights = "chosen",
    views: int = 1,
    augmented: int | None = None,
    window: str = "",
) -> dict[str, Store]:
    """Write ``out/<split>`` for each split, under the dataset's own name and classes; ``source`` says who made them.

    ``dataset`` is the one the checkpoint was trained on where not given; ``stores`` are used in place of opening it.
    ``views`` = 2 averages the features of picture and mirror image; ``window`` is that of `Protocol`. ``augmented``
    writes each training image that many times, every time under the recipe's augmentation anew: what an encoder knows
    by heart it has not seen just so.
    """
    for split in splits:
        check_replaceable(out / split)  # now, not after minutes of work
    found, where = load(checkpoint), choose_device(device)
    method = load_method(found, where, which_weights=which_weights)
    name = dataset or found.recipe.data.dataset
    opened = stores or open_stores(replace(found.recipe.data, dataset=name), splits, data)
    opened = {split: opened[split] for split in splits}
    for store in opened.values():
        _check_images(checkpoint, found, store)
    _check_ways(found.recipe, opened.values(), views, augmented)
    method.backbone = looked(method.backbone, next(iter(opened.values())).image_shape, views, window)
    origin = features_by(found, which_weights) + (MIDDLE + window if window else "") + (MIRRORED if views == 2 else "")
    see, written = partial(extract_features, method, device=where, dtype=dtype, quiet=quiet), {}
    with nullcontext() if where.type == "cuda" else kept_memory():
        for split, store in opened.items():
            more, how = _augmented(found.recipe, where, augmented) if augmented and split == "train" else ({}, "")
            said = ", ".join(filter(None, (how, _learned_from(found, store))))
            source = f"{origin}, from {store.digest[:16]}" + (f"; {said}" if said else "")
            written[split] = _write(out / split, store, see(store, **more), source, quiet)
    return written


def looked(encoder: nn.Module, image_shape: tuple[int, ...], views: int, window: str) -> nn.Module:
    """An encoder with how it looks at images put before it."""
    if window:
        crop, size = sides_of(window)
        if len(image_shape) != 3 or crop > min(image_shape[1:]):
            shape = "x".join(map(str, image_shape))
            raise EngramError(f"window = '{window}' but images are {shape}: take at most their smaller side")
        encoder = Windowed(encoder, crop, size)
    return Mirrored(encoder) if views == 2 else encoder


def features_by(found: Checkpoint, which_weights: WhichWeights = "chosen") -> str:
    """How the features that a checkpoint's encoder writes name their maker."""
    part = found.folder.name + (" average" if found.weights_part(which_weights) == "average" else "")
    return f"features of {found.recipe.backbone} by {found.recipe.name}, run {found.state.run_id}, {part}"


def _augmented(recipe: Recipe, device: torch.device, copies: int) -> tuple[dict[str, Any], str]:
    """How each image is seen ``copies`` times under the recipe's augmentation, from its seed; and that in words."""
    data, generator = recipe.data, torch.Generator(device).manual_seed(recipe.train.seed)
    crop = Crop(data.crop_area, data.crop_aspect)
    said = f"each image in {copies} view{'s' if copies > 1 else ''} under augmentation ({data.augmentation})"
    return {"copies": copies, "change": partial(augment, kind=data.augmentation, generator=generator, crop=crop)}, said


def _learned_from(found: Checkpoint, store: Store) -> str:
    """That the encoder was trained on these images, and how it knew them in the end; "" where it was not."""
    if found.state.dataset_digest != store.digest:
        return ""
    part, known = found.recipe.data.train_classes, found.state.curves.get("train_accuracy")
    which = f", classes {part[0]} to {part[1] - 1}" if part else ""
    return f"{LEARNED_FROM}{which}{f' ({100 * known[-1]:.1f} % right then)' if known else ''}"


def familiarity(store: Store) -> str:
    """A sentence for whoever trains on features of images that their encoder was trained on; "" for others."""
    _, says, how = store.info.source.partition(LEARNED_FROM)
    return says and (
        f"these are features of {says}{how}, and so may look clearer than those of classes it has not met; "
        "engram features --augmented N writes views that it has not seen"
    )


def _check_images(checkpoint: Path, found: Checkpoint, store: Store) -> None:
    if store.image_shape != found.state.image_shape:
        before, here = ("x".join(map(str, shape)) for shape in (found.state.image_shape, store.image_shape))
        raise EngramError(
            f"{checkpoint} was trained on images of {before} but those of {store.info.dataset} {store.info.split} "
            f"are {here}: give the dataset it was trained on"
        )


def _check_ways(recipe: Recipe, stores: Iterable[Store], views: int, augmented: int | None) -> None:
    """Mirror images and augmentation are for pixels, and the augmentation is the recipe's own."""
    if views not in (1, 2):
        raise EngramError(f"views = {views} but it is 1 or 2")
    if augmented is not None and augmented < 1:
        raise EngramError(f"augmented = {augmented} but at least 1 is needed: leave it out for images as they are")
    if augmented and recipe.data.augmentation == "none":
        raise EngramError(
            f"augmented = {augmented} but {recipe.name} has [data] augmentation = 'none': leave augmented out, or "
            f"take an encoder trained under an augmentation"
        )
    for store in stores if augmented or views == 2 else ():
        if not store.is_pixels:
            asked = f"augmented = {augmented}" if augmented else f"views = {views}"
            raise EngramError(
                f"{asked} is for images but {store.info.dataset} {store.info.split} holds features: leave it out"
            )


def _write(folder: Path, store: Store, features: np.ndarray, origin: str, quiet: bool) -> Store:
    """Where the features of an image stand side by side they are one original: no task shows two of them."""
    info, copies = store.info, len(features) // len(store.images)
    offsets = store.offsets * copies
    source = SplitSource(
        info.class_names,
        tuple(int(size) for size in np.diff(offsets)),
        lambda c: iter(features[offsets[c] : offsets[c + 1]]),
        features.shape[1:],
        info.group_size * copies,
        str(features.dtype),
    )
    return build(folder, info.dataset, info.split, source, origin, quiet)


def open_stores(
    asked: DataSettings, splits: Sequence[str], data: str | Path | None = None, features: str | Path | None = None
) -> dict[str, Store]:
    """The splits of a dataset as images, or as the features that `write_features` left in a folder."""
    if features is None:
        how = FolderOptions(asked.image_size, crop=asked.crop or None)
        return {s: open_split(asked.dataset, s, Path(data) if data else None, options=how) for s in splits}
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
