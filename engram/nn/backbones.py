"""Image encoders. Each is built as ``Class(image_shape, **settings)`` and says its ``out_shape``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from engram.errors import EngramError, nearest


def _probe(module: nn.Module, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Output shape of one image; evaluation mode and no gradient, so nothing is disturbed."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return tuple(module(torch.zeros(1, *image_shape)).shape[1:])
    except RuntimeError as error:
        raise EngramError(
            f"{type(module).__name__} cannot take images of {'x'.join(map(str, image_shape))}: they shrink to nothing; "
            f"use larger images or a backbone with fewer poolings"
        ) from error
    finally:
        module.train(training)


class Conv4(nn.Module):
    """The 64-96-128-256 embedding of GNN, EGNN and CML-BGNN; 1,283,200 parameters at 84x84 with 128 outputs.

    Four stages conv3x3 - BatchNorm - pool - LeakyReLU(0.2), the second without padding, channel dropout 0.4 and 0.5
    in the last two; then linear and BatchNorm without activation. Shapes: (n, C, H, W) -> (n, out_features).
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        out_features: int = 128,
        dropout: tuple[float, float] = (0.4, 0.5),
    ) -> None:
        super().__init__()
        widths = (image_shape[0], 64, 96, 128, 256)
        self.blocks = nn.Sequential()
        for stage in range(4):
            layers: list[nn.Module] = [
                nn.Conv2d(widths[stage], widths[stage + 1], 3, padding=0 if stage == 1 else 1, bias=False),
                nn.BatchNorm2d(widths[stage + 1]),
                nn.MaxPool2d(2),  # before the activation: the same result, a quarter of the work
                nn.LeakyReLU(0.2, inplace=True),
            ]
            if stage >= 2:
                layers.append(nn.Dropout2d(dropout[stage - 2]))
            self.blocks.append(nn.Sequential(*layers))
        flat = torch.Size(_probe(self.blocks, image_shape)).numel()
        self.head = nn.Sequential(nn.Linear(flat, out_features), nn.BatchNorm1d(out_features))
        self.out_shape: tuple[int, ...] = (out_features,)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.head(self.blocks(images).flatten(1))
        return features


class ConvBlocks(nn.Module):
    """Four equal blocks conv3x3 - BatchNorm - ReLU - pool, flattened: conv64 (113,088) and conv32 (28,896 parameters).

    Pooling stands before the ReLU: both are monotone, so the result is the same for a quarter of the work.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__()
        channels = (image_shape[0], width, width, width, width)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(channels[i], channels[i + 1], 3, padding=1),
                    nn.BatchNorm2d(channels[i + 1]),
                    nn.MaxPool2d(2),
                    nn.ReLU(inplace=True),
                )
                for i in range(4)
            )
        )
        self.out_shape: tuple[int, ...] = (torch.Size(_probe(self.blocks, image_shape)).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).flatten(1)


class _ResidualBlock(nn.Module):
    """Three conv3x3 - BatchNorm with a 1x1 shortcut, activation after the sum, then pooling."""

    def __init__(self, inputs: int, outputs: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, width in enumerate((inputs, outputs, outputs)):
            layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            if i < 2:
                layers.append(activation())
        self.body = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.activation = activation()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.activation(self.body(x) + self.shortcut(x)))


class ResNet12(nn.Module):
    """Four residual blocks, LeakyReLU(0.1), global average: 64-128-256-512 has 7,996,800 parameters, the wide form
    64-160-320-640 has 12,424,320. Shapes: (n, C, H, W) -> (n, widths[-1])."""

    def __init__(
        self,
        image_shape: tuple[int, ...],
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        inputs = (image_shape[0], *widths[:-1])
        self.blocks = nn.Sequential(
            *(
                _ResidualBlock(i, o, lambda: nn.LeakyReLU(0.1, inplace=True))
                for i, o in zip(inputs, widths, strict=True)
            )
        )
        self.dropout = nn.Dropout(dropout)
        self.out_shape: tuple[int, ...] = (widths[-1],)
        _probe(self, image_shape)

    def forward(self, images: Tensor) -> Tensor:
        return self.dropout(self.blocks(images).mean((2, 3)))


class _WideBlock(nn.Module):
    """Pre-activation block; where widths differ the strided 1x1 shortcut sees the already normalised input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        pre = torch.relu(self.norm1(x))
        out = self.conv2(torch.relu(self.norm2(self.conv1(pre))))
        return out + (x if self.shortcut is None else self.shortcut(pre))


class WideResNet28(nn.Module):
    """WRN-28-10: 3 groups of 4 blocks, widths 160-320-640, strides 1-2-2, global average; 36,472,784 parameters."""

    def __init__(self, image_shape: tuple[int, ...], factor: int = 10) -> None:
        super().__init__()
        widths = [16 * factor, 32 * factor, 64 * factor]
        layers: list[nn.Module] = [nn.Conv2d(image_shape[0], 16, 3, padding=1, bias=False)]
        inputs = 16
        for width, stride in zip(widths, (1, 2, 2), strict=True):
            for block in range(4):
                layers.append(_WideBlock(inputs, width, stride if block == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.out_shape: tuple[int, ...] = (inputs,)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).mean((2, 3))


class Flatten(nn.Module):
    """No encoder: pixels (or given features) as they are. Shapes: (n, ...) -> (n, numel)."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_shape: tuple[int, ...] = (torch.Size(image_shape).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "conv4": Conv4,
    "conv64": ConvBlocks,
    "conv32": partial(ConvBlocks, width=32),
    "resnet12": ResNet12,
    "resnet12_wide": partial(ResNet12, widths=(64, 160, 320, 640)),
    "wrn28_10": WideResNet28,
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
    """Numbers of channels are whole and positive, the shares of dropout lie in [0, 1); a list keeps its length."""
    expected, given = (v if isinstance(v, tuple | list) else (v,) for v in (default, value))
    if isinstance(default, tuple) and not (isinstance(value, tuple | list) and len(given) == len(expected)):
        raise EngramError(f"[backbone]: {key} = {value} but a list of {len(expected)} numbers is needed")
    for number in given:
        if isinstance(expected[0], int) and (type(number) is not int or number < 1):
            raise EngramError(f"[backbone]: {key} = {value} but whole numbers of at least 1 are needed")
        if isinstance(expected[0], float) and not (isinstance(number, int | float) and 0 <= number < 1):
            raise EngramError(f"[backbone]: {key} = {value} but it lies from 0 to below 1")
