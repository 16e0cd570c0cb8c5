"""The GPU kernels, run by Triton's interpreter on the CPU, against the ordinary modules: values and gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("triton", reason="the interpreter of the kernels is Triton's")
if torch.cuda.is_available():
    pytest.skip("the interpreter runs where there is no GPU", allow_module_level=True)

from engram.nn import graph
from engram.nn.bayes import EdgePosterior
from engram.nn.kernels import cuda
from engram.nn.kernels.cuda import launches
from engram.nn.pairs import on_pairs


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small tensors, too, need several tiles for each program."""
    monkeypatch.setattr(launches, "PROGRAMS", 2)
    torch.manual_seed(0)


def norm(channels: int) -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(channels)
    nn.init.normal_(made.weight)  # also negative: then the smallest value of a window becomes the largest
    nn.init.normal_(made.bias)
    return made


def with_other_norms(net: nn.Module) -> nn.Module:
    """Weights of BatchNorm that are not 1, as a kernel might forget them."""
    for part in net.modules():
        if isinstance(part, nn.BatchNorm1d):
            nn.init.uniform_(part.weight)
    return net


def outcome(result: Tensor, gradient: Tensor, *modules: nn.Module, inputs: tuple[Tensor, ...] = ()) -> list[Tensor]:
    result.backward(gradient)
    values = [p.grad for m in modules for p in m.parameters()] + [b.float() for m in modules for b in m.buffers()]
    return [result.detach(), *(i.grad for i in inputs), *values]


def assert_equal(fast: list[Tensor], plain: list[Tensor]) -> None:
    for mine, expected in zip(fast, plain, strict=True):
        assert float((mine - expected).norm()) <= 1e-5 * float(expected.norm()) + 1e-5


@pytest.mark.parametrize("shape", [(5, 8, 6, 6), (3, 12, 5, 7)])
def test_norm_pool_activate_is_the_three_modules(shape: tuple[int, ...]) -> None:
    fast = norm(shape[1])
    plain = copy.deepcopy(fast)
    x = torch.randn(shape).relu()  # many equal values: the first of them has the gradient
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    gradient = torch.randn(shape[0], shape[1], shape[2] // 2, shape[3] // 2)
    layers = [nn.Identity(), fast, nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    mine = outcome(cuda.conv_block(a, layers), gradient, fast, inputs=(a,))
    expected = outcome(F.leaky_relu(F.max_pool2d(plain(b), 2), 0.2), gradient, plain, inputs=(b,))
    assert_equal(mine, expected)


@pytest.mark.parametrize("shape", [(9, 3, 8, 8), (4, 1, 7, 5)])
def test_first_stage_is_normalisation_convolution_and_the_three_modules(shape: tuple[int, ...]) -> None:
    channels = shape[1]
    fast, convolution = norm(16), nn.Conv2d(channels, 16, 3, padding=1, bias=False)
    plain, plain_convolution = copy.deepcopy(fast), copy.deepcopy(convolution)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
    pixels[0] = 255  # a flat image: all its windows are ties
    scale, shift = torch.rand(channels, 1, 1) / 100, torch.randn(channels, 1, 1)
    gradient = torch.randn(shape[0], 16, shape[2] // 2, shape[3] // 2)
    layers = [convolution, fast, nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    mine = outcome(cuda.first_stage(pixels, layers, scale, shift), gradient, fast, convolution)
    mapped = F.leaky_relu(F.max_pool2d(plain(plain_convolution(pixels * scale + shift)), 2), 0.2)
    assert_equal(mine, outcome(mapped, gradient, plain, plain_convolution))


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("last_activation", [True, False])
def test_pointwise_nets_agree(dropout: float, last_activation: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, gradient, answers = torch.randn(3, 4, 4, 5), torch.randn(3, 4, 4, 1), []
    made = graph.PointwiseNet([5, 6, 7], outputs=1, dropout=dropout, last_activation=last_activation)
    with_other_norms(made)
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        torch.manual_seed(1)  # the same channels are dropped
        net, inputs = copy.deepcopy(made), x.clone().requires_grad_()
        answers.append(outcome(net(inputs), gradient, net, inputs=(inputs,)))
    assert_equal(*answers)


def test_groups_of_the_edge_posterior_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, made, answers = torch.randn(3, 4, 6), with_other_norms(EdgePosterior(6, 0.2)), []
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        torch.manual_seed(1)
        net, inputs = copy.deepcopy(made), nodes.clone().requires_grad_()
        pairs = graph.differences(inputs)
        fields = torch.stack(net(None, pairs, pairs[..., 0])[1:])
        answers.append(outcome(fields, torch.ones_like(fields), net, inputs=(inputs,)))
    assert_equal(*answers)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_pair_that_counts_twice_trains_as_two(dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, made, answers = torch.randn(3, 5, 6), with_other_norms(graph.edge_net(6, dropout)), []
    gradient = torch.randn(3, 5, 5, 1)
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        torch.manual_seed(1)
        net, inputs = copy.deepcopy(made), nodes.clone().requires_grad_()
        answers.append(outcome(on_pairs(net, graph.differences(inputs)), gradient, net, inputs=(inputs,)))
    assert_equal(*answers)


def test_second_derivatives_are_refused_not_wrong() -> None:
    values = torch.randn(3, 8, requires_grad=True)
    result = cuda.group_product(values, torch.randn(2, 4), torch.zeros(2)).square().sum()
    (first,) = torch.autograd.grad(result, values, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
