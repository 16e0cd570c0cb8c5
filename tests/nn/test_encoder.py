"""Pixels to features: normalisation and precision around a backbone."""

import torch

from engram.nn.backbones import build_backbone
from engram.nn.encoder import Encoder


def test_the_encoder_normalises_bytes_and_passes_floats() -> None:
    encoder = Encoder(build_backbone("flatten", (3, 2, 2), {}), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    images = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    expected = ((images / 255 - mean) / std).flatten(1)
    assert torch.allclose(encoder(images), expected, atol=1e-5)
    assert torch.equal(encoder(expected.view(4, 3, 2, 2)), expected)


def test_bf16_keeps_float32_outside() -> None:
    encoder = Encoder(build_backbone("conv32", (1, 28, 28), {}), (0.0,), (1.0,), "bf16").eval()
    images = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8)
    exact = Encoder(encoder.backbone, (0.0,), (1.0,)).eval()(images)
    rounded = encoder(images)
    assert rounded.dtype == torch.float32
    assert 0 < (rounded - exact).norm() / exact.norm() < 2e-2
