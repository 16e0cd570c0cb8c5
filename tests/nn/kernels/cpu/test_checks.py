"""Nothing reaches the kernels in C that their sizes do not speak of: PyTorch raises, and so do they."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engram.nn import kernels
from engram.nn.backbones.conv import ConvBlock
from engram.nn.kernels import Counts, cpu
from engram.nn.kernels.cpu.checks import SIGNATURES, check_call, needed
from engram.nn.kernels.cpu.functions import NormSizes, StemSizes
from engram.nn.kernels.cpu.library import FOLDER, SOURCES
from engram.nn.kernels.cpu.winograd import TileSizes

pytestmark = pytest.mark.usefixtures("compiled")
SIZES = {"pool": NormSizes, "rows": NormSizes, "stem": StemSizes, "patch": StemSizes, "winograd": TileSizes}


def sizes_of(name: str) -> NormSizes | StemSizes | TileSizes:
    return {
        NormSizes: NormSizes(6, 4, 4, 16, 3, slope=0.2),
        StemSizes: StemSizes(2, 3, 4, 4, 16, slope=0.2),
        TileSizes: TileSizes(2, 8, 8, 16, 32, 1, 4),
    }[SIZES[name.split("_")[0]]]


def test_every_kernel_has_a_signature() -> None:
    written = {name for file in SOURCES for name in re.findall(r"^void (\w+)\(", (FOLDER / file).read_text(), re.M)}
    assert written == set(SIGNATURES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_each_argument_is_held_to_its_type_and_length(name: str) -> None:
    sizes = sizes_of(name)
    good = [torch.zeros(need.numbers, dtype=need.dtype) for need in needed(name, sizes)]
    check_call(name, good, sizes)
    spoiled: list[Callable[[Tensor], Tensor]] = [
        lambda t: t[:-1],
        lambda t: torch.cat([t, t]),
        lambda t: t.to(torch.int64),
        lambda t: t.repeat(2)[::2],
        lambda t: t.to_sparse(),
        lambda t: t.to("meta"),
    ]
    for place in range(len(good)):
        for spoil in spoiled:
            with pytest.raises(ValueError, match=f"{name} was given .* as its argument {place}, where"):
                check_call(name, [*good[:place], spoil(good[place]), *good[place + 1 :]], sizes)
    with pytest.raises(ValueError, match=f"{name} takes {len(good)} tensors but {len(good) - 1}"):
        check_call(name, good[:-1], sizes)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (NormSizes(6, 4, 4, 20, 3), "20 channels, which must be a multiple of 16"),
        (NormSizes(7, 4, 4, 16, 3), "7 rows for graphs of 3"),
        (NormSizes(6, 4, 4, 16, 0), "6 rows for graphs of 0"),
        (NormSizes(6, 40000, 40000, 16, 3), "more numbers than it can count"),
        (NormSizes(-6, 4, 4, 16, 3), "rows = -6"),
    ],
)
def test_sizes_that_no_kernel_is_written_for(sizes: NormSizes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_call("rows_forward", [], sizes)


@pytest.mark.parametrize(
    ("shape", "layer", "norm"),
    [
        ((2, 64, 8, 8), nn.Conv2d(16, 32, 3, padding=1), 32),
        ((2, 16, 8, 8), nn.Conv2d(64, 32, 3, padding=1), 32),
        ((2, 16, 8, 8), nn.Conv2d(16, 64, 3, padding=1), 16),
        ((2, 3, 8, 8), nn.Conv2d(1, 16, 3, padding=1), 16),
        ((2, 16, 8), nn.Conv2d(16, 16, 3, padding=1), 16),
        ((2, 16, 8, 8), nn.Conv2d(16, 16, 3, padding=1).double(), 16),
    ],
)
def test_channels_that_do_not_fit_raise_as_with_pytorch(shape: tuple[int, ...], layer: nn.Conv2d, norm: int) -> None:
    layers = [layer, nn.BatchNorm2d(norm), nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    images = torch.randn(shape, requires_grad=True)
    for plain in (True, False):
        with kernels.training(), kernels.plain(plain), pytest.raises((RuntimeError, ValueError)):
            kernels.conv_block(images, layers)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(16, 16, 5, padding=1), nn.Conv2d(16, 16, 3, stride=2), nn.Conv2d(16, 16, 3, groups=4)]
)
def test_other_convolutions_are_left_to_pytorch(layer: nn.Conv2d) -> None:
    layers = [layer, nn.BatchNorm2d(16), nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    images = torch.randn(2, 16, 12, 12)
    with kernels.training():
        assert not cpu.takes_block(images, layers)
        found = kernels.conv_block(images, layers)
    with kernels.plain():
        torch.testing.assert_close(found, kernels.conv_block(images, layers))


def test_rows_that_do_not_fit_raise() -> None:
    norm, values = nn.BatchNorm1d(16), torch.randn(6, 16)
    with kernels.training():
        for rows, graphs in ((torch.randn(6, 64), 2), (torch.randn(7, 16), 2), (torch.randn(2, 16), 3)):
            with pytest.raises((RuntimeError, ValueError)):
                kernels.pointwise(rows, norm, 0.2, 0.5, graphs)
        with pytest.raises(ValueError, match=r"counts is \(2,\) on cpu where \(3,\) is needed"):
            kernels.pointwise(values, norm, 0.2, 0.0, 2, Counts(torch.ones(2), 2))
        with pytest.raises(ValueError, match=r"keep is \(1, 16\) on cpu where \(2, 16\) is needed"):
            cpu.norm_activate(values, norm, 0.2, torch.ones(1, 16), None, 3)


@pytest.mark.parametrize("scale", [1.0, 1e19, 1e30, 1e38])
@pytest.mark.parametrize("colours", [3, 16])
def test_great_values_come_out_as_with_pytorch(scale: float, colours: int) -> None:
    images, answers = torch.rand(4, colours, 9, 8) * scale, []
    block = ConvBlock(colours, 16, 0.2, 1, True)
    for plain in (False, True):
        block[1].reset_running_stats()
        with kernels.training(), kernels.plain(plain):
            answers.append([block(images).detach(), *(value.clone() for value in block[1].buffers())])
    for mine, expected in zip(*answers, strict=True):
        assert torch.equal(mine.isfinite(), expected.isfinite())
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
