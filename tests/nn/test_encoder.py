"""Pixels to features: normalisation and precision around a backbone."""

from __future__ import annotations

import torch
from torch import nn

from engram.nn.backbones import build_backbone
from engram.nn.encoder import Encoder, Mirrored, folded


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


def test_the_same_features_without_batch_norm_after_convolutions() -> None:
    torch.manual_seed(0)
    for name in ("conv4", "conv64", "resnet12"):
        backbone = build_backbone(name, (3, 32, 32), {})
        with torch.no_grad():
            backbone.train()(torch.randn(8, 3, 32, 32))  # running statistics that are not 0 and 1
            for part in backbone.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.weight.uniform_(0.5, 2)
                    part.bias.uniform_(-1, 1)
            images, carried = torch.randn(4, 3, 32, 32), folded(backbone)
            assert torch.allclose(carried(images), backbone.eval()(images), atol=1e-4), name
    assert not any(
        isinstance(part, nn.BatchNorm2d) for part in folded(build_backbone("conv4", (3, 32, 32), {})).modules()
    )


def test_the_original_is_left_as_it_was() -> None:
    backbone = build_backbone("conv32", (1, 28, 28), {})
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    folded(backbone)
    assert backbone.training and all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())


def test_a_mirrored_encoder_gives_the_mean_of_picture_and_mirror_image() -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (3, 1, 16, 16), dtype=torch.uint8)
    for name in ("conv32", "conv64_map"):  # a vector and a map
        encoder = Encoder(build_backbone(name, (1, 16, 16), {}), (0.5,), (0.5,)).eval()
        both = Mirrored(encoder)
        turned = encoder(images.flip(3))
        turned = turned.flip(3) if name == "conv64_map" else turned
        torch.testing.assert_close(both(images), (encoder(images) + turned) / 2)
        again = both(images.flip(3))
        torch.testing.assert_close(again.flip(3) if name == "conv64_map" else again, both(images))
        assert both.out_shape == encoder.out_shape and not torch.allclose(both(images), encoder(images))
