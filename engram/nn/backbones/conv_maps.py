"""Encoders of four convolution blocks that keep their map of positions."""

from __future__ import annotations

from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape


class RelationConv(nn.Module):
    """Relation Net's four blocks of 64, also CTM's shallow encoder: 64x19x19 at 84x84, 113,088 parameters.

    conv3x3 - BatchNorm - ReLU; the first two blocks have no padding and end in a 2x2 pooling. Weights from
    N(0, 2 / (9 width)), biases 0. Shapes: (n, C, H, W) -> (n, width, h, w)
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for stage in range(4):
            conv = nn.Conv2d(width if stage else image_shape[0], width, 3, padding=0 if stage < 2 else 1)
            nn.init.normal_(conv.weight, std=(2 / (9 * width)) ** 0.5)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            pool = [nn.MaxPool2d(2)] if stage < 2 else []  # before the activation: the same for a quarter of the work
            self.blocks.append(nn.Sequential(conv, nn.BatchNorm2d(width), *pool, nn.ReLU(inplace=True)))
        self.out_shape: tuple[int, ...] = probe_shape(self, image_shape)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(images)
        return features
