"""Optimiser, learning rate and clipping from a recipe's [train] table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from engram import processes
from engram.errors import EngramError
from engram.recipes.schema import TrainSettings
from engram.types import Method


def build_optimiser(method: Method, settings: TrainSettings, device: torch.device, captured: bool = False) -> Optimizer:
    """Adam or SGD over ``method.parameter_groups()``; a group may bring its own ``lr`` or ``weight_decay``.

    ``captured``: its step may become part of a CUDA graph, so the learning rate is a number on the device.
    """
    if settings.clip != "none" and settings.clip_value <= 0:
        raise EngramError(f"[train]: clip = '{settings.clip}' needs clip_value above 0, not {settings.clip_value}")
    # Frozen parameters stay out, also where a method lists them.
    listed = [
        {**group, "params": [p for p in group["params"] if p.requires_grad]} for group in method.parameter_groups()
    ]
    groups = [group for group in listed if group["params"]]
    if not groups:
        raise EngramError(
            f"{type(method).__name__} has no parameters to train with this backbone: engram bench METHOD "
            f"--recipe RECIPE asks it as it is"
        )
    optimiser: Optimizer
    shared: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "fused": True}
    if settings.optimiser == "adam":
        first, second = settings.betas or (0.9, 0.999)
        optimiser = Adam(groups, betas=(first, second), capturable=captured, **shared)
    else:
        optimiser = SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov, **shared)
    for group in optimiser.param_groups:
        group["initial_lr"] = float(group["lr"])
        if captured:  # as fused kernels read it
            group["lr"] = torch.tensor(group["initial_lr"], dtype=torch.float32, device=device)
    return optimiser


def learning_rate_factor(settings: TrainSettings, iteration: int, progress: float | None = None) -> float:
    """What the learning rate is multiplied by before step ``iteration`` (counted from 0).

    constant: 1;  step: schedule_factor ^ floor(iteration / schedule_step);  milestones: schedule_factor ^ those passed,
    or the last passed one's own of milestone_factors;
    linear: 1 - progress;  cosine: (1 + cos(pi * progress)) / 2, where progress is iteration / iterations unless given.
    A pure function, so a resumed run needs no scheduler state.
    """
    if settings.schedule == "step":
        return float(settings.schedule_factor ** (iteration // settings.schedule_step))
    if settings.schedule == "milestones":
        passed = sum(iteration >= milestone for milestone in settings.milestones)
        if settings.milestone_factors:
            return (1.0, *settings.milestone_factors)[passed]
        return float(settings.schedule_factor**passed)
    progress = min(1.0, iteration / settings.iterations if progress is None else progress)
    if settings.schedule == "linear":
        return 1 - progress
    if settings.schedule == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    return 1.0


def set_learning_rate(optimiser: Optimizer, factor: float) -> None:
    """Every group's own initial rate times ``factor``."""
    for group in optimiser.param_groups:
        rate = group["initial_lr"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # a captured step reads it from its place
        else:
            group["lr"] = rate


def clip_groups(optimiser: Optimizer, kind: str, value: float) -> None:
    """`clip_gradients` on all parameters together; per-group: one norm over each group of the optimiser."""
    groups = [group["params"] for group in optimiser.param_groups]
    if kind == "per-group":
        for group in groups:
            clip_gradients(group, "global", value)
    else:
        clip_gradients([p for group in groups for p in group], kind, value)


def clip_gradients(parameters: Iterable[Tensor], kind: str, value: float) -> None:
    """none; global: one norm over all; per-tensor: the norm of each; value: each entry. No device synchronisation."""
    if kind == "none":
        return
    clipped = [p for p in parameters if p.grad is not None]
    gradients = [p.grad for p in clipped if p.grad is not None]
    if not gradients:
        return
    if kind == "global":
        torch.nn.utils.clip_grad_norm_(clipped, value)
    elif kind == "value":
        torch.nn.utils.clip_grad_value_(clipped, value)
    else:
        norms = torch.stack(torch._foreach_norm(gradients))
        factors = (value / (norms + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factors.unbind())


def begin_momentum(optimiser: Optimizer) -> None:
    """Momentum of 0 for whatever has a gradient and none yet, as a backbone that was held so far: the next step is then
    the one it would make without, and fused kernels take either all of it or nothing."""
    for group in optimiser.param_groups:
        for parameter in group["params"] if group.get("momentum") else ():
            if parameter.grad is not None and "momentum_buffer" not in optimiser.state[parameter]:
                optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def step_by_chance(optimiser: Optimizer, chance: float | Tensor) -> None:
    """A step with a probability of ``chance``; without it weights, momentum and decay stay as they are, to the bit.

    The coin is tossed on the device, so nothing waits for it and each replay of a captured step tosses anew. The fused
    kernels learn of it as of an overflow of scaled gradients, for which they leave out an update as a whole.
    """
    begin_momentum(optimiser)  # made by a first step that is then left out, it would hold anything
    coin = torch.rand((), device=optimiser.param_groups[0]["params"][0].device)
    processes.copy_from_first([coin])
    optimiser.found_inf = (coin >= chance).float()  # type: ignore[attr-defined]
    optimiser.step()


def pack_optimisers(optimisers: Sequence[Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """`pack_optimiser` of each: the first as if it were alone, the tensors of others with their number before."""
    tensors, structure = pack_optimiser(optimisers[0])
    others = []
    for number, optimiser in enumerate(optimisers[1:], 1):
        own, told = pack_optimiser(optimiser)
        tensors |= {f"{number}/{name}": value for name, value in own.items()}
        others.append(told)
    return tensors, structure | ({"others": others} if others else {})


def unpack_optimisers(optimisers: Sequence[Optimizer], tensors: dict[str, Tensor], packed: dict[str, Any]) -> None:
    """Put back what `pack_optimisers` gave; another number of optimisers is that of another way to learn."""
    structures = [packed, *packed.get("others", [])]
    if len(structures) != len(optimisers):
        raise EngramError(
            f"the checkpoint holds the state of {len(structures)} optimiser(s) but this method makes {len(optimisers)} "
            f"update(s) in a step: start a new run in another folder"
        )
    for number, (optimiser, structure) in enumerate(zip(optimisers, structures, strict=True)):
        split = {name: name.rpartition("/") for name in tensors}
        own = {last: tensors[name] for name, (before, _, last) in split.items() if int(before or 0) == number}
        unpack_optimiser(optimiser, own, structure)


def pack_optimiser(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimiser's state as tensors named ``<parameter>.<name>`` and a structure that fits JSON."""
    raw = optimiser.state_dict()
    tensors: dict[str, Tensor] = {}
    values: dict[str, dict[str, Any]] = {}
    for index, entry in raw["state"].items():
        values[str(index)] = {name: value for name, value in entry.items() if not isinstance(value, Tensor)}
        tensors |= {f"{index}.{name}": value for name, value in entry.items() if isinstance(value, Tensor)}
    groups = [
        {key: value.item() if isinstance(value, Tensor) else value for key, value in group.items()}
        for group in raw["param_groups"]
    ]
    return tensors, {"kind": type(optimiser).__name__, "groups": groups, "values": values}


def unpack_optimiser(optimiser: Optimizer, tensors: dict[str, Tensor], packed: dict[str, Any]) -> None:
    """Put a packed state back, also where it was saved on another kind of device."""
    state: dict[int, dict[str, Any]] = {int(index): dict(entry) for index, entry in packed["values"].items()}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        like = parameters[int(index)]
        # Files hold plain layout; fused kernels need the parameter's own (channels-last on a GPU).
        is_like = name != "step" and value.shape == like.shape
        state[int(index)][name] = torch.empty_like(like).copy_(value) if is_like else value
    groups = []
    for saved, current in zip(packed["groups"], optimiser.param_groups, strict=True):
        kept = {key: current[key] for key in ("fused", "foreach", "capturable", "lr") if key in current}
        groups.append({k: tuple(v) if k == "betas" else v for k, v in saved.items()} | kept)
    optimiser.load_state_dict({"state": state, "param_groups": groups})
