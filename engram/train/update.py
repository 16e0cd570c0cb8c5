"""One update of the weights: loss, gradients, clipping, optimiser. Nothing here waits for the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.errors import EngramError
from engram.recipes.schema import TrainSettings
from engram.train.batches import micro_batches
from engram.train.optimise import clip_groups
from engram.types import Method, TrainBatch


@dataclass
class Update:
    """A batch in, the weights changed, and the names and values of the losses out.

    ``micro_batch`` sequences go through the model at a time (0: all): less memory, and BatchNorm sees smaller batches.
    """

    method: Method
    optimiser: Optimizer
    settings: TrainSettings
    micro_batch: int = 0

    def __post_init__(self) -> None:
        if self.micro_batch < 0:
            raise EngramError(
                f"micro_batch = {self.micro_batch} but it must be at least 0 (0: all sequences at a time)"
            )
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]

    def __call__(self, batch: TrainBatch) -> tuple[tuple[str, ...], Tensor]:
        self.optimiser.zero_grad(set_to_none=True)
        parts, rows = micro_batches(batch, self.micro_batch), []
        for part in parts:
            terms = self.method.loss(part)
            share = len(part.answers[0].query_labels) / len(batch.answers[0].query_labels)
            (terms.total if len(parts) == 1 else terms.total * share).backward()
            rows.append(share * torch.stack([v.detach().float() for v in (terms.total, *terms.terms.values())]))
        clip_groups(self.optimiser, self.settings.clip, self.settings.clip_value)
        self.optimiser.step()
        return ("loss", *terms.terms), torch.stack(rows).sum(0)
