"""What makes a step fast while it lasts: TF32 and searched kernels on a GPU, kept memory on the CPU, own kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from engram.machine.device import kept_memory
from engram.nn import kernels

SWITCHES: tuple[tuple[Any, str], ...] = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
)


@contextmanager
def fast_arithmetic(device: torch.device, plain: bool = False) -> Iterator[kernels.Use]:
    """While training: TF32 and cuDNN's search for fast kernels on a GPU, memory kept on the CPU; and kernels of our
    own, unless ``plain``. What has been had of these is told by what it gives."""
    switches = SWITCHES if device.type == "cuda" else ()
    before = [getattr(module, name) for module, name in switches]
    memory = nullcontext() if device.type == "cuda" else kept_memory()
    with memory, kernels.plain(plain), kernels.training() as use:
        try:
            for module, name in switches:
                setattr(module, name, True)
            yield use
        finally:
            for (module, name), value in zip(switches, before, strict=True):
                setattr(module, name, value)
