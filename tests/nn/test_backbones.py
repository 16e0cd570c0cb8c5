import pytest
import torch

from engram.errors import EngramError
from engram.nn.backbones import BACKBONES, build_backbone
from engram.nn.backbones.conv5 import ShiftNorm
from engram.nn.encoder import Encoder

COUNTS = {
    "conv4": 1_283_200,
    "conv64": 113_088,
    "conv64_map": 113_088,
    "conv64_relation": 113_088,
    "conv64_cova": 112_832,
    "conv64_signed": 112_832,
    "conv5": 149_504,
    "conv32": 28_896,
    "conv32_same": 28_896,
    "resnet12": 7_996_800,
    "resnet12_wide": 12_424_320,
    "resnet12_wide_map": 12_424_320,
    "resnet12_film": 7_996_800,
    "resnet18": 11_176_512,
    "resnet18_map": 11_176_512,
    "resnet_snail": 3_545_056,
    "wrn28_10": 36_472_784,
    "flatten": 0,
}


@pytest.mark.parametrize("name", BACKBONES)
def test_parameter_counts_are_those_of_the_papers(name: str) -> None:
    with torch.device("cpu"):
        backbone = build_backbone(name, (3, 84, 84), {})
    assert sum(p.numel() for p in backbone.parameters()) == COUNTS[name]


@pytest.mark.parametrize(
    ("name", "shape", "out"),
    [
        ("conv4", (3, 84, 84), (128,)),
        ("conv4", (1, 28, 28), (128,)),
        ("conv64", (3, 84, 84), (1600,)),
        ("conv64_map", (3, 84, 84), (64, 5, 5)),
        ("conv64_relation", (3, 84, 84), (64, 19, 19)),
        ("conv64_relation", (1, 28, 28), (64, 5, 5)),
        ("conv64_cova", (3, 84, 84), (64, 21, 21)),
        ("conv32", (3, 84, 84), (800,)),
        ("conv32_same", (3, 84, 84), (1152,)),
        ("resnet12", (3, 84, 84), (512,)),
        ("resnet12_film", (3, 84, 84), (512,)),
        ("resnet12_wide_map", (3, 84, 84), (640, 5, 5)),
        ("resnet18", (3, 84, 84), (512,)),
        ("resnet18_map", (3, 84, 84), (512, 3, 3)),
        ("conv64_relation", (3, 84, 84), (64, 19, 19)),
    ],
)
def test_out_shape_is_what_comes_out(name: str, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    backbone = build_backbone(name, shape, {}).eval()
    assert backbone.out_shape == out == tuple(backbone(torch.randn(2, *shape)).shape[1:])


@pytest.mark.parametrize(("name", "settings"), [("resnet18", {}), ("resnet12_wide", {"widths": (4, 4, 4, 8)})])
def test_a_map_is_what_the_vector_is_the_mean_of(name: str, settings: dict[str, object]) -> None:
    vector, kept = (build_backbone(n, (3, 40, 40), settings).eval() for n in (name, f"{name}_map"))
    kept.load_state_dict(vector.state_dict())  # by name: a map can start from a trained vector
    images = torch.randn(2, 3, 40, 40)
    torch.testing.assert_close(kept(images).mean((2, 3)), vector(images))
    assert kept.out_shape == tuple(kept(images).shape[1:])


def test_conv4_can_end_in_96() -> None:
    assert build_backbone("conv4", (3, 84, 84), {"out_features": 96}).out_shape == (96,)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(EngramError, match="no backbone 'resnt12'; did you mean 'resnet12'"):
        build_backbone("resnt12", (3, 84, 84), {})


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(EngramError, match="'conv4' has no key 'outputs'; known: dropout, out_features"):
        build_backbone("conv4", (3, 84, 84), {"outputs": 5})
    with pytest.raises(EngramError, match="'conv32' has no key 'widht'; did you mean 'width'"):
        build_backbone("conv32", (3, 84, 84), {"widht": 5})
    with pytest.raises(EngramError, match="'flatten' has no key 'width'$"):
        build_backbone("flatten", (3, 84, 84), {"width": 5})


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("conv32", {"width": 0}, "width = 0 but whole numbers of at least 1"),
        ("conv64", {"width": -4}, "width = -4 but whole numbers of at least 1"),
        ("conv64", {"width": 4.0}, "width = 4.0 but whole numbers of at least 1"),
        ("conv4", {"out_features": "96"}, "out_features = 96 but whole numbers"),
        ("conv4", {"dropout": 0.5}, "dropout = 0.5 but a list of 2 numbers is needed"),
        ("conv4", {"dropout": [0.5, 1.5]}, "it lies from 0 to below 1"),
        ("resnet12", {"widths": [4, 4, 4]}, "a list of 4 numbers is needed"),
        ("resnet12_wide", {"widths": [4, 4, 4, 0]}, "whole numbers of at least 1"),
        ("wrn28_10", {"factor": 0}, "factor = 0 but"),
    ],
)
def test_settings_that_cannot_be_are_told(name: str, settings: dict[str, object], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        build_backbone(name, (3, 84, 84), settings)


def test_settings_change_what_they_name() -> None:
    assert build_backbone("conv32", (1, 28, 28), {"width": 4}).out_shape == (4,)
    assert build_backbone("resnet12_wide", (1, 28, 28), {"widths": [4, 4, 4, 8], "dropout": 0.1}).out_shape == (8,)


def test_images_too_small_are_refused() -> None:
    with pytest.raises(EngramError, match="cannot take images of 1x10x10"):
        build_backbone("conv4", (1, 10, 10), {})


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


def test_a_norm_without_gain_is_the_ordinary_one_with_gain_one() -> None:
    torch.manual_seed(0)
    ours, ordinary = ShiftNorm(6), torch.nn.BatchNorm2d(6)
    with torch.no_grad():
        ordinary.bias.copy_(ours.bias.uniform_(-1, 1))
    for training in (True, True, False):
        ours.train(training), ordinary.train(training)
        images, weights = torch.randn(5, 6, 4, 4), torch.randn(5, 6, 4, 4)
        found = []
        for norm in (ours, ordinary):
            inputs = images.clone().requires_grad_()
            outputs = norm(inputs)
            found.append((outputs, *torch.autograd.grad((outputs * weights).sum(), (inputs, norm.bias))))
        torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(ours.running_var, ordinary.running_var)
    assert ours(images.bfloat16()).dtype == torch.bfloat16  # else all that follows would leave half precision
