"""All backbones by name: their sizes, the shapes that come out of them, and settings that cannot be."""

import pytest
import torch

from engram.errors import EngramError
from engram.nn.backbones import BACKBONES, build_backbone

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
    "efficientnet_lite0": 4_652_008 - 1_281_000,  # without its classifier of 1,000 classes
    "efficientnet_lite1": 5_416_680 - 1_281_000,
    "flatten": 0,
}


@pytest.mark.parametrize("name", BACKBONES)
def test_parameter_counts_are_those_of_the_papers(name: str) -> None:
    with torch.device("cpu"):
        backbone = build_backbone(name, (3, 84, 84), {})
    assert sum(p.numel() for p in backbone.parameters()) == COUNTS[name]


@pytest.mark.parametrize(("name", "settings"), [("resnet18", {}), ("resnet12_wide", {"widths": (4, 4, 4, 8)})])
def test_a_map_is_what_the_vector_is_the_mean_of(name: str, settings: dict[str, object]) -> None:
    vector, kept = (build_backbone(n, (3, 40, 40), settings).eval() for n in (name, f"{name}_map"))
    kept.load_state_dict(vector.state_dict())  # by name: a map can start from a trained vector
    images = torch.randn(2, 3, 40, 40)
    torch.testing.assert_close(kept(images).mean((2, 3)), vector(images))
    assert kept.out_shape == tuple(kept(images).shape[1:])


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
        ("resnet12", {"drop_block": 1.0}, "drop_block = 1.0 but it lies from 0 to below 1"),
        ("resnet12_wide", {"drop_block": -0.1}, "drop_block = -0.1 but it lies from 0 to below 1"),
        ("resnet12_wide", {"drop_block": [0.1, 0.1]}, r"drop_block = \[0.1, 0.1\] but one number is needed"),
        ("resnet12_wide_map", {"drop_block_size": 0}, "drop_block_size = 0 but whole numbers of at least 1"),
        ("resnet12_wide", {"drop_block_size": 2.5}, "drop_block_size = 2.5 but whole numbers of at least 1"),
    ],
)
def test_settings_that_cannot_be_are_told(name: str, settings: dict[str, object], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        build_backbone(name, (3, 84, 84), settings)


def test_settings_change_what_they_name() -> None:
    assert build_backbone("conv32", (1, 28, 28), {"width": 4}).out_shape == (4,)
    assert build_backbone("resnet12_wide", (1, 28, 28), {"widths": [4, 4, 4, 8], "dropout": 0.1}).out_shape == (8,)
