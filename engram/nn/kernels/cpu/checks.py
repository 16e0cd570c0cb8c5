"""What every kernel in C may be given: the numbers of each argument, looked at before a pointer leaves Python.

C reads as far as the sizes say. A tensor of another type, layout or length would be read past its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

LANES = 16
"""channels the kernels take at a time"""
LARGEST = 2**31
"""what an int in C does not hold: numbers of one image, or of one row"""


class Needed(NamedTuple):
    """One argument: how many numbers, of which type; ``may_lack`` is one that may be NULL."""

    numbers: int
    dtype: torch.dtype = torch.float32
    may_lack: bool = False


def _sums(s: Any, count: int, dtype: torch.dtype = torch.float64) -> Needed:
    return Needed(s.threads * count, dtype)


def _map(s: Any) -> dict[str, Needed]:
    """The whole map, half of it, the places in it, and one number of each channel."""
    half = s.rows * (s.height // 2) * (s.width // 2) * s.channels
    return {
        "whole": Needed(s.rows * s.height * s.width * s.channels),
        "half": Needed(half),
        "places": Needed(half, torch.uint8),
        "channel": Needed(s.channels),
        "sums": _sums(s, 2 * s.channels),
    }


def _rows(s: Any) -> dict[str, Needed]:
    """Rows, what is kept of each graph, how often each position counts, and one number of each channel."""
    return {
        "rows": Needed(s.rows * s.channels),
        "keep": Needed(s.rows // s.positions * s.channels, may_lack=True),
        "counts": Needed(s.positions, may_lack=True),
        "channel": Needed(s.channels),
        "scale": Needed(s.channels, may_lack=True),
        "grad": Needed(s.rows * s.channels, may_lack=True),
        "sums": _sums(s, 2 * s.channels),
    }


def _stem(s: Any) -> dict[str, Needed]:
    """Images, half a map of outputs, the places in it, weight and bias; moments of patches."""
    half, patch = s.n * (s.height // 2) * (s.width // 2) * s.outputs, 9 * s.colours
    return {
        "images": Needed(s.n * s.colours * s.height * s.width),
        "half": Needed(half),
        "places": Needed(half, torch.uint8),
        "weight": Needed(patch * s.outputs),
        "bias": Needed(s.outputs),
        "moments": _sums(s, (patch + 1) * patch),
        "sums": _sums(s, (patch + 1) * s.outputs, torch.float32),
    }


def _tiles(s: Any) -> dict[str, Needed]:
    """Input, filters and output of a convolution."""
    filters = (s.side + 2) ** 2 * s.channels * s.outputs
    return {
        "given": Needed(s.n * s.height * s.width * s.channels),
        "filters": Needed(filters),
        "made": Needed(s.n * (s.height + 2 * s.pad - 2) * (s.width + 2 * s.pad - 2) * s.outputs),
        "sums": _sums(s, filters, torch.float32),
    }


SIGNATURES: dict[str, tuple[Callable[[Any], dict[str, Needed]], str]] = {
    "pool_forward": (_map, "whole channel channel half places"),
    "pool_sums": (_map, "whole half places half channel sums"),
    "pool_backward": (_map, "whole half places half channel channel channel whole"),
    "rows_forward": (_rows, "rows keep channel channel rows"),
    "rows_sums": (_rows, "rows channel counts keep scale scale grad sums"),
    "rows_backward": (_rows, "rows keep channel channel rows counts channel channel rows"),
    "patch_moments": (_stem, "images moments"),
    "stem_forward": (_stem, "images weight bias half places"),
    "stem_backward": (_stem, "images half places half sums"),
    "winograd_forward": (_tiles, "given filters made"),
    "winograd_backward": (_tiles, "given made filters given sums"),
}
"""kernel -> its arguments in order, by the names of what its sizes give"""


def needed(name: str, sizes: Any) -> list[Needed]:
    """What a kernel takes."""
    by_name, order = SIGNATURES[name]
    known = by_name(sizes)
    return [known[argument] for argument in order.split()]


def check_call(name: str, tensors: Sequence[Tensor | None], sizes: Any) -> None:
    """ValueError at the first argument of a kernel that is not what its sizes say."""
    _check_sizes(name, sizes)
    arguments = needed(name, sizes)
    if len(tensors) != len(arguments):
        raise ValueError(f"{name} takes {len(arguments)} tensors but {len(tensors)} were given")
    for place, (tensor, need) in enumerate(zip(tensors, arguments, strict=True)):
        if tensor is None:
            if not need.may_lack:
                raise ValueError(f"{name} needs its argument {place}")
            continue
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()
        if not plain or tensor.dtype is not need.dtype or tensor.numel() != need.numbers:
            raise ValueError(
                f"{name} was given {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device} as its argument {place}, "
                f"where {need.numbers} numbers of {need.dtype} next to each other on the CPU are needed"
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
