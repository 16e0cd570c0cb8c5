"""The processes that make one training or evaluation together: which of them this is, its share of the work, what they
tell another.

A process that works alone, as nearly all do, is the first of one: it shares nothing out and nothing waits.
`engram.machine.together` brings several together.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from engram.errors import EngramError

CUT_OFF = re.compile("connect|peer|timed out|closed", re.IGNORECASE)
"""what errors say where the other side of a message is gone"""


class LostProcessError(EngramError):
    """Another process of this run has ended, or cannot be reached."""


@dataclass(frozen=True)
class Share:
    """A part of the work: the ``rank``-th of ``count`` equal ones."""

    rank: int = 0
    count: int = 1

    def of(self, size: int) -> slice:
        """Of so many things in a row."""
        return slice(self.rank * size // self.count, (self.rank + 1) * size // self.count)

    def rows(self, sizes: Sequence[int], device: torch.device) -> Tensor | None:
        """Where shares of ``sizes``, one for each of several lists, lie in these lists, one after the other; None: all
        of them."""
        if self.count == 1:
            return None
        starts = [self.count * sum(sizes[:i]) + self.rank * size for i, size in enumerate(sizes)]
        return torch.cat([torch.arange(a, a + n, device=device) for a, n in zip(starts, sizes, strict=True)])


ALL = Share()
_mine = ALL
_silent = False
Result = TypeVar("Result")
Message: TypeAlias = Generator[Tensor, None, Result]
"""work that stops where the processes have something to tell: a tensor, to be added up over all of them in its place"""


@contextmanager
def joined(share: Share, backend: str, **place: Any) -> Iterator[None]:
    """Inside, this process is one of several that know each other; ``place`` is where they meet."""
    global _mine
    with _heard():
        dist.init_process_group(backend, rank=share.rank, world_size=share.count, **place)
    _mine = share
    try:
        yield
    finally:
        _mine = ALL
        dist.destroy_process_group()


def mine() -> Share:
    return _mine


def is_first() -> bool:
    """Whether this is the process that writes and shows what all of them do."""
    return _mine.rank == 0


def cut_graphs() -> bool:
    """Whether what they tell each other, over gloo, cannot be a part of a CUDA graph but stands between two."""
    return _mine.count > 1 and "nccl" not in dist.get_backend_config()


@contextmanager
def in_silence() -> Iterator[None]:
    """While a graph is captured that must not hold a message: who speaks gets a RuntimeError instead."""
    global _silent
    _silent = True
    try:
        yield
    finally:
        _silent = False


@torch.no_grad()
def averaging(tensors: Sequence[Tensor]) -> Message[None]:
    """Put the mean over all processes into each tensor, by one message."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    yield flat
    flat /= _mine.count
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def told(pieces: Message[Result]) -> Result:
    """What comes of work in pieces, each message between them added up over the processes."""
    while True:
        try:
            add_up(next(pieces))
        except StopIteration as end:
            return end.value


def add_up(message: Tensor) -> None:
    """The sum over all processes in the place of what each of them has."""
    with _heard():
        dist.all_reduce(message)


def mean(number: Tensor) -> Tensor:
    """Over all processes, as a constant."""
    if _mine.count == 1:
        return number
    numbers = [number.detach() / 1]
    told(averaging(numbers))
    return numbers[0]


def most(*values: float) -> tuple[float, ...]:
    """The largest of each over all processes: told between hosts, so that no device is waited for."""
    if _mine.count == 1:
        return values
    numbers = torch.tensor(values, dtype=torch.float64)
    with _heard():
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
    return tuple(numbers.tolist())


def gathered(value: Any) -> list[Any]:
    """What every process gives, in their order."""
    values: list[Any] = [value] * _mine.count
    if _mine.count > 1:
        with _heard():
            dist.all_gather_object(values, value)
    return values


def chained(own: list[Any], share: Share) -> list[Any]:
    """The lists that processes with their ``share`` each have, one after the other."""
    return own if share.count == 1 else [thing for given in gathered(own) for thing in given]


def copy_from_first(tensors: Sequence[Tensor]) -> None:
    """Every process goes on with the tensors of the first."""
    for tensor in tensors if _mine.count > 1 else ():
        whole = tensor.contiguous()
        with _heard():
            dist.broadcast(whole, 0)
        tensor.copy_(whole)


@contextmanager
def agreed() -> Iterator[None]:
    """What one process cannot do, none goes on with: all raise the sentence of the first that has one."""
    own: EngramError | None = None
    try:
        yield
    except EngramError as error:
        own = error
    told = gathered((own and str(own), socket.gethostname()))
    if own and is_first():
        raise own
    for rank, (sentence, host) in enumerate(told):
        if sentence:
            raise EngramError(f"process {rank} on {host}: {sentence}") from own


@contextmanager
def _heard() -> Iterator[None]:
    if _silent:
        raise RuntimeError("its processes tell each other something in the midst of it, over gloo")
    try:
        yield
    except RuntimeError as error:
        if not CUT_OFF.search(str(error)):
            raise
        raise LostProcessError("another process of this run has ended, or can no longer be reached") from error


class Gathered(torch.autograd.Function):
    """x_r of every process r, (count, ...); the gradient of each is summed over the processes, which all use it."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        parts = [torch.empty_like(own) for _ in range(_mine.count)]
        with _heard():
            dist.all_gather(parts, own.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].clone(memory_format=torch.contiguous_format)
        with _heard():
            dist.all_reduce(summed)
        return summed[_mine.rank]
