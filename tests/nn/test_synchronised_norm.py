"""BatchNorm of all processes: halves as the whole, running statistics, names that stay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from engram.nn import synchronised_norm
from engram.nn.synchronised_norm import SynchronisedNorm, synchronise
from engram.nn.task_norm import TaskNorm


def test_two_halves_are_normalised_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    images = torch.randn(6, 3, 4, 4) * 2 + 5
    whole, half = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    other = torch.stack([images[3:].mean((0, 2, 3)), images[3:].var((0, 2, 3), correction=0)])

    def gathered(own: Tensor) -> Tensor:
        return torch.stack([own, other])

    monkeypatch.setattr(synchronised_norm.Gathered, "apply", gathered)
    norm = SynchronisedNorm(half)
    assert torch.allclose(norm(images[:3]), whole(images)[:3], atol=1e-5)
    for name, value in whole.state_dict().items():
        assert torch.allclose(half.state_dict()[name], value, atol=1e-5), f"{name}: shared with the layer before"
    assert torch.allclose(norm.eval()(images), whole.eval()(images), atol=1e-5)


def test_names_stay_and_norms_of_a_task_are_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), TaskNorm(2))
    names, weight = list(model.state_dict()), model[1].weight
    synchronise(model)
    assert list(model.state_dict()) == names and model[1].weight is weight
    assert isinstance(model[1], SynchronisedNorm) and isinstance(model[2], TaskNorm)
