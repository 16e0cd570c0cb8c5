"""One step of training: for each objective loss, gradients, clipping, optimiser. Nothing here waits for the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.errors import EngramError
from engram.recipes.schema import TrainSettings
from engram.train.batches import micro_batches
from engram.train.optimise import build_optimiser, clip_groups, step_by_chance
from engram.types import Method, Objective, TrainBatch


@dataclass
class Update:
    """A batch in, the weights changed, and the names and values of the losses out.

    Each of the method's objectives has an optimiser of its own, and sees the weights that the one before it left.
    ``micro_batch`` sequences go through the model at a time (0: all): less memory, and BatchNorm sees smaller batches.
    """

    method: Method
    settings: TrainSettings
    device: torch.device
    captured: bool = False
    micro_batch: int = 0

    def __post_init__(self) -> None:
        if self.micro_batch < 0:
            raise EngramError(
                f"micro_batch = {self.micro_batch} but it must be at least 0 (0: all sequences at a time)"
            )
        self.objectives = self.method.objectives()
        self.optimisers = tuple(
            build_optimiser(self.method, self.settings, self.device, self.captured) for _ in self.objectives
        )
        self.parameters = [p for group in self.optimisers[0].param_groups for p in group["params"]]

    def __call__(self, batch: TrainBatch) -> tuple[tuple[str, ...], Tensor]:
        """``loss`` is the sum of the objectives' totals; their terms follow, in the same order."""
        parts = micro_batches(batch, self.micro_batch)
        names: list[str] = []
        totals, terms = [], []
        for objective, optimiser in zip(self.objectives, self.optimisers, strict=True):
            own, values = self._learn(parts, objective, optimiser)
            names += own
            totals.append(values[:1])
            terms.append(values[1:])
        return ("loss", *names), torch.cat([torch.stack(totals).sum(0), *terms])

    def _learn(
        self, parts: list[TrainBatch], objective: Objective, optimiser: Optimizer
    ) -> tuple[tuple[str, ...], Tensor]:
        """The update of one objective; the names of its terms, and the values of its total and of them."""
        optimiser.zero_grad(set_to_none=True)  # of all: every optimiser has the same parameters
        rows, count = [], sum(len(part.answers[0].query_labels) for part in parts)
        for part in parts:
            terms = objective.loss(part)
            share = len(part.answers[0].query_labels) / count
            (terms.total if len(parts) == 1 else terms.total * share).backward()
            rows.append(share * torch.stack([v.detach().float() for v in (terms.total, *terms.terms.values())]))
        clip_groups(optimiser, self.settings.clip, self.settings.clip_value)
        if objective.chance is None:
            optimiser.step()
        else:
            step_by_chance(optimiser, objective.chance(parts[0].progress))
        return tuple(terms.terms), torch.stack(rows).sum(0)
