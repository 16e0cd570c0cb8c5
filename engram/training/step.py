"""One step of training: for each objective loss, gradients, clipping, optimiser. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from engram import processes
from engram.errors import EngramError
from engram.processes import Message
from engram.recipes.schema import TrainSettings
from engram.training.batches import BatchSource, micro_batches
from engram.training.choosing import Average
from engram.training.optimise import begin_momentum, build_optimiser, clip_groups, step_by_chance
from engram.types import Method, Objective, TrainBatch

Losses = tuple[tuple[str, ...], Tensor]
"""names and values"""


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
    average: Average | None = None
    """follows the weights once per step, after all objectives"""

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
        self.buffers = [buffer for buffer in self.method.buffers() if buffer.is_floating_point()]

        self.held = False

    def hold(self, held: bool) -> bool:
        """The backbone stays as it is while ``held``: without gradients its weights are passed over. Whether that is
        new: steps then consist of something else than before."""
        if new := held != self.held:
            self.held = held
            for parameter in {*self.method.backbone.parameters()} & {*self.parameters}:
                parameter.requires_grad_(not held)
            self.method.backbone.train(not held)
        return new

    def __call__(self, batch: TrainBatch) -> Losses:
        return processes.told(self.pieces(batch))

    def pieces(self, batch: TrainBatch) -> Message[Losses]:
        """A step up to each message of several processes and from it on: gradients are made, averaged, and used.

        ``loss`` is the sum of the objectives' totals; their terms follow, in the same order.
        """
        parts = micro_batches(batch, self.micro_batch)
        names: list[str] = []
        totals, terms = [], []
        for objective, optimiser in zip(self.objectives, self.optimisers, strict=True):
            own, values = yield from self._learn(parts, objective, optimiser)
            names += own
            totals.append(values[:1])
            terms.append(values[1:])
        if self.average:
            self.average.follow()
        return ("loss", *names), torch.cat([torch.stack(totals).sum(0), *terms])

    def _learn(self, parts: list[TrainBatch], objective: Objective, optimiser: Optimizer) -> Message[Losses]:
        """The update of one objective; the names of its terms, and the values of its total and of them."""
        optimiser.zero_grad(set_to_none=True)  # of all: every optimiser has the same parameters
        rows, count = [], sum(len(part.answers[0].query_labels) for part in parts)
        before = [buffer.clone() for buffer in self.buffers] if processes.mine().count > 1 else []
        for part in parts:
            terms = objective.loss(part)
            share = len(part.answers[0].query_labels) / count
            (terms.total if len(parts) == 1 else terms.total * share).backward()
            rows.append(share * torch.stack([v.detach().float() for v in (terms.total, *terms.terms.values())]))
        values = torch.stack(rows).sum(0)
        if before:
            yield from self._average(values, before)
        clip_groups(optimiser, self.settings.clip, self.settings.clip_value)
        if objective.chance is None:
            begin_momentum(optimiser)
            optimiser.step()
        else:
            step_by_chance(optimiser, objective.chance(parts[0].progress))
        return tuple(terms.terms), values

    @torch.no_grad()
    def _average(self, values: Tensor, before: list[Tensor]) -> Message[None]:
        """Gradients, losses and what buffers have changed by become their means over the processes.

        By hand: a module wrapped for it passes by gradients that a method makes itself, and sees one loss for a step.
        """
        changes = torch._foreach_sub(self.buffers, before)  # what nobody changes then stays exactly as it is
        yield from processes.averaging([*(p.grad for p in self.parameters if p.grad is not None), *changes, values])
        for buffer, start, change in zip(self.buffers, before, changes, strict=True):
            buffer.copy_(start + change)


WARM_UP = 3
"""steps made one operation at a time before capture: kernels are chosen and compiled in them"""


class Stepper:
    """Makes the steps of a run: from the fourth of a kind on, on a GPU, by replaying a captured one.

    ``fallback`` says why steps are not captured, where that was wanted; it is empty while they are or will be.
    """

    def __init__(self, source: BatchSource, update: Update, captured: bool) -> None:
        self.source, self.update, self.captured = source, update, captured
        self.fallback = ""
        if captured and source.ranges:
            self._give_up("its sizes are drawn anew for every step")
        elif captured and not update.method.capturable:
            self._give_up("it calls a library that cannot be captured")
        self.steps = self.alike = 0
        """made in all, and since `begin_anew`"""
        self.graph: _Graph | None = None
        self.side = torch.cuda.Stream(source.device) if self.captured else None

    def begin_anew(self) -> None:
        """The coming steps consist of something else: made one operation at a time first, then captured."""
        if self.graph is not None:
            torch.cuda.synchronize(self.source.device)  # replays of it may still be under way
        self.alike, self.graph = 0, None

    def __call__(self, progress: float) -> Losses:
        self.steps, self.alike = self.steps + 1, self.alike + 1
        if self.steps == 2:  # some methods begin with what their first batch shows them, each process with its share
            processes.copy_from_first(list(self.update.method.state_dict().values()))
        lists = self.source.draw_lists()
        if self.captured and self.alike > WARM_UP and self.graph is None:
            self._capture(lists)
        if self.graph is not None:
            return self.graph.replay(lists, progress)
        if self.side is None:
            return self.update(self.source.assemble(self.source.placed(lists), progress))
        # Gradients are tied to the stream of the first backward pass, and a capture may not wait for the default one.
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            result = self.update(self.source.assemble(self.source.placed(lists), progress))
        torch.cuda.current_stream().wait_stream(self.side)
        return result

    def _capture(self, lists: Mapping[str, np.ndarray]) -> None:
        generators = (torch.cuda.default_generators[self.source.device.index or 0], self.source.transforms)
        states = [generator.clone_state() for generator in generators]
        try:
            self.graph = _Graph(self.source, self.update, lists)
        except RuntimeError as error:  # the method looks at a number on the host, or makes shapes out of data
            torch.cuda.synchronize(self.source.device)
            for generator, state in zip(generators, states, strict=True):
                generator.graphsafe_set_state(state)  # a new state: the old one still counts itself as being captured
            self._give_up(f"the step cannot be captured ({str(error).splitlines()[0]})")

    def _give_up(self, reason: str) -> None:
        self.captured, self.side, self.fallback = False, None, reason


class _Graph:
    """A captured step: one CUDA graph, or where processes talk over gloo one up to each message and one after it.

    All have one pool of memory and are replayed in the order they were captured in.
    """

    def __init__(self, source: BatchSource, update: Update, lists: Mapping[str, np.ndarray]) -> None:
        self.shapes = {name: array.shape for name, array in lists.items()}
        self.numbers = torch.zeros(sum(array.size for array in lists.values()), dtype=torch.int64, device=source.device)
        self.numbers.copy_(_packed(lists))
        self.progress = torch.zeros((), device=source.device)
        self.parts: list[tuple[torch.cuda.CUDAGraph, Tensor | None]] = []
        pieces = self._pieces(source, update)
        with processes.in_silence() if processes.cut_graphs() else nullcontext():
            while not self.parts or self.parts[-1][1] is not None:
                graph = torch.cuda.CUDAGraph()
                graph.register_generator_state(source.transforms)
                with torch.cuda.graph(graph, pool=self.parts[0][0].pool() if self.parts else None):
                    self.parts.append((graph, next(pieces, None)))

    def _pieces(self, source: BatchSource, update: Update) -> Iterator[Tensor]:
        """The messages that stand between graphs."""
        batch = source.assemble(self._lists(), self.progress)
        step = update.pieces(batch)
        self.names, self.values = (yield from step) if processes.cut_graphs() else processes.told(step)

    def _lists(self) -> dict[str, Tensor]:
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        parts = self.numbers.split(sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def replay(self, lists: Mapping[str, np.ndarray], progress: float) -> Losses:
        self.numbers.copy_(_packed(lists).pin_memory(), non_blocking=True)
        self.progress.fill_(progress)
        for graph, message in self.parts:
            graph.replay()
            if message is not None:
                processes.add_up(message)
        return self.names, self.values.clone()


def _packed(lists: Mapping[str, np.ndarray]) -> Tensor:
    """All lists in one row of numbers: one copy to the device instead of six."""
    return torch.from_numpy(np.concatenate([array.ravel() for array in lists.values()]).astype(np.int64, copy=False))
