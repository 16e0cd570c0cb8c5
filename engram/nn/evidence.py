"""History addressed by content: what a stream has shown so far, as evidence about the classes of the task at hand.

Memory is a set of entries; nothing is read by slot, so the order of supports and queries cannot matter, in this task or
in any earlier one. By name, a class gathers the past supports of its name and, at a small weight, past queries as they
were answered then; without names, past pictures (or the classes of past tasks, as they were answered) join the class
they look like, or none. All T steps run at once under the causal window of the bank, the same as step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn import memory_bank
from engram.nn.heads import one_hot
from engram.nn.memory_bank import CLASS, CLASS_QUERIES, CLASS_SUPPORTS, PICTURE, Bank


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


@dataclass(frozen=True)
class Reading:
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
    """cosine below which a picture without a name joins no class, where only one is in sight"""
    crowd: float = 0.0
    """how the refusal grows with the pictures in sight, crowd * log(number): with many to choose from, choose well"""
    node: float = 0.0
    """how far each node of a task without names first moves towards its likes in memory"""
    together: bool = False
    """the queries of a task are answered together before they are remembered; without names each class then makes one
    entry with them: what its task kept apart stays apart, and pictures unlike its supports come along"""


class EvidenceAnswer(NamedTuple):
    mean: Tensor
    """(T, B, Q, n_way) of the edge logits"""
    variance: Tensor
    """(T, B, Q, n_way)"""
    evidence: Tensor
    """(T, B, n_way) labelled pictures, or their worth, behind each class"""
    bank: Bank
    """the entries given and those of all T steps, nothing dropped yet"""
    now: Tensor
    """(T, B) the time of each step"""


def class_sums(features: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i w_ic f_i and sum_i w_ic. (T, B, n, d), (T, B, n, N) -> (T, B, N, d), (T, B, N)"""
    return shares.transpose(-1, -2) @ features, shares.sum(-2)


def gather_by_name(bank: Bank, names: Tensor, mask: Tensor, worth: Tensor) -> tuple[Tensor, Tensor]:
    """Past evidence of each class: sums of w_e f_e and of w_e over the visible entries of its name.

    Shapes: names (T, B, N), mask (T, B, E), worth w (B, E) -> (T, B, N, d), (T, B, N)
    """
    same = memory_bank.match(bank, names) & mask[:, :, None, :]
    share = same.to(worth.dtype) * worth[:, None, :]
    return torch.einsum("tbne,bed->tbnd", share, bank.features), share.sum(-1)


def cosines(nodes: Tensor, state: Tensor) -> Tensor:
    """cos(v, h_c) for unit vectors v. (..., n, d), (..., N, d) -> (..., n, N)"""
    return nodes @ F.normalize(state, dim=-1).transpose(-1, -2)


def likeness(nodes: Tensor, bank: Bank) -> Tensor:
    """cos(v, f_e) of unit vectors for every entry: (T, B, n, d) -> (T, B, n, E)

    As one product for each stream, for a bank repeated over T steps would not fit.
    """
    return torch.einsum("tbnd,bed->tbne", nodes, bank.features)


def join_by_content(bank: Bank, mask: Tensor, logits: Tensor, refusal: Tensor) -> tuple[Tensor, Tensor]:
    """Past pictures join the class they look like, or none: a_e = softmax([k cos(f_e, h_c) ; r]), sums over e.

    Shapes: mask (T, B, E), logits (T, B, N, E), refusal r (T, B, 1, 1) -> (T, B, N, d), (T, B, N)
    """
    refuse = refusal.expand_as(logits[..., :1, :])
    share = torch.cat([logits, refuse], -2).softmax(-2)[..., :-1, :] * mask[..., None, :]
    return torch.einsum("tbne,bed->tbnd", share, bank.features), share.sum(-1)


def attend(bank: Bank, mask: Tensor, logits: Tensor) -> Tensor:
    """What each node finds in memory, on the unit sphere: r_i ~ sum_e a_ie f_e, a_ie = sigmoid(k cos(v_i, f_e) - r).

    No softmax: a node that is itself in memory would find nothing but itself. 0 where nothing is there.

    Shapes: mask (T, B, E), logits (T, B, n, E) -> (T, B, n, d)
    """
    share = logits.sigmoid() * mask[..., None, :]
    return F.normalize(torch.einsum("tbne,bed->tbnd", share, bank.features), dim=-1)


class EvidenceGraph(nn.Module):
    """CML-BGNN's layers on evidence: metric, history transition, transductive node updates, edge posterior.

    The history transition is the paper's gate with the past as state and the evidence as gate,

        h_c = z v_c + (1 - z) m_c,   z = K_c / (K_c + n_c),

    v_c the mean of the class's K_c supports now and m_c the mean of its n_c pictures in memory. In each layer the
    queries (transductive) and, without names, the pictures in memory join the classes in proportion to their likeness,
    at the weights of `Reading`. The edge of query q and class c is

        logit ~ N( k cos(v_q, h_c) + b,  s^2 / (K_c + n_c) ),

    so more past evidence means less variance. A ``width`` of 0 takes features as they come and learns nothing.

    Shapes: `Task` of features, `Bank` -> `EvidenceAnswer`
    """

    def __init__(self, inputs: int, width: int, n_layers: int, transductive: bool, reading: Reading) -> None:
        super().__init__()
        self.n_layers, self.transductive, self.reading = n_layers, transductive, reading
        self.centre = nn.Parameter(torch.zeros(inputs))
        self.metric = nn.Linear(inputs, width, bias=False) if width else nn.Identity()
        if isinstance(self.metric, nn.Linear):
            nn.init.orthogonal_(self.metric.weight)
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.bias = nn.Parameter(torch.tensor(-8.0))
        self.log_variance = nn.Parameter(torch.tensor(0.0))
        self.requires_grad_(width > 0)

    def forward(self, task: Task, past: Bank, capacity: int) -> EvidenceAnswer:
        task = task._replace(support=self._project(task.support), query=self._project(task.query))
        now = memory_bank.next_step(past) + torch.arange(len(task.support), device=task.support.device)[:, None]
        total, evidence = class_sums(task.support, one_hot(task.labels, task.n_way))
        entries = self._entries(task, total, evidence, now)
        bank = memory_bank.join(past, memory_bank.in_time(entries))
        mask = memory_bank.visible(bank.steps, now, capacity)
        if task.names is None:
            task = self._read_nodes(task, bank, mask)
            total, evidence = class_sums(task.support, one_hot(task.labels, task.n_way))
        else:
            known, worth = gather_by_name(bank, task.names, mask, bank.weights * (bank.kinds == CLASS_SUPPORTS))
            known, worth = total + known, evidence + worth
            if self.reading.together:
                known, worth = self._with_queries(task, known, worth)
            entries = self._answered(task, entries, known / worth[..., None])
            bank = memory_bank.join(past, memory_bank.in_time(entries))
            value = torch.where(bank.kinds == CLASS_SUPPORTS, 1.0, self.reading.past_query)
            known, worth = gather_by_name(bank, task.names, mask, bank.weights * value)
            total, evidence = total + known, evidence + worth
        state, weight = self._layers(task, bank, mask, total, evidence)
        variance = (self.log_variance.exp() / weight)[..., None, :].expand(*task.query.shape[:-1], -1)
        mean = self.log_scale.exp() * cosines(task.query, state) + self.bias
        return EvidenceAnswer(mean, variance, weight, bank, now)

    def _entries(self, task: Task, total: Tensor, count: Tensor, now: Tensor) -> Bank:
        """What T steps leave behind: without names every picture, or each class with its queries; by name the mean of
        each class's supports and, beside it, a place for the mean of its queries as answered."""
        if task.names is None and self.reading.together:
            whole, pictures = self._with_queries(task, total, count)
            return memory_bank.made(F.normalize(whole, dim=-1), CLASS, now, weights=pictures)
        if task.names is None:
            return memory_bank.made(torch.cat([task.support, task.query], 2), PICTURE, now)
        kinds = torch.tensor([CLASS_SUPPORTS, CLASS_QUERIES], device=now.device).repeat_interleave(task.n_way)
        means = total / count[..., None]
        parts = [torch.cat([part, torch.zeros_like(part)], 2) for part in (means, count)]
        return memory_bank.made(parts[0], kinds, now, torch.cat([task.names, task.names], 2), parts[1])

    def _answered(self, task: Task, entries: Bank, state: Tensor) -> Bank:
        """The entries of named steps with the queries in their places, as answered with the supports known then."""
        answer = (self.reading.sharpness * cosines(task.query, state)).softmax(-1)
        joined, share = class_sums(task.query, answer)
        means = joined / share[..., None].clamp(min=1e-6)
        features, weights = (part[:, :, : task.n_way] for part in entries[:2])
        return entries._replace(features=torch.cat([features, means], 2), weights=torch.cat([weights, share], 2))

    def _read_nodes(self, task: Task, bank: Bank, mask: Tensor) -> Task:
        """Each node moved towards its likes in memory, v + node * r, on the unit sphere again."""
        if not self.reading.node:
            return task
        nodes, n_support = torch.cat([task.support, task.query], 2), task.support.shape[2]
        found = attend(bank, mask, 2 * self.reading.sharpness * likeness(nodes, bank) - self._refusal(mask))
        moved = F.normalize(nodes + self.reading.node * found, dim=-1)
        return task._replace(support=moved[:, :, :n_support], query=moved[:, :, n_support:])

    def _refusal(self, mask: Tensor) -> Tensor:
        """The logit of joining nothing: (T, B, E) -> (T, B, 1, 1)"""
        in_sight = mask.sum(-1).clamp(min=1)[..., None, None]
        return 2 * self.reading.sharpness * self.reading.refusal + self.reading.crowd * in_sight.log()

    def _layers(self, task: Task, bank: Bank, mask: Tensor, total: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Node updates: state (T, B, N, d) and the evidence behind it (T, B, N), to which queries add none."""
        if task.names is None and self.reading.together:
            return self._join_classes(task, bank, mask, total, evidence)
        state, weight, reading = total / evidence[..., None], evidence, self.reading
        for _ in range(self.n_layers):
            gathered, weight, company = total, evidence, torch.zeros_like(evidence)
            if self.transductive:
                answer = (reading.sharpness * cosines(task.query, state)).softmax(-1)
                joined, company = class_sums(task.query, reading.query * answer)
                gathered = gathered + joined
            if task.names is None and bank.steps.shape[1]:
                logits = 2 * reading.sharpness * likeness(F.normalize(state, dim=-1), bank)
                joined, share = join_by_content(bank, mask, logits, self._refusal(mask))
                gathered, weight = gathered + reading.past_picture * joined, weight + reading.past_picture * share
            state = gathered / (weight + company)[..., None]
        return state, weight

    def _with_queries(self, task: Task, total: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Sums and counts of each class with the queries that join it, round after round, in this task alone."""
        whole, pictures = total, evidence
        for _ in range(self.n_layers):
            answer = (self.reading.sharpness * cosines(task.query, whole)).softmax(-1)
            joined, company = class_sums(task.query, self.reading.query * answer)
            whole, pictures = total + joined, evidence + company
        return whole, pictures

    def _join_classes(self, task: Task, bank: Bank, mask: Tensor, *own: Tensor) -> tuple[Tensor, Tensor]:
        """`_layers` where memory holds classes: each joins once what it looks like, or none; ``own`` sums."""
        whole, pictures = self._with_queries(task, *own) if self.transductive else own
        logits = 2 * self.reading.sharpness * likeness(F.normalize(whole, dim=-1), bank)
        mask, refusal = self.reading.past_picture * mask * bank.weights, self._refusal(mask)
        joined, share = join_by_content(bank, mask, logits, refusal)
        return (whole + joined) / (pictures + share)[..., None], own[1] + share

    def _project(self, features: Tensor) -> Tensor:
        """Unit vectors under the learned metric. (..., inputs) -> (..., width)"""
        return F.normalize(self.metric(features - self.centre), dim=-1)
