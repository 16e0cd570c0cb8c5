"""Inner-loop adaptation as pure functions: weights are mappings from names to tensors and nothing is changed in place.

A task's loss is written for one task, differentiated there, and spread over tasks by `torch.func.vmap` outermost,
``vmap(grad(task_loss))``, or by a loop. All that a task needs is freed with it; `with_gradient` hands the result to an
optimiser.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import itemgetter
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_leaves, tree_map

from engram.errors import EngramError
from engram.nn.task_norm import no_vmap

Weights = Mapping[str, Tensor]
Rate = float | Weights
"""one step size for all weights, or one for each number of each weight"""
Network = Callable[[Weights, Tensor], Tensor]
"""weights, images (n, ...) -> logits (n, ways)"""
Adapted = Callable[[Weights, Tensor, Tensor], tuple[Weights, Tensor]]
"""weights, supports, their labels -> the weights of that task, and the support losses (steps,) on the way"""

RATES = (1e-6, 10.0)  # sensible inner rates: below nothing moves (inner_steps = 0 says so), above all is overshot
IMAGES_AT_ONCE = 1024
"""images in one call of a network that answers; more go in chunks, which changes no answer"""
SMALL_TASK = 2**16
"""numbers in a task's images up to which a CPU is faster with tasks side by side, their maps being in cache"""


def linear_head(backbone: nn.Module, n_way: int) -> nn.Linear:
    """features -> n_way, Xavier weights and zero biases."""
    head = nn.Linear(prod(backbone.out_shape), n_way)  # type: ignore[arg-type]
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return head


@dataclass(frozen=True)
class LearnerConfig:
    """What all methods that adapt a `network` can be asked."""

    n_way: int = 5
    """rows of the head; a task with fewer classes uses the first of them"""
    query_statistics: Literal["with_support", "queries"] = "with_support"
    """at test BatchNorm sees each query alone with the support set, or all queries of a task at once (transductive)"""

    @property
    def together(self) -> bool:
        """Whether BatchNorm sees all queries of a task at once."""
        return self.query_statistics == "queries"


def network(backbone: nn.Module, head: nn.Linear, n_way: int) -> Network:
    """What is adapted to a task: logits of an encoder and a linear head as a function of weights ``backbone.*`` and
    ``head.*``, of the first ``n_way`` classes; refused where the head has fewer rows."""
    check_ways(n_way, head)
    learner = nn.Sequential(OrderedDict(backbone=backbone, flat=nn.Flatten(), head=head))
    return lambda weights, images: functional_call(learner, dict(weights), (images,))[:, :n_way]


def check_ways(n_way: int, head: nn.Linear) -> None:
    """A head has rows for so many classes; tasks with fewer use the first of them."""
    if n_way > head.out_features:
        raise EngramError(
            f"[method] n_way = {head.out_features} but a task has {n_way} classes: train with n_way = {n_way}"
        )


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over a task's images. (n, ways), (n,) -> ()"""
    return F.cross_entropy(logits, labels)


def flat(weights: Weights) -> Tensor:
    """All numbers of all weights in one row: (P,)"""
    return torch.cat([weight.flatten() for weight in weights.values()])


def shaped(row: Tensor, like: Weights) -> dict[str, Tensor]:
    """The inverse of `flat`: names and shapes as in ``like``."""
    parts = row.split([weight.numel() for weight in like.values()])
    return {name: part.view(weight.shape) for part, (name, weight) in zip(parts, like.items(), strict=True)}


def descend(
    loss: Callable[[Weights], Tensor], start: Weights, rates: Sequence[Rate], first_order: bool = False
) -> tuple[dict[str, Tensor], Tensor]:
    """phi_t = phi_{t-1} - rate_t o dL/dphi(phi_{t-1}), one step for each rate; and the losses (steps,) before them.

    First order takes every gradient as a constant, so that nothing is differentiated twice.
    """
    weights, losses = dict(start), []
    for rate in rates:
        gradients, value = grad_and_value(loss)(weights)
        losses.append(value)
        if first_order:
            gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        weights = {
            name: weight - (rate[name] if isinstance(rate, Mapping) else rate) * gradients[name]
            for name, weight in weights.items()
        }
    return weights, torch.stack(losses) if losses else torch.zeros(0)


def query_logits(network: Callable[[Tensor], Tensor], support: Tensor, query: Tensor, together: bool) -> Tensor:
    """Logits (Q, ways) of a network that normalises with the images at hand.

    ``together``: all queries are one batch and share its statistics (transductive). Else each query stands alone in a
    batch with the whole support set, so that no query tells anything to another.
    """
    if together:
        return network(query)

    def alone(image: Tensor) -> Tensor:
        return network(torch.cat([support, image[None]]))[-1]

    with no_vmap(False):
        return vmap(alone, chunk_size=tasks_at_once(len(support) + 1))(query)


def tasks_at_once(images: int) -> int:
    """Chunk of a vmap over things of so many images each."""
    return max(1, IMAGES_AT_ONCE // max(1, images))


def chunk_of(images: Tensor, at_most: int) -> int:
    """Chunk of a vmap over tasks (B, n, ...): one by one on a CPU unless they are small. It changes no answer."""
    return at_most if images.is_cuda or images[0].numel() <= SMALL_TASK else 1


def spread(function: Callable[..., Any], axes: tuple[int | None, ...], chunk: int) -> Callable[..., Any]:
    """``vmap(function)`` over the arguments whose axis is 0, ``chunk`` tasks side by side, each with random numbers of
    its own. One at a time on a CPU it is a loop: layers then have the library's derivatives and layout (`no_vmap`)."""

    def over(*arguments: Any) -> Any:
        first = tree_leaves([argument for argument, axis in zip(arguments, axes, strict=True) if axis == 0])[0]
        if chunk != 1 or first.is_cuda:
            return vmap(function, axes, randomness="different", chunk_size=chunk)(*arguments)
        with no_vmap():
            found = [function(*_of_task(arguments, axes, task)) for task in range(len(first))]
        return tree_map(lambda *parts: torch.stack(parts), *found)

    return over


def _of_task(arguments: Sequence[Any], axes: Sequence[int | None], task: int) -> list[Any]:
    pairs = zip(arguments, axes, strict=True)
    return [argument if axis is None else tree_map(itemgetter(task), argument) for argument, axis in pairs]


def over_tasks(function: Callable[..., Any], weights: Weights, tasks: Sequence[Tensor], images: int) -> Any:
    """``function(weights, *task)`` for every task of (B, ...) tensors; a task costs so many ``images``."""
    axes = (None, *(0 for _ in tasks))
    learn = spread(function, axes, chunk_of(tasks[0], tasks_at_once(images)))
    if not torch.is_inference_mode_enabled():
        return learn(_constants(weights), *tasks)
    with torch.inference_mode(False):  # in which PyTorch 2.11 differentiates wrongly, without a word
        return learn(_constants(weights), *(part.clone() for part in tasks))


def _constants(weights: Weights) -> dict[str, Tensor]:
    """Detached, or autograd would note down the whole inner loop a second time; and vmap knows plain layout only."""
    return {name: weight.detach().clone(memory_format=torch.contiguous_format) for name, weight in weights.items()}


def meta_loss(
    task_loss: Callable[..., tuple[Tensor, Any]], weights: Weights, tasks: Sequence[Tensor], at_once: int = 0
) -> tuple[Tensor, Any]:
    """Mean over tasks of ``task_loss(weights, *task) -> (loss, rest)``, with its gradient; and the rest, task by task.

    Each task is differentiated inside vmap, ``at_once`` of them side by side (0 = all, on a CPU large ones one by one):
    no graph is kept, and what is needed at once does not grow with the number of tasks. Tasks draw random numbers of
    their own.
    """
    differentiated = grad_and_value(task_loss, has_aux=True)
    axes = (None, *(0 for _ in tasks))
    chunk = at_once or chunk_of(tasks[0], len(tasks[0]))
    gradients, (values, rest) = spread(differentiated, axes, chunk)(_constants(weights), *tasks)
    means = {name: gradient.mean(0) for name, gradient in gradients.items()}
    return with_gradient(values.mean(), weights, means), rest


def query_loss(
    adapted: Adapted, network: Network, weights: Weights, tasks: Sequence[Tensor], at_once: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean cross-entropy of the queries after adaptation, with its gradient through it; and terms for the log.

    ``tasks`` are supports, their labels, queries and theirs.
    """

    def task_loss(
        weights: Weights, support: Tensor, labels: Tensor, query: Tensor, query_labels: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        phi, losses = adapted(weights, support, labels)
        logits = network(phi, query)
        accuracy = (logits.argmax(-1) == query_labels).float().mean()
        return cross_entropy(logits, query_labels), (accuracy, losses)

    total, (accuracy, losses) = meta_loss(task_loss, weights, tasks, at_once)
    terms = {"nll": total.detach(), "accuracy": accuracy.mean(), "finite_inner_steps": finite_steps(losses)}
    return total, terms


def answers(
    adapted: Adapted, network: Network, weights: Weights, tasks: Sequence[Tensor], together: bool
) -> tuple[Tensor, Tensor]:
    """Log-probabilities (B, Q, ways) after adaptation, and the support losses (B, steps) on the way.

    ``tasks`` are supports, their labels and queries; ``together`` as in `query_logits`.
    """

    support, labels, query = tasks
    n_support, n_query = support.shape[1], query.shape[1]
    phi, losses = over_tasks(adapted, weights, (support, labels), n_support)

    def answer(phi: Weights, support: Tensor, query: Tensor) -> Tensor:
        return query_logits(lambda x: network(phi, x), support, query, together).log_softmax(-1)

    images = n_query if together else (n_support + 1) * n_query  # many more than for adaptation, hence apart
    chunk = chunk_of(query, tasks_at_once(images))
    return spread(answer, (0, 0, 0), chunk)(phi, support, query), losses


def with_gradient(value: Tensor, parameters: Weights, gradients: Weights) -> Tensor:
    """A scalar that equals ``value`` and whose gradient with regard to ``parameters`` is ``gradients``.

    value + sum_p <p - sg(p), g_p>: what was differentiated elsewhere (inside vmap, or not at all) reaches an optimiser
    through an ordinary ``backward``.
    """
    total = value.detach()
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            total = total + ((parameter - parameter.detach()) * gradients[name].detach()).sum()
    return total


def finite_steps(losses: Tensor) -> Tensor:
    """After how many inner steps a loss ceased to be finite, in the worst task: (B, steps) -> (); ``steps`` if none."""
    return losses.isfinite().long().cumprod(1).sum(1).min().float()
