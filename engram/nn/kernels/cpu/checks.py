"""What every kernel in C may be given: the numbers of each argument, looked at before a pointer leaves Python.

C reads as far as the sizes say. A tensor of another type, layout or length would be read past its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LANES = 16
"""channels the kernels take at a time"""
LARGEST = 2**31
"""what an int in C does not hold: numbers of one image, or of one row"""


@dataclass(frozen=True)
class Needed:
    """One argument: how many numbers, of which type; ``may_lack`` is one that may be NULL."""

    count: int
    dtype: torch.dtype = torch.float32
    may_lack: bool = False


def _sums(s: Any, count: int, dtype: torch.dtype = torch.float64) -> Needed:
    return Needed(s.threads * count, dtype)


def _map(s: Any) -> tuple[Needed, Needed, Needed, Needed]:
    """A map, half a map, the places in it, and one number of each channel."""
    half = s.rows * (s.height // 2) * (s.width // 2) * s.channels
    whole = s.rows * s.height * s.width * s.channels
    return Needed(whole), Needed(half), Needed(half, torch.uint8), Needed(s.channels)


def _rows(s: Any) -> tuple[Needed, Needed, Needed, Needed]:
    """Rows, what is kept of each graph, how often each position counts, and one number of each channel."""
    graphs = Needed(s.rows // s.positions * s.channels, may_lack=True)
    return Needed(s.rows * s.channels), graphs, Needed(s.positions, may_lack=True), Needed(s.channels)


def _pool_forward(s: Any) -> Sequence[Needed]:
    whole, half, places, channel = _map(s)
    return whole, channel, channel, half, places


def _pool_sums(s: Any) -> Sequence[Needed]:
    whole, half, places, channel = _map(s)
    return whole, half, places, half, channel, _sums(s, 2 * s.channels)


def _pool_backward(s: Any) -> Sequence[Needed]:
    whole, half, places, channel = _map(s)
    return whole, half, places, half, channel, channel, channel, whole


def _rows_forward(s: Any) -> Sequence[Needed]:
    rows, keep, _, channel = _rows(s)
    return rows, keep, channel, channel, rows


def _rows_sums(s: Any) -> Sequence[Needed]:
    rows, keep, counts, channel = _rows(s)
    scale, grad = Needed(channel.count, may_lack=True), Needed(rows.count, may_lack=True)
    return rows, channel, counts, keep, scale, scale, grad, _sums(s, 2 * s.channels)


def _rows_backward(s: Any) -> Sequence[Needed]:
    rows, keep, counts, channel = _rows(s)
    return rows, keep, channel, channel, rows, counts, channel, channel, rows


def _stem(s: Any) -> tuple[Needed, Needed, Needed]:
    """Images, half a map of outputs, and the places in it."""
    half = s.n * (s.height // 2) * (s.width // 2) * s.outputs
    return Needed(s.n * s.colours * s.height * s.width), Needed(half), Needed(half, torch.uint8)


def _patch_moments(s: Any) -> Sequence[Needed]:
    return _stem(s)[0], _sums(s, (9 * s.colours + 1) * 9 * s.colours)


def _stem_forward(s: Any) -> Sequence[Needed]:
    images, half, places = _stem(s)
    return images, Needed(9 * s.colours * s.outputs), Needed(s.outputs), half, places


def _stem_backward(s: Any) -> Sequence[Needed]:
    images, half, places = _stem(s)
    return images, half, places, half, _sums(s, (9 * s.colours + 1) * s.outputs, torch.float32)


def _tiles(s: Any) -> tuple[Needed, Needed, Needed]:
    """Input, filters and output of a convolution."""
    made = s.n * (s.height + 2 * s.pad - 2) * (s.width + 2 * s.pad - 2) * s.outputs
    filters = (s.side + 2) ** 2 * s.channels * s.outputs
    return Needed(s.n * s.height * s.width * s.channels), Needed(filters), Needed(made)


def _winograd_backward(s: Any) -> Sequence[Needed]:
    given, filters, made = _tiles(s)
    return given, made, filters, given, _sums(s, filters.count, torch.float32)


SIGNATURES: dict[str, Callable[[Any], Sequence[Needed]]] = {
    "pool_forward": _pool_forward,
    "pool_sums": _pool_sums,
    "pool_backward": _pool_backward,
    "rows_forward": _rows_forward,
    "rows_sums": _rows_sums,
    "rows_backward": _rows_backward,
    "patch_moments": _patch_moments,
    "stem_forward": _stem_forward,
    "stem_backward": _stem_backward,
    "winograd_forward": _tiles,
    "winograd_backward": _winograd_backward,
}


def check_call(name: str, tensors: Sequence[Tensor | None], sizes: Any) -> None:
    """ValueError at the first argument of a kernel that is not what its sizes say."""
    _check_sizes(name, sizes)
    needed = SIGNATURES[name](sizes)
    if len(tensors) != len(needed):
        raise ValueError(f"{name} takes {len(needed)} tensors but {len(tensors)} were given")
    for place, (tensor, need) in enumerate(zip(tensors, needed, strict=True)):
        if tensor is None:
            if not need.may_lack:
                raise ValueError(f"{name} needs its argument {place}")
            continue
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()
        if not plain or tensor.dtype is not need.dtype or tensor.numel() != need.count:
            raise ValueError(
                f"{name} was given {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device} as its argument {place}, "
                f"where {need.count} numbers of {need.dtype} next to each other on the CPU are needed"
            )


def _check_sizes(name: str, sizes: Any) -> None:
    """Sizes that no kernel is written for: channels that fill no register, no positions, numbers beyond an int."""
    given = {field: getattr(sizes, field) for field, *_ in sizes._fields_ if field != "slope"}
    many = {"n", "rows"}  # long in C
    extent = 1
    for field, value in given.items():
        if value < 0 or (field == "threads" and value < 1):
            raise ValueError(f"{name} was given {field} = {value}")
        if field in ("channels", "outputs") and value % LANES:
            raise ValueError(f"{name} was given {value} {field}, which must be a multiple of {LANES}")
        extent *= max(1, value + 2 if field in ("height", "width") else value) if field not in many else 1
    if given.get("positions", 1) < 1 or given.get("rows", 0) % given.get("positions", 1):
        raise ValueError(f"{name} was given {given['rows']} rows for graphs of {given['positions']}")
    if given.get("side", 3) not in (3, 4):
        raise ValueError(f"{name} was given tiles of {given['side']}")
    if extent >= LARGEST * given["threads"]:
        raise ValueError(f"{name} was given images of more numbers than it can count")
