"""History addressed by content: what a stream has shown so far, as evidence about the classes of the task at hand.

Memory is a set of entries; nothing is read by slot, so the order of supports and queries cannot matter, in this task or
in any earlier one. By name, a class gathers the past supports of its name and, at a small weight, past queries as they
were answered then; without names, past pictures join the class they look like, or none. All T steps run at once under
a causal mask: step t sees entries of the steps t - window .. t - 1 only, the same as step by step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.heads import one_hot

SUPPORT, QUERY, NODE = 0, 1, 2


class Bank(NamedTuple):
    """Entries of B streams in time order. Among entries of one step the order means nothing."""

    features: Tensor
    """(B, E, d)"""
    weights: Tensor
    """(B, E) pictures behind an entry"""
    names: Tensor
    """(B, E) identity of the class, -1 where there is none"""
    kinds: Tensor
    """(B, E) SUPPORT, QUERY (a class's queries as answered) or NODE (one picture without a name)"""
    steps: Tensor
    """(B, E)"""

    @classmethod
    def empty(cls, batch: int, width: int, device: torch.device) -> Bank:
        whole = torch.zeros(batch, 0, dtype=torch.int64, device=device)
        return cls(torch.zeros(batch, 0, width, device=device), whole.float(), whole, whole, whole)

    @classmethod
    def of_steps(cls, features: Tensor, weights: Tensor, names: Tensor, kinds: Tensor, now: Tensor) -> Bank:
        """Entries of T steps, (T, B, e, d) and (T, B, e), as one bank of T * e entries."""
        steps = now[:, None, None].expand_as(names)
        parts = (features, weights, names, kinds.expand_as(names), steps)
        return cls(*(part.transpose(0, 1).flatten(1, 2) for part in parts))

    def join(self, other: Bank) -> Bank:
        return Bank(*(torch.cat(pair, 1) for pair in zip(self, other, strict=True)))

    def between(self, start: int, end: int) -> Bank:
        return Bank(*(part[:, max(0, start) : end] for part in self))


class Task(NamedTuple):
    """T steps of B tasks, as features or as unit vectors under the metric."""

    support: Tensor
    """(T, B, S, d)"""
    labels: Tensor
    """(T, B, S)"""
    query: Tensor
    """(T, B, Q, d)"""
    names: Tensor | None
    """(T, B, n_way)"""
    n_way: int


class Reading(NamedTuple):
    """What unlabelled pictures are worth, in labelled ones. Not learned: on the classes a model is trained on nearly
    every answer is right, so training would trust answers far more than new classes deserve."""

    sharpness: float = 10.0
    """of a picture's choice between classes, on cosines"""
    query: float = 0.5
    """a query of this task, in transductive tasks"""
    past_query: float = 0.1
    """a query of an earlier task, by the name it was answered with"""
    past_picture: float = 0.05
    """a picture of an earlier task that has no name"""
    refusal: float = 0.3
    """cosine below which a picture without a name joins no class"""


class EvidenceAnswer(NamedTuple):
    mean: Tensor
    """(T, B, Q, n_way) of the edge logits"""
    variance: Tensor
    """(T, B, Q, n_way)"""
    evidence: Tensor
    """(T, B, n_way) labelled pictures, or their worth, behind each class"""
    bank: Bank
    """the entries given and those of all T steps, nothing dropped yet"""
    entries_per_step: int


def visible(steps: Tensor, now: Tensor, window: int) -> Tensor:
    """Which entries a step may read: made before it, at most ``window`` steps ago. (B, E), (T,) -> (T, B, E)"""
    age = now[:, None, None] - steps
    return (age > 0) & (age <= window)


def class_sums(features: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i w_ic f_i and sum_i w_ic. (T, B, n, d), (T, B, n, N) -> (T, B, N, d), (T, B, N)"""
    return shares.transpose(-1, -2) @ features, shares.sum(-2)


def gather_by_name(bank: Bank, names: Tensor, mask: Tensor, worth: Tensor) -> tuple[Tensor, Tensor]:
    """Past evidence of each class: sums of w_e f_e and of w_e over the visible entries of its name.

    Shapes: names (T, B, N), mask (T, B, E), worth w (B, E) -> (T, B, N, d), (T, B, N)
    """
    same = (names[..., None] == bank.names[:, None, :]) & mask[:, :, None, :]
    share = same.to(worth.dtype) * worth[:, None, :]
    return share @ bank.features, share.sum(-1)


def cosines(nodes: Tensor, state: Tensor) -> Tensor:
    """cos(v, h_c) for unit vectors v. (..., n, d), (..., N, d) -> (..., n, N)"""
    return nodes @ F.normalize(state, dim=-1).transpose(-1, -2)


def join_by_content(bank: Bank, mask: Tensor, logits: Tensor, refusal: float) -> tuple[Tensor, Tensor]:
    """Past pictures join the class they look like, or none: a_e = softmax([k cos(f_e, h_c) ; k k0]), sums over e.

    Shapes: mask (T, B, E), logits (T, B, E, N) -> (T, B, N, d), (T, B, N)
    """
    refuse = torch.full_like(logits[..., :1], refusal)
    share = torch.cat([logits, refuse], -1).softmax(-1)[..., :-1] * mask[..., None]
    return share.transpose(-1, -2) @ bank.features, share.sum(-2)


class EvidenceGraph(nn.Module):
    """CML-BGNN's layers on evidence: metric, history transition, transductive node updates, edge posterior.

    The history transition is the paper's gate with the past as state and the evidence as gate,

        h_c = z v_c + (1 - z) m_c,   z = K_c / (K_c + n_c),

    v_c the mean of the class's K_c supports now and m_c the mean of its n_c pictures in memory. In each layer the
    queries (transductive) and, without names, the pictures in memory join the classes in proportion to their likeness,
    at the weights of `Reading`. The edge of query q and class c is

        logit ~ N( k cos(v_q, h_c) + b,  s^2 / (K_c + n_c) ),

    so more past evidence means less variance.

    Shapes: `Task` of features, `Bank` -> `EvidenceAnswer`
    """

    def __init__(self, inputs: int, width: int, n_layers: int, transductive: bool, reading: Reading) -> None:
        super().__init__()
        self.n_layers, self.transductive, self.reading = n_layers, transductive, reading
        self.centre = nn.Parameter(torch.zeros(inputs))
        self.metric = nn.Linear(inputs, width, bias=False)
        nn.init.orthogonal_(self.metric.weight)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.bias = nn.Parameter(torch.tensor(-8.0))
        self.log_variance = nn.Parameter(torch.tensor(0.0))

    def forward(self, task: Task, bank: Bank, capacity: int) -> EvidenceAnswer:
        task = task._replace(support=self._project(task.support), query=self._project(task.query))
        first = bank.steps[:, -1].amax() + 1 if bank.steps.shape[1] else 0
        now = torch.arange(len(task.support), device=task.support.device) + first
        current, count = class_sums(task.support, one_hot(task.labels, task.n_way))
        if task.names is None:
            per_step = task.support.shape[2] + task.query.shape[2]
            bank = bank.join(self._nodes(task, now))
            total, evidence = current, count
        else:
            per_step = 2 * task.n_way
            past, worth, bank = self._read_names(task, task.names, (current, count), bank, now, capacity)
            total, evidence = current + past, count + worth
        mask = visible(bank.steps, now, capacity // per_step)
        state, weight = self._layers(task, bank, mask, total, evidence)
        variance = (self.log_variance.exp() / weight)[..., None, :].expand(*task.query.shape[:-1], -1)
        mean = self.log_scale.exp() * cosines(task.query, state) + self.bias
        return EvidenceAnswer(mean, variance, weight, bank, per_step)

    def _layers(self, task: Task, bank: Bank, mask: Tensor, total: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Node updates: state (T, B, N, d) and the evidence behind it (T, B, N), to which queries add none."""
        state, weight, reading = total / evidence[..., None], evidence, self.reading
        for _ in range(self.n_layers):
            gathered, weight, company = total, evidence, torch.zeros_like(evidence)
            if self.transductive:
                answer = (reading.sharpness * cosines(task.query, state)).softmax(-1)
                joined, company = class_sums(task.query, reading.query * answer)
                gathered = gathered + joined
            if task.names is None and bank.steps.shape[1]:
                logits = 2 * reading.sharpness * cosines(bank.features, state)
                joined, share = join_by_content(bank, mask, logits, 2 * reading.sharpness * reading.refusal)
                gathered, weight = gathered + reading.past_picture * joined, weight + reading.past_picture * share
            state = gathered / (weight + company)[..., None]
        return state, weight

    def _project(self, features: Tensor) -> Tensor:
        """Unit vectors under the learned metric. (..., inputs) -> (..., width)"""
        return F.normalize(self.metric(features - self.centre), dim=-1)

    def _read_names(
        self, task: Task, names: Tensor, supports: tuple[Tensor, Tensor], bank: Bank, now: Tensor, capacity: int
    ) -> tuple[Tensor, Tensor, Bank]:
        """Evidence by name: past supports, then past queries as they were answered with the supports known then."""
        current, count = supports
        window = capacity // (2 * task.n_way)
        means, kind = current / count[..., None], torch.tensor([SUPPORT], device=now.device)
        labelled = bank.join(Bank.of_steps(means, count, names, kind, now))
        mask = visible(labelled.steps, now, window)
        past, worth = gather_by_name(labelled, names, mask, labelled.weights * (labelled.kinds == SUPPORT))
        state = (current + past) / (count + worth)[..., None]
        answer = (self.reading.sharpness * cosines(task.query, state)).softmax(-1)
        joined, share = class_sums(task.query, answer)
        answered = joined / share[..., None].clamp(min=1e-6)
        # Supports and queries of a step side by side, so that the bank stays in time order.
        kinds = torch.tensor([SUPPORT, QUERY], device=now.device).repeat_interleave(task.n_way)
        made = [torch.cat(pair, 2) for pair in ((means, answered), (count, share), (names, names))]
        bank = bank.join(Bank.of_steps(made[0], made[1], made[2], kinds, now))
        value = torch.where(bank.kinds == SUPPORT, 1.0, self.reading.past_query)
        mask = visible(bank.steps, now, window)
        return *gather_by_name(bank, names, mask, bank.weights * value), bank

    def _nodes(self, task: Task, now: Tensor) -> Bank:
        """Every picture of T steps as an entry of its own, without a name."""
        nodes = torch.cat([task.support, task.query], 2)
        ones = torch.ones_like(nodes[..., 0])
        nameless, kind = torch.full_like(ones, -1, dtype=torch.int64), torch.tensor([NODE], device=now.device)
        return Bank.of_steps(nodes, ones, nameless, kind, now)
