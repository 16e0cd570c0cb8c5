"""Running a method in double precision, so that an exact probe cannot mistake rounding for a dependence.

In float32 a method whose logits run into the hundreds moves its probabilities by 1e-5 when only the shape of a batch
changes. In float64 the same happens at 1e-13, far below any tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from engram.types import Episode, Method


class _Float64ForFloat32(TorchFunctionMode):
    """Whoever asks for float32 gets float64: ``x.float()``, ``x.to(torch.float32)``, ``dtype=torch.float32``."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.float:
            return args[0].double()
        widened = [torch.float64 if a is torch.float32 else a for a in args]
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*widened, **named)


@contextmanager
def double_precision() -> Iterator[None]:
    """Inside, tensors are created and cast in float64 where float32 is asked for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64ForFloat32():
            yield
    finally:
        torch.set_default_dtype(before)


def doubled_method(method: Method) -> Method:
    """A copy with float64 weights; the method itself is left as it is."""
    return deepcopy(method).double()


def doubled(episode: Episode) -> Episode:
    """Float features in float64; images of bytes as they are."""
    if not episode.support.is_floating_point():
        return episode
    return replace(episode, support=episode.support.double(), query=episode.query.double())
