"""From the words of a person, "imagenet" or a run folder, "proto_net" or nothing, to an `Engine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from engram import spellings
from engram.classifier.box import Boxed, box
from engram.classifier.encoders import CROP, FORMS, PictureEncoder, open_encoder
from engram.classifier.engine import Engine
from engram.errors import EngramError, nearest
from engram.files import WEIGHTS, located
from engram.machine.device import choose_device
from engram.methods import METHODS
from engram.models.build import PREFIX, build_method, resolve_method, start_packaged
from engram.models.checkpoint import fill, load, load_method
from engram.recipes import DataSettings, Recipe, TrainSettings
from engram.types import EmbeddingMethod, Method

PACKAGED = Recipe(
    name="stage_one/imagenet",
    method="proto_net",
    data=DataSettings(dataset="imagenet", normalisation="lite"),
    train=TrainSettings(iterations=1, sequences=1),
    backbone="efficientnet_lite0",
    backbone_weights="imagenet",
)
"""what the weights 'imagenet' are, in the words of a recipe"""


class Eye(NamedTuple):
    """What sees pictures, before it is known which method compares them."""

    encoder: nn.Module
    recipe: Recipe
    """of the encoder; of one from elsewhere, one to take the place"""
    image_shape: tuple[int, ...]
    crop: float | None = None


def open_engine(
    engine: str | None,
    weights: str | Path | PictureEncoder,
    settings: Mapping[str, Any] | None,
    transductive: bool,
    device: str,
) -> Engine:
    """``weights`` names an entry of the box, an encoder from elsewhere or a run folder, or is an encoder; ``engine`` a
    method, or None for the one that goes with the weights; ``settings`` are keywords of the method."""
    if not isinstance(weights, str | Path | nn.Module):
        raise EngramError(f"weights is {weights!r}, which is no name, run folder or PictureEncoder: see the guide")
    where = choose_device(device)
    boxed = box().get(str(weights))
    if (boxed and not boxed.encoder) or isinstance(weights, nn.Module) or str(weights).partition(":")[0] in FORMS:
        eye = _packaged_eye(str(weights), boxed.backbone, where) if boxed else _eye(weights, where)
        entry = boxed or box()["imagenet"]
        name = spellings.engine_today(engine, tuple(METHODS)) or entry.engine
        return _on_encoder(name, eye, entry, settings or {}, transductive, where)
    checkpoint = load(WEIGHTS / boxed.encoder if boxed else _run_folder(weights))
    known = (checkpoint.state.method, *(boxed.heads if boxed else ()))
    fitting, crop = boxed or _tuned(checkpoint.recipe), checkpoint.recipe.data.crop or None
    name = spellings.engine_today(engine, known) or (fitting.engine if fitting else checkpoint.state.method)
    if name != checkpoint.state.method or name in (boxed.heads if boxed else ()):
        encoder = load_method(checkpoint, where, "fp32").backbone
        eye = Eye(encoder, checkpoint.recipe, checkpoint.state.image_shape, crop)
        return _on_encoder(name, eye, fitting, settings or {}, transductive, where)
    recipe = _with_settings(checkpoint.recipe, settings or {}, transductive)
    held = checkpoint.tensors("weights")
    method = build_method(recipe, checkpoint.state.image_shape, where, "fp32", held)
    _load(method, held, f"the weights in {checkpoint.folder}")
    extras = _boxed_extras(boxed, name, transductive)
    return Engine(method.eval(), recipe, checkpoint.state.image_shape, crop=crop, **extras)


def _tuned(recipe: Recipe) -> Boxed | None:
    """What goes with the packaged encoder goes with one that a stage one fitted to pictures of one's own."""
    return box()["imagenet"] if (recipe.method, recipe.backbone_weights) == ("stage_one", "imagenet") else None


def _packaged_eye(name: str, backbone: str, device: torch.device) -> Eye:
    recipe = replace(PACKAGED, name=f"stage_one/{name}", backbone=backbone)
    method = build_method(recipe, (3, 224, 224), device, "fp32").eval()
    start_packaged(method, recipe)
    side = int(method.backbone.backbone.image_size)  # type: ignore[union-attr,arg-type]
    return Eye(method.backbone, recipe, (3, side, side), CROP)


def _eye(weights: str | Path | PictureEncoder, device: torch.device) -> Eye:
    encoder = weights if isinstance(weights, nn.Module) else open_encoder(str(weights))
    if not isinstance(encoder, PictureEncoder):
        raise EngramError(
            f"weights is a {type(weights).__name__}, which does not say how it wants pictures: give "
            f"engram.classifier.PictureEncoder(module, preprocess, image_size)"
        )
    return Eye(encoder.to(device), replace(PACKAGED, backbone_weights=encoder.name), encoder.image_shape, encoder.crop)


def _run_folder(weights: str | Path) -> Path:
    if not located(Path(weights)).exists():
        raise EngramError(
            f"there are no weights '{weights}', neither a run folder nor one of {', '.join(box())}, "
            f"timm:NAME, hf:NAME, onnx:FILE{nearest(str(weights), box())}"
        )
    return Path(weights)


def _on_encoder(
    name: str, eye: Eye, boxed: Boxed | None, settings: Mapping[str, Any], transductive: bool, device: torch.device
) -> Engine:
    """A method on a frozen encoder: with a head of the box, or without weights."""
    if name not in METHODS and (Path(name).exists() or "/" in name):
        raise EngramError(f"the engine '{name}' is a folder: give it as weights={name!r}, its method comes with it")
    kind, shape = resolve_method(name), eye.image_shape
    given = {**(boxed.settings.get(name, {}) if boxed else {}), **settings}
    if not issubclass(kind, EmbeddingMethod):
        recipe = _another(eye.recipe, name, "flatten", given, transductive)
        return Engine(_without_weights(recipe, shape, device), recipe, shape, light_ink=bool(boxed and boxed.light_ink))
    width = (torch.Size(eye.encoder.out_shape).numel(),)  # type: ignore[arg-type]
    if boxed and name in boxed.heads:
        head = load(WEIGHTS / boxed.heads[name])
        recipe = _with_settings(head.recipe, given, transductive)
        method = build_method(recipe, width, device, "fp32")
        _load(method, head.tensors("weights"), f"the head in {head.folder}")
    else:
        recipe = _another(eye.recipe, name, eye.recipe.backbone, given, transductive)
        method = _without_weights(recipe, width, device)
    extras = _boxed_extras(boxed, name, transductive)
    known = None if isinstance(eye.encoder, PictureEncoder) else eye.recipe
    return Engine(method.eval(), recipe, shape, eye.encoder, known, crop=eye.crop, **extras)


def _boxed_extras(boxed: Boxed | None, name: str, transductive: bool) -> dict[str, Any]:
    if boxed is None:
        return {"transductive": transductive}
    return {
        "transductive": transductive,
        "light_ink": boxed.light_ink,
        "view": boxed.view,
        "temperatures": boxed.temperatures_of(name, transductive),
        "familiarities": boxed.familiarity,
    }


def _another(recipe: Recipe, method: str, backbone: str, given: Mapping[str, Any], transductive: bool) -> Recipe:
    """Another method on the data of a recipe, under a name of its own."""
    name = f"{method}/{recipe.name.split('/')[-1]}"
    changed = replace(recipe, name=name, method=method, method_settings={}, backbone_weights="")
    changed = changed if backbone == recipe.backbone else replace(changed, backbone=backbone, backbone_settings={})
    return _with_settings(changed, given, transductive)


def _with_settings(recipe: Recipe, given: Mapping[str, Any], transductive: bool) -> Recipe:
    """A method that can be asked either way is asked as the classifier says."""
    known = {f.name for f in fields(resolve_method(recipe.method).Config)}
    either = {"transductive": transductive} if "transductive" in known else {}
    return replace(recipe, method_settings={**recipe.method_settings, **given, **either})


def _without_weights(recipe: Recipe, shape: tuple[int, ...], device: torch.device) -> Method:
    try:
        method = build_method(recipe, shape, device, "fp32").eval()
    except EngramError as error:  # a head for another kind of encoder has weights of its own in any case
        raise EngramError(f"'{recipe.method}' must be trained first, on an encoder it can take: {error}") from error
    count = sum(p.numel() for p in method.parameters() if p.requires_grad)
    if count:
        raise EngramError(
            f"'{recipe.method}' has {count} weights that must be trained first: engram train, then give its run "
            f"folder as weights"
        )
    return method


def _load(method: Method, weights: Mapping[str, torch.Tensor], what: str) -> None:
    """Weights of a whole model, or of a head whose features come from elsewhere."""
    own = method.state_dict()
    needed = {k: v for k, v in weights.items() if k in own or not k.startswith(PREFIX)}
    fill(method, needed, f"{what} do not fit {type(method).__name__}")
