"""The CPU kernels in C against the ordinary modules: values, gradients, statistics; and doing without a compiler."""

import copy
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn import fused, graph, native
from engram.nn.backbones.conv import ConvBlock
from engram.nn.native import library, winograd
from engram.nn.pairs import on_pairs

needs_kernels = pytest.mark.usefixtures("kernels")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def kernels() -> None:
    if why := native.missing():
        pytest.skip(f"no kernels, as {why}")


@pytest.fixture
def no_library() -> Iterator[None]:
    """Nothing known of compilers before the test, nor after it."""
    for known in (library.missing, library.library):
        known.cache_clear()
    yield
    for known in (library.missing, library.library):
        known.cache_clear()


def assert_near(mine: list[Tensor], expected: list[Tensor], tolerance: float = 2e-5) -> None:
    for fast, exact in zip(mine, expected, strict=True):
        assert fast.shape == exact.shape
        assert (fast - exact).norm().item() <= tolerance * exact.norm().item() + 1e-6


def outcome(result: Tensor, gradient: Tensor, module: nn.Module, inputs: Tensor) -> list[Tensor]:
    result.backward(gradient.to(result.dtype))
    found = [result.detach(), *(p.grad for p in module.parameters()), *module.buffers()]
    return [value.double() for value in [*found, *([inputs.grad] if inputs.requires_grad else [])]]


@pytest.mark.parametrize(("size", "side"), [((12, 12), 4), ((6, 6), 3), ((3, 3), 3), ((40, 40), 4), ((1, 1), 0)])
def test_the_tile_with_fewest_products_is_taken(size: tuple[int, int], side: int) -> None:
    assert winograd.tile_side(*size) == side


@needs_kernels
@pytest.mark.parametrize("side", [3, 4])
@pytest.mark.parametrize(("shape", "pad"), [((7, 16, 6, 6), 1), ((3, 32, 14, 14), 0), ((40, 48, 5, 9), 1)])
def test_winograd_is_a_convolution(shape: tuple[int, ...], pad: int, side: int) -> None:
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(80, shape[1], 3, 3, requires_grad=True)
    mine = winograd.Convolution.apply(x, weight, pad, side)
    exact = F.conv2d(x.double(), weight.double(), padding=pad)
    gradient = torch.randn_like(mine)
    found = torch.autograd.grad(mine, (x, weight), gradient)
    wanted = torch.autograd.grad(exact, (x, weight), gradient.double())
    assert_near([mine, *found], [exact, *wanted])


@needs_kernels
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
    with native.in_use():
        fast = block(mine)
    assert type(fast.grad_fn).__name__ == ("NormPoolBackward" if wants_gradient else "StemBackward")
    gradient = torch.randn_like(fast)
    assert_near(outcome(fast, gradient, block, mine), outcome(plain(exact), gradient, plain, exact), 1e-4)


@needs_kernels
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
        with native.in_use(), fused.plain(not fast):
            result = on_pairs(module, graph.differences(given))
        assert torch.equal(result, result.transpose(1, 2)) or not fast
        answers.append(outcome(result, gradient, module, given))
    assert_near(*answers)


@needs_kernels
def test_sums_do_not_depend_on_which_thread_comes_first() -> None:
    block, images = ConvBlock(3, 64, 0.2, 1, False), torch.randn(64, 3, 12, 12)
    following, gradients = ConvBlock(64, 64, 0.2, 1, True), []
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for _ in range(4):
            with native.in_use():
                following(block(images)).square().sum().backward()
            gradients.append([p.grad.clone() for p in (*block.parameters(), *following.parameters())])
            block.zero_grad(), following.zero_grad()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in gradients[1:] for a, b in zip(gradients[0], other, strict=True))


@needs_kernels
def test_only_what_the_kernels_know_is_theirs() -> None:
    norm, images = nn.BatchNorm2d(16), torch.randn(2, 16, 4, 4)
    assert not native.usable(images, norm), "outside a training"
    with native.in_use():
        assert native.usable(images, norm)
        assert not native.usable(images, nn.BatchNorm2d(20)), "channels in sixteens"
        assert not native.usable(images, nn.GroupNorm(4, 16))
        assert not native.usable(images, nn.BatchNorm2d(16, momentum=None))
        assert not native.usable(images, nn.BatchNorm2d(16, affine=False))
        assert not native.usable(images, type("Own", (nn.BatchNorm2d,), {})(16)), "it has a forward of its own"
        assert not native.usable(images[:0], norm)
        assert not native.usable(images, copy.deepcopy(norm).eval())
        assert not native.usable(images.bfloat16(), norm)
        assert not native.usable(images.double(), norm)
        with torch.no_grad():
            assert not native.usable(images, norm)
        with torch.autocast("cpu", torch.bfloat16):
            assert not native.usable(images, norm)
        with fused.plain():
            assert not native.usable(images, norm)
        inside: list[bool] = []
        torch.func.vmap(lambda x: inside.append(native.usable(x, norm)) or x)(images)
        assert inside == [False]


@needs_kernels
def test_a_hook_is_not_passed_by() -> None:
    block, seen = ConvBlock(16, 16, 0.2, 1, False), []
    block[0].register_forward_hook(lambda *_: seen.append(1))
    with native.in_use():
        block(torch.randn(2, 16, 6, 6))
        assert seen == [1]
        assert not native.takes(torch.randn(2, 16, 1, 1), list(ConvBlock(16, 16, 0.2, 1, False))[:4])


@needs_kernels
def test_one_value_per_channel_is_refused_as_by_pytorch() -> None:
    norm = nn.BatchNorm1d(16)
    with native.in_use(), pytest.raises(ValueError, match="1 value per channel"):
        native.norm_activate(torch.randn(1, 16), norm, 0.2, None, None, 1)


@needs_kernels
def test_what_is_default_elsewhere_does_not_reach_the_kernels() -> None:
    first, second = ConvBlock(3, 16, 0.2, 1, True), ConvBlock(16, 16, 0.2, 1, True)
    images = torch.randn(4, 3, 12, 12)
    torch.set_default_dtype(torch.float64)
    try:
        with native.in_use(), torch.device("meta"):
            result = second(first(images))
            result.sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert result.device.type == "cpu" and result.dtype is torch.float32


@needs_kernels
def test_a_training_in_another_thread_changes_nothing_here() -> None:
    norm, images, inside = nn.BatchNorm2d(16), torch.randn(2, 16, 4, 4), []
    entered, leave = threading.Event(), threading.Event()

    def train() -> None:
        with native.in_use():
            entered.set()
            leave.wait(10)
            inside.append(native.usable(images, norm))

    other = threading.Thread(target=train)
    other.start()
    entered.wait(10)
    assert not native.usable(images, norm)
    with native.in_use():
        leave.set()
        other.join()
        assert native.usable(images, norm) and inside == [True]
    assert not native.usable(images, norm)


@needs_kernels
def test_second_derivatives_are_refused_not_wrong() -> None:
    images = torch.randn(2, 16, 6, 6, requires_grad=True)
    with native.in_use():
        result = ConvBlock(16, 16, 0.2, 1, False)(images)
    (first,) = torch.autograd.grad(result.square().sum(), images, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@needs_kernels
def test_kernels_are_compiled_once_for_a_cache(no_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not native.missing()
    library.library.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    library.library()


@needs_kernels
def test_a_damaged_file_is_compiled_again_by_a_compiler_with_arguments(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", f"{shutil.which('cc') or shutil.which('gcc') or shutil.which('clang')} -g0")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "one"))
    library.library()
    (made,) = (tmp_path / "one" / "kernels").glob("*.so")
    damaged = tmp_path / "two" / "kernels" / made.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(made.read_bytes()[:20000])  # loaded, it would end the process
    damaged.with_suffix(".sha256").write_text(made.with_suffix(".sha256").read_text())
    library.library.cache_clear()
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "two"))
    library.library()
    assert damaged.stat().st_size > 20000


def test_no_compiler_is_told_in_words(no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "C compiler" in native.missing() or "x86-64" in native.missing()


@needs_kernels
@pytest.mark.parametrize(
    ("script", "says"), [("echo 'In a.c:' >&2; echo 'fatal error: omp.h' >&2; exit 1", "omp.h"), ("exit 3", "3")]
)
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, says: str
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "other"))
    assert says in native.missing() and "broken" in native.missing()
    assert not list((tmp_path / "other" / "kernels").iterdir())


@needs_kernels
def test_a_cache_that_cannot_be_written_is_told(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file"))
    assert "file" in native.missing()
