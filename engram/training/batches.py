"""Training batches: tasks drawn from a store, images augmented, all from generators whose state can be saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.data.episodes import draw_tasks, episodes_from, placed, time_major
from engram.data.pixels import CROP, Crop, augment
from engram.data.store import Store
from engram.processes import ALL, Share
from engram.protocol import Protocol
from engram.training.ahead import Ahead
from engram.types import Episode, TrainBatch, in_one_call


def check_ranges(store: Store, protocol: Protocol, ranges: Mapping[str, tuple[int, int]]) -> None:
    """What the store cannot serve at the ends, it would refuse somewhere in the middle of training."""
    for end in (0, 1):
        sizes: dict[str, Any] = {key: ends[end] for key, ends in ranges.items()}
        replace(protocol, **sizes).check(store)


class BatchSource:
    """Draws the training batches of a run; the same seed gives the same batches on one kind of device."""

    def __init__(
        self,
        store: Store,
        protocol: Protocol,
        augmentation: str,
        device: torch.device,
        class_batch: int = 0,
        ranges: Mapping[str, tuple[int, int]] | None = None,
        crop: Crop = CROP,
        shares: tuple[Share, Share] = (ALL, ALL),
    ) -> None:
        self.store = store
        self.protocol = protocol
        self.ranges = ranges or {}
        self.device = device
        self.class_batch = class_batch
        self.of_sequences, self.of_images = shares
        # Augmentation knows pixels only; features from a store pass as they are.
        self.augmentation, self.crop = augmentation if store.is_pixels else "none", crop
        self.tasks = np.random.default_rng(protocol.seed)
        self.transforms = torch.Generator(device).manual_seed(protocol.seed)
        elsewhere = store.file is not None or store.images.device.type != device.type
        self.ahead = Ahead(store, device, self._drawn, self.tasks) if elsewhere else None

    @property
    def at_hand(self) -> Store:
        """What the rows of the lists point into: all images, or those of the step alone where the rest is on disk."""
        return self.ahead.at_hand if self.ahead else self.store

    @property
    def tasks_state(self) -> Mapping[str, Any]:
        """Of the generator of tasks after the last step, whatever is drawn ahead."""
        return (self.ahead and self.ahead.state) or self.tasks.bit_generator.state

    def draw(self, progress: float) -> TrainBatch:
        return self.assemble(self.placed(self.draw_lists()), progress)

    def draw_lists(self) -> dict[str, np.ndarray]:
        """Which images and labels the next step takes: whole numbers, and all of a step that the host decides."""
        return self.ahead.next() if self.ahead else self._drawn()

    def placed(self, lists: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        return placed(self.at_hand, lists, self.device)

    def _drawn(self) -> dict[str, np.ndarray]:
        """All of a step is drawn, and the share of this process kept."""
        sizes: dict[str, Any] = {
            key: int(self.tasks.integers(*ends, endpoint=True)) for key, ends in self.ranges.items()
        }
        protocol = replace(self.protocol, **sizes) if sizes else self.protocol
        tasks = draw_tasks(self.store, protocol, self.tasks)
        lists = time_major(tasks.slice(self.of_sequences.of(tasks.n_sequences)))
        if self.class_batch:  # drawn evenly over the whole split; none asked for draws no number
            rows = self.tasks.integers(0, len(self.store.images), self.class_batch)[self.of_images.of(self.class_batch)]
            lists["base_rows"], lists["base_ids"] = rows, np.searchsorted(self.store.offsets, rows, side="right") - 1
        return lists

    def assemble(self, lists: Mapping[str, Tensor], progress: float | Tensor) -> TrainBatch:
        """The batch of drawn lists, images gathered and augmented: all of it on the device."""
        episodes, answers = episodes_from(self.at_hand, lists, self.protocol.n_way)
        base = None
        if self.class_batch:
            images = self.at_hand.gather(lists["base_rows"])
            base = self._changed(images, [len(images)], self.of_images), lists["base_ids"]
        return TrainBatch(self._augmented(episodes), answers, base, progress)

    def _augmented(self, episodes: tuple[Episode, ...]) -> tuple[Episode, ...]:
        """All images of all steps in one call."""
        if self.augmentation == "none":
            return episodes
        return tuple(in_one_call(partial(self._changed, share=self.of_sequences), episodes))

    def _changed(self, images: Tensor, sizes: Sequence[int], share: Share) -> Tensor:
        """Augmented as they would be among those of all processes."""
        rows, total = share.rows(sizes, self.device), share.count * len(images)
        return augment(images, self.augmentation, self.transforms, self.crop, rows, total)


def micro_batches(batch: TrainBatch, sequences: int) -> list[TrainBatch]:
    """The batch in parts of at most ``sequences`` sequences, base-class images shared out; 0 leaves it whole."""
    count = len(batch.episodes[0].support_labels)
    if not 0 < sequences < count:
        return [batch]
    starts = range(0, count, sequences)
    base = (
        list(zip(*(part.tensor_split(len(starts)) for part in batch.class_batch), strict=True))
        if batch.class_batch
        else []
    )
    return [
        replace(
            batch,
            episodes=tuple(e.part(slice(start, start + sequences)) for e in batch.episodes),
            answers=tuple(a.part(slice(start, start + sequences)) for a in batch.answers),
            class_batch=base[i] if base else None,
        )
        for i, start in enumerate(starts)
    ]


def random_state(source: BatchSource) -> dict[str, Tensor]:
    """All torch generators of a run; the numpy one is plain numbers and goes to state.json."""
    states = {"torch_cpu": torch.get_rng_state(), f"transforms_{source.device.type}": source.transforms.get_state()}
    if source.device.type == "cuda":
        states["torch_cuda"] = torch.cuda.get_rng_state(source.device)
    return states


def restore_random_state(
    source: BatchSource, tensors: dict[str, Tensor], numpy_state: Mapping[str, Any], iteration: int
) -> None:
    """Go on exactly where the saved run stopped.

    A generator saved on another kind of device has no counterpart here: it starts anew from seed and iteration, so the
    run stays repeatable though not equal to one that never moved.
    """
    source.tasks.bit_generator.state = numpy_state
    if source.ahead:
        source.ahead.forget()
    torch.manual_seed(source.protocol.seed + iteration)
    source.transforms.manual_seed(source.protocol.seed + iteration)
    torch.set_rng_state(tensors["torch_cpu"])
    if (key := f"transforms_{source.device.type}") in tensors:
        source.transforms.set_state(tensors[key])
    if source.device.type == "cuda" and "torch_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["torch_cuda"], source.device)
