"""What PyTorch's own operations compute is the equation of the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn import kernels
from engram.nn.backbones import BACKBONES, build_backbone
from engram.nn.encoder import Encoder
from engram.nn.kernels import pytorch
from engram.nn.kernels.serving import plain, training


def test_dropout_takes_whole_channels_of_a_graph() -> None:
    torch.manual_seed(0)
    norm, values = nn.BatchNorm1d(8), torch.randn(6, 8)
    torch.manual_seed(1)
    found = kernels.pointwise(values, norm, 1.0, 0.5, 2).unflatten(0, (2, 3))
    kept = found.abs().sum(1) > 0
    assert kept.any() and not kept.all()
    expected = 2 * F.batch_norm(values, None, None, training=True).unflatten(0, (2, 3)) * kept[:, None]
    torch.testing.assert_close(found, expected)


def test_each_output_has_its_own_group_of_channels() -> None:
    values, weight, bias = torch.randn(3, 8), torch.randn(2, 4), torch.randn(2)
    expected = torch.stack([values[:, :4] @ weight[0], values[:, 4:] @ weight[1]], 1) + bias
    torch.testing.assert_close(kernels.group_product(values, weight, bias), expected)


def test_a_gate_that_is_shut_keeps_its_state_and_an_open_one_takes_the_new() -> None:
    new, state = torch.randn(1, 2, 4), torch.randn(2, 4)
    gates, candidate = torch.zeros(8, 4), torch.zeros(4, 4)
    for update, expected in ((-100.0, state), (100.0, torch.tanh(new[0]))):
        given = torch.cat([torch.full_like(new, update), torch.zeros_like(new), new], -1)
        torch.testing.assert_close(pytorch.paper_gate(given, state, gates, candidate)[0], expected)


def test_the_librarys_gate_walks_through_time_slot_by_slot() -> None:
    cell, nodes, state = nn.GRUCell(4, 4), torch.randn(2, 3, 5, 4), torch.randn(3, 5, 4)
    states = pytorch.library_gate(nodes, state, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    first = cell(nodes[0].flatten(0, 1), state.flatten(0, 1))
    torch.testing.assert_close(states[0].flatten(0, 1), first)
    torch.testing.assert_close(states[1].flatten(0, 1), cell(nodes[1].flatten(0, 1), first))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    pytorch.compiled.cache_clear()
    pytorch._lacking.clear()
    yield
    pytorch.compiled.cache_clear()
    pytorch._lacking.clear()


class OnGpu(Tensor):
    """Says that it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def asked(name: str, train: bool = True) -> bool:
    backbone = build_backbone(name, (3, 84, 84), {}).train(train)
    return pytorch.may_compile(torch.zeros(1).as_subclass(OnGpu), backbone)


def test_residual_encoders_are_compiled_while_they_are_trained_on_a_gpu_and_others_never() -> None:
    assert not asked("resnet12")  # nothing is trained
    with training():
        residual = {name for name in BACKBONES if "resnet1" in name or "wrn" in name}
        assert {name for name in residual if asked(name)} == residual
        assert not asked("conv4") and not asked("resnet12", train=False)
        assert not pytorch.may_compile(torch.zeros(1), build_backbone("resnet12", (3, 84, 84), {}))
        with plain():
            assert not asked("resnet12")
        with torch.no_grad():
            assert not asked("resnet12")


def test_the_same_features_and_the_training_knows_whose_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda f: lambda *given: f(*given))
    encoder = Encoder(build_backbone("resnet12", (3, 32, 32), {}), (0.5,) * 3, (0.2,) * 3).eval()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with training() as use:
        assert use.by == "library"
        assert torch.equal(pytorch.compiled(Encoder._pass)(encoder, images), encoder(images))
        assert use.by == "inductor"


def test_where_compiling_fails_the_step_goes_on_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fails(function: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*given: Any) -> Any:
            tried.append(function)
            raise torch._dynamo.exc.BackendCompilerFailed(function, RuntimeError("no compiler"), None)

        return broken

    monkeypatch.setattr(torch, "compile", fails)
    with training() as use:
        assert pytorch.compiled(torch.neg)(torch.ones(2)).tolist() == [-1, -1]
        assert use.by == "library" and len(tried) == 1
        assert not asked("resnet12") and "could not be compiled" in use.lacking and "no compiler" in use.lacking
