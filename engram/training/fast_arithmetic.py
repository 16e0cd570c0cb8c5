"""What makes a step fast while it lasts: TF32 and searched kernels on a GPU, kept memory and C kernels on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engram.machine.device import kept_memory
from engram.nn import fused, native
from engram.nn.backbones.conv import ConvBlock
from engram.nn.graph import PointwiseNet
from engram.types import Method


def knows_our_layers(method: Method) -> bool:
    """Whether the method has layers that the kernels in C know."""
    blocks = [part for part in method.modules() if isinstance(part, ConvBlock | PointwiseNet)]
    norms = [norm for part in blocks for norm in (part.norms if isinstance(part, PointwiseNet) else [part[1]])]
    return fused.allowed() and any(native.known(norm) for norm in norms)


@contextmanager
def fast_arithmetic(device: torch.device) -> Iterator[None]:
    """While training: TF32 and cuDNN's search for fast kernels on a GPU, memory kept and kernels in C on the CPU."""
    switches: tuple[tuple[Any, str], ...] = (
        (torch.backends.cuda.matmul, "allow_tf32"),
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cudnn, "benchmark"),
    )
    if device.type != "cuda":
        with kept_memory(), native.in_use():
            yield
        return
    before = [getattr(module, name) for module, name in switches]
    try:
        for module, name in switches:
            setattr(module, name, True)
        yield
    finally:
        for (module, name), value in zip(switches, before, strict=True):
            setattr(module, name, value)
