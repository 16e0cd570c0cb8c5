"""Image encoders. Each is built as ``Class(image_shape, **settings)`` and says its ``out_shape``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from torch import nn

from engram.errors import EngramError, nearest
from engram.nn.backbones.conv import (
    Conv4,
    Conv5,
    ConvBlocks,
    ConvMap,
    ConvSame,
    ConvSigned,
    CovaConv,
    Flatten,
    RelationConv,
)
from engram.nn.backbones.efficientnet import EfficientNetLite0, EfficientNetLite1
from engram.nn.backbones.resnet import FilmResNet12, ResNet12, ResNet12Map, ResNet18, ResNet18Map, WideResNet28
from engram.nn.backbones.snail import SnailResNet

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "conv4": Conv4,
    "conv64": ConvBlocks,
    "conv64_map": ConvMap,
    "conv64_relation": RelationConv,
    "conv64_cova": CovaConv,
    "conv64_signed": ConvSigned,
    "conv5": Conv5,
    "conv32": partial(ConvBlocks, width=32),
    "conv32_same": ConvSame,
    "resnet12": ResNet12,
    "resnet12_wide": partial(ResNet12, widths=(64, 160, 320, 640)),
    "resnet12_wide_map": partial(ResNet12Map, widths=(64, 160, 320, 640)),
    "resnet12_film": FilmResNet12,
    "resnet18": ResNet18,
    "resnet18_map": ResNet18Map,
    "resnet_snail": SnailResNet,
    "wrn28_10": WideResNet28,
    "efficientnet_lite0": EfficientNetLite0,
    "efficientnet_lite1": EfficientNetLite1,
    "flatten": Flatten,
}


def build_backbone(name: str, image_shape: tuple[int, ...], settings: dict[str, Any]) -> nn.Module:
    """A backbone by its name in `BACKBONES`; settings that it does not know or cannot have are refused by name."""
    if name not in BACKBONES:
        raise EngramError(f"there is no backbone '{name}'{nearest(name, BACKBONES)}")
    known = {key: p.default for key, p in signature(BACKBONES[name]).parameters.items() if key != "image_shape"}
    for key, value in settings.items():
        if key not in known:
            raise EngramError(f"[backbone]: '{name}' has no key '{key}'{nearest(key, known) if known else ''}")
        _check_setting(key, value, known[key])
    try:
        return BACKBONES[name](image_shape, **settings)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{key} = {value}" for key, value in settings.items())
        raise EngramError(f"[backbone]: '{name}' cannot be built with {given} ({error})") from error


def _check_setting(key: str, value: Any, default: Any) -> None:
    """Channels and sides are whole and positive, the shares of dropout lie in [0, 1); a list keeps its length."""
    expected, given = (v if isinstance(v, tuple | list) else (v,) for v in (default, value))
    if isinstance(default, tuple) and not (isinstance(value, tuple | list) and len(given) == len(expected)):
        raise EngramError(f"[backbone]: {key} = {value} but a list of {len(expected)} numbers is needed")
    if isinstance(default, int | float) and isinstance(value, tuple | list):
        raise EngramError(f"[backbone]: {key} = {value} but one number is needed")
    for number in given:
        if isinstance(expected[0], int) and (type(number) is not int or number < 1):
            raise EngramError(f"[backbone]: {key} = {value} but whole numbers of at least 1 are needed")
        if isinstance(expected[0], float) and not (isinstance(number, int | float) and 0 <= number < 1):
            raise EngramError(f"[backbone]: {key} = {value} but it lies from 0 to below 1")
