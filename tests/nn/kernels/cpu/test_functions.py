"""The CPU kernels in C against the ordinary modules: values, gradients, statistics; and what is left to those."""

import copy
import threading

import pytest
import torch
from torch import Tensor, nn

from engram.nn import graph, kernels
from engram.nn.backbones.conv import ConvBlock, ShiftNorm
from engram.nn.kernels import cpu
from engram.nn.pairs import on_pairs
from engram.nn.task_norm import TaskBatchNorm, side_by_side

pytestmark = pytest.mark.usefixtures("compiled")


def assert_near(mine: list[Tensor], expected: list[Tensor], tolerance: float = 2e-5) -> None:
    for fast, exact in zip(mine, expected, strict=True):
        assert fast.shape == exact.shape
        assert (fast - exact).norm().item() <= tolerance * exact.norm().item() + 1e-6


def outcome(result: Tensor, gradient: Tensor, module: nn.Module, inputs: Tensor) -> list[Tensor]:
    result.backward(gradient.to(result.dtype))
    found = [result.detach(), *(p.grad for p in module.parameters()), *module.buffers()]
    return [value.double() for value in [*found, *([inputs.grad] if inputs.requires_grad else [])]]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("shape", "padding", "wants_gradient"),
    [((9, 1, 8, 8), 1, False), ((4, 3, 7, 5), 1, False), ((5, 3, 6, 6), 1, True), ((6, 16, 9, 7), 0, True)],
)
def test_a_stage_is_its_modules(shape: tuple[int, ...], padding: int, wants_gradient: bool, bias: bool) -> None:
    block = ConvBlock(shape[1], 32, 0.2, padding, bias)
    nn.init.normal_(block[1].weight)  # also negative: then the smallest value of a window becomes the largest
    nn.init.normal_(block[1].bias)
    plain = copy.deepcopy(block).double()
    images = torch.randn(shape)
    images[0] = 1.0  # a flat image: its windows are ties
    mine, exact = (images.clone().to(kind).requires_grad_(wants_gradient) for kind in (torch.float, torch.double))
    with kernels.training():
        fast = block(mine)
    assert type(fast.grad_fn).__name__ == ("NormPoolBackward" if wants_gradient else "StemBackward")
    gradient = torch.randn_like(fast)
    assert_near(outcome(fast, gradient, block, mine), outcome(plain(exact), gradient, plain, exact), 1e-4)


def test_a_map_gives_its_place_to_its_gradient_and_is_not_asked_twice() -> None:
    block, images = ConvBlock(16, 32, 0.2, 1, False), torch.randn(6, 16, 8, 8)
    with kernels.training():
        total = block(images).square().sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a map was written over by its gradient: go back through these layers once"):
        total.backward()


@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize(("colours", "wants_gradient"), [(3, False), (16, True)])
def test_a_stage_whose_tasks_are_normalised_by_themselves_is_its_modules(
    colours: int, wants_gradient: bool, gain: bool
) -> None:
    block = ConvBlock(colours, 32, 0.2, 1, False)
    if gain:
        nn.init.normal_(block[1].weight)
    else:
        block[1] = ShiftNorm(32)
    nn.init.normal_(block[1].bias)
    block[1] = TaskBatchNorm(block[1])
    plain, images = copy.deepcopy(block).double(), torch.randn(6, colours, 7, 6)
    mine, exact = (images.clone().to(kind).requires_grad_(wants_gradient) for kind in (torch.float, torch.double))
    with side_by_side(block, 3), side_by_side(plain, 3):
        with kernels.training() as use:
            fast = block(mine)
        expected = plain(exact)
    assert use.by == cpu.NAME and fast.shape == expected.shape
    gradient = torch.randn_like(fast)
    assert_near(outcome(fast, gradient, block, mine), outcome(expected, gradient, plain, exact), 1e-4)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_pair_that_counts_twice_trains_as_two(dropout: float) -> None:
    net = graph.PointwiseNet([16, 32, 16], outputs=1, dropout=dropout, dropout_each=True)
    for norm in net.norms:
        nn.init.uniform_(norm.weight)  # not 1, which a kernel might forget
    plain, answers = copy.deepcopy(net), []
    nodes, gradient = torch.randn(5, 6, 16), torch.randn(5, 6, 6, 1)
    for fast, module in ((True, net), (False, plain)):
        torch.manual_seed(1)  # the same channels are dropped
        given = nodes.clone().requires_grad_()
        with kernels.training(), kernels.plain(not fast):
            result = on_pairs(module, graph.differences(given))
        assert torch.equal(result, result.transpose(1, 2)) or not fast
        answers.append(outcome(result, gradient, module, given))
    assert_near(*answers)


def test_sums_do_not_depend_on_which_thread_comes_first() -> None:
    block, images = ConvBlock(3, 64, 0.2, 1, False), torch.randn(64, 3, 12, 12)
    following, gradients = ConvBlock(64, 64, 0.2, 1, True), []
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for _ in range(4):
            with kernels.training():
                following(block(images)).square().sum().backward()
            gradients.append([p.grad.clone() for p in (*block.parameters(), *following.parameters())])
            block.zero_grad(), following.zero_grad()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in gradients[1:] for a, b in zip(gradients[0], other, strict=True))


def test_only_what_the_kernels_know_is_theirs() -> None:
    norm, images = nn.BatchNorm2d(16), torch.randn(2, 16, 4, 4)
    assert not cpu.takes_rows(images, norm), "outside a training"
    with kernels.training():
        assert cpu.takes_rows(images, norm)
        assert not cpu.takes_rows(images, nn.BatchNorm2d(20)), "channels in sixteens"
        assert not cpu.takes_rows(images, nn.GroupNorm(4, 16))
        assert not cpu.takes_rows(images, nn.BatchNorm2d(16, momentum=None))
        assert not cpu.takes_rows(images, nn.BatchNorm2d(16, affine=False))
        own = type("Own", (nn.BatchNorm2d,), {"forward": lambda self, x: x})
        assert not cpu.takes_rows(images, own(16)), "it has a forward of its own"
        assert not cpu.takes_rows(images[:0], norm)
        assert not cpu.takes_rows(images, copy.deepcopy(norm).eval())
        assert not cpu.takes_rows(images.bfloat16(), norm)
        assert not cpu.takes_rows(images.double(), norm)
        with torch.no_grad():
            assert not cpu.takes_rows(images, norm)
        with torch.autocast("cpu", torch.bfloat16):
            assert not cpu.takes_rows(images, norm)
        with kernels.plain():
            assert not cpu.takes_rows(images, norm)
        inside: list[bool] = []
        torch.func.vmap(lambda x: inside.append(cpu.takes_rows(x, norm)) or x)(images)
        assert inside == [False]


def test_a_hook_is_not_passed_by() -> None:
    block, seen = ConvBlock(16, 16, 0.2, 1, False), []
    block[0].register_forward_hook(lambda *_: seen.append(1))
    with kernels.training():
        block(torch.randn(2, 16, 6, 6))
        assert seen == [1]
        assert not cpu.takes_block(torch.randn(2, 16, 1, 1), list(ConvBlock(16, 16, 0.2, 1, False))[:4])


def test_one_value_per_channel_is_refused_as_by_pytorch() -> None:
    norm = nn.BatchNorm1d(16)
    with kernels.training(), pytest.raises(ValueError, match="1 value per channel"):
        cpu.norm_activate(torch.randn(1, 16), norm, 0.2, None, None, 1)


def test_what_is_default_elsewhere_does_not_reach_the_kernels() -> None:
    first, second = ConvBlock(3, 16, 0.2, 1, True), ConvBlock(16, 16, 0.2, 1, True)
    images = torch.randn(4, 3, 12, 12)
    torch.set_default_dtype(torch.float64)
    try:
        with kernels.training(), torch.device("meta"):
            result = second(first(images))
            result.sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert result.device.type == "cpu" and result.dtype is torch.float32


def test_a_training_in_another_thread_changes_nothing_here() -> None:
    norm, images, inside = nn.BatchNorm2d(16), torch.randn(2, 16, 4, 4), []
    entered, leave = threading.Event(), threading.Event()

    def train() -> None:
        with kernels.training():
            entered.set()
            leave.wait(10)
            inside.append(cpu.takes_rows(images, norm))

    other = threading.Thread(target=train)
    other.start()
    entered.wait(10)
    assert not cpu.takes_rows(images, norm)
    with kernels.training():
        leave.set()
        other.join()
        assert cpu.takes_rows(images, norm) and inside == [True]
    assert not cpu.takes_rows(images, norm)


def test_second_derivatives_are_refused_not_wrong() -> None:
    images = torch.randn(2, 16, 6, 6, requires_grad=True)
    with kernels.training():
        result = ConvBlock(16, 16, 0.2, 1, False)(images)
    (first,) = torch.autograd.grad(result.square().sum(), images, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
