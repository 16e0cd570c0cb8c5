"""What comes out of a backbone, found by asking it, and whether a head can take it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.nn.backbones import build_backbone
from engram.nn.backbones.contract import map_shape, probe_shape, vector_width


def test_images_too_small_are_refused() -> None:
    with pytest.raises(EngramError, match="cannot take images of 1x10x10"):
        build_backbone("conv4", (1, 10, 10), {})


@pytest.mark.parametrize("training", [True, False])
def test_asking_disturbs_nothing(training: bool) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert probe_shape(module, (1, 8, 6)) == (2, 6, 4)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.training is training


def test_a_head_gets_a_vector_or_a_map_as_it_needs() -> None:
    vector, kept = build_backbone("flatten", (3, 2, 2), {}), build_backbone("conv64_map", (1, 32, 32), {"width": 4})
    assert vector_width(vector, "LwoF") == 12 and map_shape(kept, "CTM") == (4, 2, 2)
    with pytest.raises(EngramError, match="LwoF takes one vector per image but the backbone gives a map of 4x2x2"):
        vector_width(kept, "LwoF")
    with pytest.raises(EngramError, match="CTM takes a map per image .* gives a vector of 12: .* resnet18_map"):
        map_shape(vector, "CTM")
