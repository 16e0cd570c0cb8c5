"""Any function that answers one task, as a `Method`: so that it can be benched and audited like the methods here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from engram.errors import EngramError
from engram.types import Episode, History, Method, MethodCard, Prediction

SUM_TOLERANCE = 1e-3
SMALLEST = 1e-37
"""a probability of 0 is allowed; its logarithm must be a number"""


@dataclass(frozen=True)
class CallableConfig:
    pass


class CallableMethod(Method):
    """``function(support, labels, query) -> probabilities`` for one task at a time.

    support (S, ...) and query (Q, ...) come as the store holds them (uint8 images or float features), labels (S,) in
    [0, n_way); probabilities are (Q, n_way). ``arrays`` says whether the function takes numpy arrays or tensors.
    ``claims`` are further fields of `MethodCard` the function owns up to, such as ``stochastic=True``.
    """

    Config = CallableConfig

    def __init__(
        self,
        function: Callable[[Any, Any, Any], Any],
        name: str | None = None,
        *,
        transductive: bool = False,
        arrays: Literal["numpy", "torch"] = "numpy",
        **claims: Any,
    ) -> None:
        super().__init__(nn.Identity(), CallableConfig())
        self.function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self.arrays = arrays
        card: dict[str, Any] = {"paper": "none: a function", "batch_norm": "none", "trainable": False, **claims}
        self.card = MethodCard(title=self.name, transductive=transductive, **card)

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        tasks = zip(episode.support, episode.support_labels, episode.query, strict=True)
        answers = [self._answer(*task, n_way=episode.n_way) for task in tasks]
        return Prediction(torch.stack(answers).to(episode.query.device).clamp(min=SMALLEST).log())

    def _answer(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
        """One task's probabilities (Q, n_way), or one sentence on what is wrong with them."""
        if self.arrays == "numpy":
            answer = self.function(support.cpu().numpy(), labels.cpu().numpy(), query.cpu().numpy())
        else:
            answer = self.function(support, labels, query)
        try:
            probabilities = torch.as_tensor(answer if isinstance(answer, Tensor) else np.asarray(answer)).detach()
            # The function's own precision is kept: the audit goes by it when it tells rounding from a dependence.
            probabilities = probabilities if probabilities.is_floating_point() else probabilities.float()
        except (TypeError, ValueError, RuntimeError) as error:
            raise EngramError(
                f"{self.name} gave a {type(answer).__name__} where an array of {(len(query), n_way)} probabilities "
                f"(queries, ways) is needed"
            ) from error
        self._check(probabilities, (len(query), n_way))
        return probabilities

    def _check(self, probabilities: Tensor, expected: tuple[int, int]) -> None:
        found = tuple(probabilities.shape)
        if found != expected:
            raise EngramError(
                f"{self.name} gave probabilities of shape {found} where {expected} (queries, ways) is needed"
            )
        unusable = int((~torch.isfinite(probabilities)).sum())
        if unusable:
            raise EngramError(
                f"{self.name} gave {unusable} of {probabilities.numel()} probabilities that are not finite: "
                f"look for a division by zero"
            )
        lowest, totals = float(probabilities.min()), probabilities.sum(-1)
        if lowest < 0:
            raise EngramError(
                f"{self.name} gave a probability of {lowest:.3g} where at least 0 is needed: apply softmax"
            )
        worst = float(totals[(totals - 1).abs().argmax()])
        if abs(worst - 1) > SUM_TOLERANCE:
            raise EngramError(
                f"{self.name} gave probabilities that add up to {worst:.4g} where 1 is needed: "
                f"divide each row by its sum"
            )
