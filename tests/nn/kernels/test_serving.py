"""Switches of a thread, and what a training is told of its kernels."""

import pytest
import torch
from torch import nn

from engram.nn import kernels
from engram.nn.kernels import cpu, cuda, serving


def test_plain_lasts_as_long_as_its_block_and_nothing_inside_undoes_it() -> None:
    assert serving.may_serve()
    with kernels.plain():
        assert not serving.may_serve()
        with kernels.plain(False):
            assert not serving.may_serve()
    with kernels.plain(False):
        assert serving.may_serve()


def test_nothing_serves_without_gradients_or_inside_a_transform() -> None:
    with torch.no_grad():
        assert not serving.may_serve()
    inside: list[bool] = []
    torch.func.vmap(lambda x: inside.append(serving.may_serve()) or x)(torch.zeros(2))
    assert inside == [False]


def test_gpu_kernels_are_not_used_where_there_is_no_gpu() -> None:
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.MaxPool2d(2), nn.ReLU()]
    values = torch.zeros(2, 3, 4, 4)
    assert not cuda.takes_block(values, layers) and not cuda.trains(values)
    assert torch.cuda.is_available() or cuda.missing() == "there is no CUDA GPU"


def test_a_training_is_told_what_its_layers_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "missing", lambda: "there is none")
    with kernels.training() as use:
        kernels.pointwise(torch.randn(4, 20), nn.BatchNorm1d(20), 0.2, 0.0, 1)
        assert use == kernels.Use("library", ""), "no kernels for 20 channels anywhere"
        kernels.pointwise(torch.randn(4, 16), nn.BatchNorm1d(16), 0.2, 0.0, 1)
    assert use.by == "library"
    assert use.lacking == "kernels in C are not used, as there is none: steps take up to twice as long"


def test_two_trainings_are_told_apart() -> None:
    if why := cpu.missing():
        pytest.skip(f"no kernels, as {why}")
    with kernels.training() as first:
        kernels.pointwise(torch.randn(4, 16), nn.BatchNorm1d(16), 0.2, 0.0, 1)
        with kernels.training() as second, kernels.plain():
            kernels.pointwise(torch.randn(4, 16), nn.BatchNorm1d(16), 0.2, 0.0, 1)
    assert (first.by, second.by) == ("c", "library")
