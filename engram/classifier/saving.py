"""A classifier on disk: ``classifier.json``, ``weights.safetensors`` and ``memory.safetensors``. No pickle, no code.

The folder is whole in itself: another machine, or another version of the weights in the box, changes no answer. It is
written beside its place and then moved there, so a folder is either the old one or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from engram.classifier.box import fitted_at
from engram.classifier.encoders import named, open_named
from engram.classifier.engine import Engine
from engram.classifier.memory import Memory
from engram.errors import EngramError
from engram.ledger import software_versions
from engram.machine.device import choose_device
from engram.models.build import build_method
from engram.models.checkpoint import check_fit
from engram.recipes.schema import recipe_from_saved

if TYPE_CHECKING:
    from engram.classifier.estimator import FewShotClassifier

FORMAT_VERSION = 1
DESCRIPTION = "classifier.json"
PARTS = ("weights", "memory")
ENCODER, METHOD = "encoder.", "method."


def save(classifier: FewShotClassifier, folder: Path) -> Path:
    memory, engine = classifier._known(), classifier.engine_
    described = engine.recipe.to_dict(), engine.encoder_recipe.to_dict() if engine.encoder_recipe else None
    _refuse_own_code(described, "this classifier", "keep your run folder and its pictures, and fit again")
    if folder.exists() and not (folder / DESCRIPTION).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise EngramError(f"{folder} is there and is no saved classifier: choose another folder")
    tensors = {
        "weights": _smallest(_weights(engine)),
        "memory": {"items": memory.items, "labels": memory.labels, "tasks": memory.tasks},
    }
    files = {part: tensors_to_bytes({k: v.contiguous() for k, v in tensors[part].items()}) for part in PARTS}
    description = {
        "format_version": FORMAT_VERSION,
        "versions": software_versions(),
        "parameters": {**classifier.get_params(), "weights": str(classifier.weights)},
        "classes": [_plain(label) for label in memory.classes],
        "method": described[0],
        "encoder": described[1],
        "image_shape": engine.image_shape,
        "light_ink": engine.light_ink,
        "crop": engine.crop,
        "view": engine.view,
        "outside": named(engine.encoder),
        "transductive": engine.transductive,
        "temperatures": dict(engine.temperatures),
        "familiarities": dict(engine.familiarities),
        "digests": {part: hashlib.sha256(data).hexdigest() for part, data in files.items()},
    }
    _write(folder, {f"{part}.safetensors": data for part, data in files.items()} | {DESCRIPTION: _sealed(description)})
    return folder


def load(kind: type[FewShotClassifier], folder: Path, device: str) -> FewShotClassifier:
    raw = _description(folder)
    tensors = {part: _tensors(folder / f"{part}.safetensors", raw["digests"].get(part)) for part in PARTS}
    try:
        classifier = kind(**{**raw["parameters"], "device": device})
        classifier.engine_ = _engine(raw, tensors["weights"], device, folder)
        memory = tensors["memory"]
        classifier.memory_ = Memory(tuple(raw["classes"]), memory["items"], memory["labels"], memory["tasks"])
        classifier.memory_.check()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngramError(f"{folder / DESCRIPTION} is not a saved classifier ({error}): save it again") from error
    return classifier


def _engine(raw: dict[str, Any], weights: dict[str, Tensor], device: str, folder: Path) -> Engine:
    where, on = choose_device(device), str(folder / DESCRIPTION)
    shape = tuple(raw["image_shape"])
    _refuse_own_code((raw["method"], raw["encoder"]), on, "fit it again from your run folder")
    encoder: torch.nn.Module | None = None
    encoder_recipe = None
    if (outside := raw.get("outside")) is not None:
        encoder = open_named(outside, on).to(where)
    if raw["encoder"] is not None:
        encoder_recipe = recipe_from_saved(raw["encoder"], on)
        encoder = build_method(encoder_recipe, shape, where, "fp32").eval().backbone
        _fill(encoder, weights, ENCODER, on)
    recipe = recipe_from_saved(raw["method"], on)
    width = shape if encoder is None else (torch.Size(encoder.out_shape).numel(),)  # type: ignore[arg-type]
    method = build_method(recipe, width, where, "fp32").eval()
    _fill(method, weights, METHOD, on)
    extras = {name: raw[name] for name in ("light_ink", "transductive", "temperatures", "familiarities")}
    for name in ("temperatures", "familiarities"):
        if raw[name]:
            fitted_at(raw[name], 1)  # what is no such table fails here and not at the first answer
    extras |= {name: raw[name] for name in ("crop", "view") if name in raw}  # came later
    return Engine(method, recipe, shape, encoder, encoder_recipe, **extras)


def _refuse_own_code(parts: tuple[dict[str, Any] | None, ...], where: str, way_out: str) -> None:
    for part in parts:
        for key in ("method", "backbone"):
            if part is not None and ":" in part[key]:  # importing it would run code that the folder names
                raise EngramError(
                    f"{where} names the {key} '{part[key]}', code that is not Engram's, and a saved classifier runs "
                    f"none: {way_out}"
                )


def _weights(engine: Engine) -> dict[str, Tensor]:
    parts = {METHOD + name: value for name, value in engine.method.state_dict().items()}
    if engine.encoder_recipe is not None and engine.encoder is not None:
        parts |= {ENCODER + name: value for name, value in engine.encoder.state_dict().items()}
    return {name: value.cpu() for name, value in parts.items()}


def _fill(module: torch.nn.Module, weights: dict[str, Tensor], prefix: str, where: str) -> None:
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    check_fit(module.state_dict(), own, f"the weights beside {where} do not fit")
    module.load_state_dict(own)


def _smallest(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Half precision where nothing is lost by it: weights of the box came that way."""

    def smaller(value: Tensor) -> Tensor:
        half = value.half() if value.dtype == torch.float32 else value
        return half if torch.equal(half.to(value.dtype), value) else value

    return {name: smaller(value) for name, value in weights.items()}


def _plain(label: Any) -> Any:
    if not isinstance(label, str | int | float):
        raise EngramError(f"the class {label!r} is a {type(label).__name__}: only text and numbers can be saved")
    return label


def _sealed(description: dict[str, Any]) -> bytes:
    """JSON that carries the digest of its own content, so that a change by hand or accident is noticed."""
    text = json.dumps(description, sort_keys=True, default=str)
    return json.dumps(
        {**description, "digest": hashlib.sha256(text.encode()).hexdigest()}, indent=1, default=str
    ).encode()


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw["format_version"]
        digest = raw.pop("digest")
    except FileNotFoundError as error:
        raise EngramError(f"{folder} is no saved classifier: it has no {DESCRIPTION}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngramError(f"{path} cannot be read as a saved classifier ({error}): save it again") from error
    if version != FORMAT_VERSION:
        made = raw.get("versions", {}).get("engram", "unknown")
        raise EngramError(
            f"{path} has format version {version}, written by Engram {made}, but this Engram reads {FORMAT_VERSION}: "
            f"use that version, or fit again"
        )
    if hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest() != digest:
        raise EngramError(f"{path} was changed after it was saved: restore it, or save the classifier again")
    return dict(raw)


def _tensors(path: Path, expected: str | None) -> dict[str, Tensor]:
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != expected:
            raise EngramError(f"{path} is damaged or was changed ({len(data)} bytes): restore it, or save again")
        return tensors_from_bytes(data)
    except (OSError, SafetensorError) as error:
        raise EngramError(f"{path} cannot be read ({error}): restore it, or save the classifier again") from error


def _write(folder: Path, files: dict[str, bytes]) -> None:
    temporary, aside = (folder.with_name(f".{folder.name}.{kind}.{os.getpid()}") for kind in ("new", "old"))
    try:
        temporary.mkdir(parents=True)
        for name, data in files.items():
            (temporary / name).write_bytes(data)
        if folder.exists():
            os.replace(folder, aside)
        os.replace(temporary, folder)
    except OSError as error:
        if aside.exists() and not folder.exists():
            os.replace(aside, folder)
        raise EngramError(f"{folder} could not be written ({error.strerror or error}): nothing was changed") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
