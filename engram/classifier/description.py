"""What a saved classifier says of itself, in ``classifier.json``, sealed; and the tensors whose digests it holds."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from torch import Tensor

from engram.classifier import disk
from engram.errors import EngramError
from engram.files import read_bytes, read_json
from engram.models.checkpoint import MOST_BYTES
from engram.models.run_folder import MOST_NUMBERS
from engram.structure import check_types

FORMAT_VERSION = 3
"""1: classes and memory lay in files of their own, which were written whole each time; 2: temperatures were of the
shares of votes, not of their logits"""
DESCRIPTION = "classifier.json"


def sealed(description: dict[str, Any]) -> bytes:
    """JSON that carries the digest of its own content, so that a change by hand or accident is noticed."""
    text = json.dumps(description, sort_keys=True, default=str)
    return json.dumps(
        {**description, "digest": hashlib.sha256(text.encode()).hexdigest()}, indent=1, default=str
    ).encode()


def description_of(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        raw = read_json(path)
        version = raw["format_version"]
        digest = raw.pop("digest")
    except FileNotFoundError as error:
        check_left_aside(folder)
        raise EngramError(f"{folder} is no saved classifier: it has no {DESCRIPTION}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngramError(f"{path} cannot be read as a saved classifier ({error}): save it again") from error
    if version not in range(1, FORMAT_VERSION + 1):
        versions = raw.get("versions")
        made = versions.get("engram") if isinstance(versions, dict) else "unknown"
        raise EngramError(
            f"{path} has format version {version}, written by Engram {made}, but this Engram reads up to "
            f"{FORMAT_VERSION}: use that version, or fit again"
        )
    if hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest() != digest:
        raise EngramError(f"{path} was changed after it was saved: restore it, or save the classifier again")
    _check_seeing(raw, path)
    return dict(raw)


@dataclass(frozen=True)
class _Seeing:
    """How pictures are prepared, as far as a file says it."""

    image_shape: tuple[int, ...] = (3, 84, 84)
    crop: float | None = None
    light_ink: bool = False
    transductive: bool = False
    view: bool = False


def _check_seeing(raw: dict[str, Any], path: Path) -> None:
    check_types(raw, _Seeing, str(path))
    shape, crop = raw.get("image_shape", ()), raw.get("crop")
    if len(shape) != 3 or min(shape) < 1 or math.prod(shape) > MOST_NUMBERS:
        raise EngramError(f"{path}: image_shape = {shape} is no size of a picture: save the classifier again")
    if crop is not None and not 0 < crop <= 1:
        raise EngramError(f"{path}: crop = {crop} is no share of a picture: save the classifier again")


def tensors_of(path: Path, expected: str | None) -> dict[str, Tensor]:
    try:
        data = read_bytes(path, MOST_BYTES)
        if hashlib.sha256(data).hexdigest() != expected:
            raise EngramError(f"{path} is damaged or was changed ({len(data)} bytes): restore it, or save again")
        return tensors_from_bytes(data)
    except (OSError, SafetensorError) as error:
        raise EngramError(f"{path} cannot be read ({error}): restore it, or save the classifier again") from error


def put(path: Path, data: bytes) -> None:
    try:
        disk.put(path, data)
    except OSError as error:
        raise disk.unwritten(path, error) from error


def check_left_aside(folder: Path) -> None:
    """Until version 2 a classifier's folder was moved aside while it was saved, and a kill could leave it there."""
    aside = sorted(folder.parent.glob(f".{folder.name}.old.*/{DESCRIPTION}")) if folder.name else []
    if aside:
        raise EngramError(f"{folder} was left in {aside[-1].parent} when a save was interrupted: move it back")


def refuse_own_code(parts: tuple[dict[str, Any] | None, ...], where: str, way_out: str) -> None:
    for part in parts:
        for key in ("method", "backbone"):
            if part is not None and ":" in part[key]:  # importing it would run code that the folder names
                raise EngramError(
                    f"{where} names the {key} '{part[key]}', code that is not Engram's, and a saved classifier runs "
                    f"none: {way_out}"
                )


def check_plain(label: Any) -> None:
    if not isinstance(label, str | int | float):
        raise EngramError(f"the class {label!r} is a {type(label).__name__}: only text and numbers can be saved")


def inside(folder: Path, name: str) -> Path:
    if Path(name).name != name:
        raise ValueError(f"it names the memory {name!r}, which is no folder of its own")
    return folder.resolve() / name
