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


def test_what_does_not_fit_is_told_before_a_kernel_sees_it() -> None:
    values, layers = torch.randn(6, 16), [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)]
    assert serving.fits(torch.randn(2, 16, 4, 4), layers)
    assert not serving.fits(torch.randn(2, 64, 4, 4), layers) and not serving.fits(torch.randn(2, 16, 4), layers)
    assert not serving.fits(torch.randn(2, 16, 4, 4), [layers[0], nn.BatchNorm2d(16)])
    assert serving.alike(values, layers[0])
    assert not serving.alike(values.double(), layers[0]) and not serving.alike(values.to("meta"), layers[0])
    for positions, keep, says in ((4, None, "6 rows do not make graphs of 4"), (3, torch.ones(1, 16), "keep is")):
        with pytest.raises(ValueError, match=says):
            serving.check_graphs(values, keep, None, positions)
    serving.check_graphs(values, torch.ones(2, 16), serving.Counts(torch.ones(3), 3), 3)
    with pytest.raises(ValueError, match=r"bias is \(3,\) of torch.float32 on cpu where \(2,\) of torch.float32"):
        serving.check_shape("bias", torch.ones(3), (2,), values)
