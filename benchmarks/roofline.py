"""The least time a step could take on this machine: its work is counted, the machine's speeds are measured.

Counted are, as in docs/decisions/0006-the-fast-step.md, the products (convolutions and matrix products, forward and
backward: operands read, results written) and the passes of each normalisation over its map. All else (activation,
pooling, dropout, optimiser) is taken as done in the same passes. Each pass takes whichever is longer, arithmetic or
traffic, and the passes follow each other:

    estimate = sum over passes of max(flops / flops_per_second, bytes / bytes_per_second)

It is no bound: a kernel that never writes a map beats it. Drawing, launches and small operations are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.measure import synchronise
from engram.nn import kernels
from engram.training.trainer import Trainer

PUBLIC_LOOP_MS = 383.0
"""one step of the authors' public loop on one H200 in the setting of `PUBLIC_SETTING`, in milliseconds"""
PUBLIC_SETTING = {"tasks_per_step": 80, "images_per_step": 800, "image_shape": (3, 84, 84), "stream_length": 8}
"""80 tasks of 10 images, 84x84, in sequences of 8, for a graph of `PUBLIC_LAYERS` layers"""
PUBLIC_LAYERS = 3

NORMALISATIONS = ("batch_norm", "layer_norm", "group_norm")
FORWARD_PASSES = 2
"""over a map that is normalised: read for its moments, read to be normalised"""
BACKWARD_PASSES = 3
"""read for the sums, read once more, its gradient written"""
COPIED_BYTES = {"cuda": 2**30, "cpu": 2**27}
MATRIX_SIZE = {"cuda": 8192, "cpu": 1024}
TRIALS = 5


@dataclass(frozen=True)
class Pass:
    """One pass over memory: what is computed in it, and what is read and written."""

    flops: float
    traffic: float
    """bytes"""
    dtype: torch.dtype


class PassCounter(TorchDispatchMode):
    """Lists the passes of all that runs inside it, backward too: it sees what is left after autograd and vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: list[Pass] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name, packet = func._schema.name.partition("::")[2], func._overloadpacket
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=result)
            self.passes.append(Pass(flops, _bytes(args) + _bytes(result) + _read_again(name, args), args[0].dtype))
        elif any(kind in name for kind in NORMALISATIONS):
            passes = BACKWARD_PASSES if name.endswith("backward") else FORWARD_PASSES
            self.passes.append(Pass(0, passes * _bytes(args[0]), args[0].dtype))
        return result


def _bytes(values: Any) -> int:
    """Of the tensors among the arguments or results of an operation."""
    if isinstance(values, Tensor):
        return values.numel() * values.element_size()
    return sum(_bytes(value) for value in values) if isinstance(values, tuple | list) else 0


def _read_again(name: str, args: Sequence[Any]) -> int:
    """A convolution goes backward as two products, and both read the gradient of its result."""
    return _bytes(args[0]) if name == "convolution_backward" and all(args[-1][:2]) else 0


def passes_of_a_step(trainer: Trainer) -> list[Pass]:
    """What one step does, counted while ordinary modules do it: fused kernels hide what they compute."""
    batch = trainer.source.draw(0.0)
    with kernels.plain(), PassCounter() as counter:
        trainer.update(batch)
    return counter.passes


@dataclass(frozen=True)
class Machine:
    """How fast this device copies and multiplies large tensors: the best of a few trials."""

    bytes_per_second: float
    flops_per_second: Mapping[torch.dtype, float]

    def seconds(self, step: Sequence[Pass]) -> float:
        """The estimate: each pass as long as its arithmetic or its traffic takes, one after the other."""
        return sum(max(self._arithmetic(p), p.traffic / self.bytes_per_second) for p in step)

    def _arithmetic(self, work: Pass) -> float:
        return work.flops / self.flops_per_second[work.dtype] if work.flops else 0.0


def measure_machine(device: torch.device, dtypes: set[torch.dtype]) -> Machine:
    """A large copy, and a large product in each precision that is used; a second at most on a GPU."""
    source = torch.ones(COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * _bytes(source) / _best(lambda: target.copy_(source), device)
    size = MATRIX_SIZE[device.type]
    speeds = {}
    for dtype in dtypes:
        matrix = torch.randn(size, size, dtype=dtype, device=device)
        speeds[dtype] = 2 * size**3 / _best(lambda matrix=matrix: matrix @ matrix, device)  # type: ignore[misc]
    return Machine(bandwidth, speeds)


def _best(call: Callable[[], object], device: torch.device) -> float:
    seconds = []
    for _ in range(TRIALS):
        synchronise(device)
        started = time.perf_counter()
        call()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def roofline(trainer: Trainer) -> dict[str, Any]:
    """The estimate for a trainer's step with what it is made of, ready for the file of a measurement."""
    step = passes_of_a_step(trainer)
    machine = measure_machine(trainer.device, {p.dtype for p in step if p.flops})
    return {
        "estimate_ms": round(1000 * machine.seconds(step), 4),
        "gflop": round(sum(p.flops for p in step) / 1e9, 3),
        "traffic_gb": round(sum(p.traffic for p in step) / 1e9, 4),
        "copy_gb_per_s": round(machine.bytes_per_second / 1e9, 2),
        "tflop_per_s": {str(d).removeprefix("torch."): round(v / 1e12, 4) for d, v in machine.flops_per_second.items()},
    }


def beside_the_public_loop(
    trainer: Trainer, device: str, setting: Mapping[str, Any], milliseconds: float
) -> float | None:
    """How many times faster a step is than the public loop's; None where it is not the same work on the same GPU."""
    is_same = all(setting[key] == value for key, value in PUBLIC_SETTING.items())
    layers = getattr(trainer.method.config, "n_layers", None) if trainer.recipe.method == "cml_bgnn" else None
    if "H200" not in device or not is_same or layers != PUBLIC_LAYERS:
        return None
    return round(PUBLIC_LOOP_MS / milliseconds, 2)
