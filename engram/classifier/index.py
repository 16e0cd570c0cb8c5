"""Remembered features, which may be too many to be copied, and an index over them: the entries nearest to a picture
without looking at all of them, and class sums.

IVF-flat: entries lie in lists around centres (spherical k-means); only the lists whose centres are nearest to the
picture are read, row by row from where the features lie. What came after the index was made is looked at one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engram.classifier.progress import watched

SMALL = 50_000
"""rows of a last block that more rows still join"""


class Rows:
    """Blocks (n_i, ...) of one type and shape, one after another; a block may be mapped from a file."""

    def __init__(self, blocks: Sequence[Tensor]) -> None:
        self.blocks = tuple(blocks)
        self.ends = torch.tensor([len(block) for block in self.blocks]).cumsum(0)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.blocks[0].shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        return self.blocks[0].dtype

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, chosen: Tensor | slice) -> Tensor:
        """Rows by number or mask, copied; in the order asked for."""
        if isinstance(chosen, slice):
            chosen = torch.arange(len(self))[chosen]
        chosen = chosen.nonzero()[:, 0] if chosen.dtype == torch.bool else chosen.long()
        if len(self.blocks) == 1:  # NumPy, which gathers rows several times as fast as PyTorch
            return torch.from_numpy(self.blocks[0].numpy()[chosen.numpy()])
        found = self.blocks[0].new_empty(len(chosen), *self.blocks[0].shape[1:])
        owners = torch.searchsorted(self.ends, chosen, right=True)
        for number, block in enumerate(self.blocks):
            here = owners == number
            if here.any():
                found[here] = block[chosen[here] - (int(self.ends[number]) - len(block))]
        return found

    def joined(self, more: Tensor) -> Rows:
        """With more rows at the end; they join the last block where it is small and not the only one."""
        if self.dtype == torch.float16:
            most = torch.finfo(torch.float16).max
            more = more.clamp(-most, most)
        more = more.to(self.dtype)
        if len(self.blocks) > 1 and len(self.blocks[-1]) < SMALL:
            return Rows((*self.blocks[:-1], torch.cat([self.blocks[-1], more])))
        return Rows((*self.blocks, more))


READ = 32_768
"""entries that are looked at for a picture: all of a small memory, those in the nearest lists of a large one"""
IN_CACHE = 1024
"""of them at once: what fits in the cache of a core is several times as fast"""
SAMPLE, ROUNDS = 32, 6
"""entries per centre and rounds of k-means"""
CHUNK = 8192
"""rows that are read at once when all are"""
TAIL = 10_000
"""entries behind the index that are looked at one by one; more are put into its lists"""
TOLD = 50_000
"""entries that take some seconds to put into lists"""
OUTGROWN = 4
"""an index of this many times more entries than its centres were made for gets new centres"""


@dataclass(frozen=True)
class Index:
    """Of the first ``len(order)`` entries of a memory."""

    centres: Tensor
    """(L, d) unit vectors"""
    order: Tensor
    """(rows,) int32 entries, list by list"""
    starts: Tensor
    """(L + 1,) where each list begins in ``order``"""
    sums: Tensor
    """(N, d) sum of the features of each class"""
    made_for: Tensor
    """() entries when the centres were made"""

    def nearest(self, items: Rows, query: Tensor, count: int) -> Tensor:
        """Entries of the largest cosine with a query (d,), best first: (at most ``count``,)."""
        query = F.normalize(query, dim=0)
        lists = (self.centres @ query).argsort(descending=True)
        enough = int(torch.searchsorted(self.starts.diff()[lists].cumsum(0), READ)) + 1
        parts = [self.order[self.starts[i] : self.starts[i + 1]].long() for i in lists[:enough].tolist()]
        rows = torch.cat([*parts, torch.arange(len(self.order), len(items))])
        cosines = torch.cat([_units(items[part]) @ query for part in rows.split(IN_CACHE)])
        return rows[cosines.topk(min(count, len(rows))).indices]


def build(items: Rows, labels: Tensor, n_classes: int) -> Index:
    """Centres from a sample, then one pass over all entries."""
    count = max(1, round(len(items) ** 0.5))
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(items), generator=generator)[: SAMPLE * count].sort().values
    sample = torch.cat([_units(items[part]) for part in chosen.split(CHUNK)])
    centres = sample[torch.randperm(len(sample), generator=generator)[:count]]
    for _ in range(ROUNDS):
        nearest = (sample @ centres.T).argmax(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
        centres = torch.where(sums.any(1, keepdim=True), F.normalize(sums, dim=1), centres)
    empty = torch.zeros(0, dtype=torch.int32)
    starts = torch.zeros(count + 1, dtype=torch.int64)
    blank = Index(centres, empty, starts, torch.zeros(0, centres.shape[1]), torch.tensor(len(items)))
    return _extended(blank, items, labels, n_classes)


def current(index: Index | None, items: Rows, labels: Tensor, n_classes: int) -> Index:
    """The index of a memory that has grown since: as it is, with what came put into its lists, or made anew."""
    if index is None or len(items) > OUTGROWN * int(index.made_for):
        if len(items) > TOLD:
            print(
                f"making an index of {len(items)} remembered pictures, which takes a while", file=sys.stderr, flush=True
            )
        return build(items, labels, n_classes)
    return index if len(items) == len(index.order) else _extended(index, items, labels, n_classes)


def class_sums(index: Index, items: Rows, labels: Tensor, n_classes: int) -> Tensor:
    """(N, d) of all entries, those behind the index too."""
    sums = F.pad(index.sums, (0, 0, 0, n_classes - len(index.sums)))
    for part in torch.arange(len(index.order), len(items)).split(CHUNK):
        sums.index_add_(0, labels[part].long(), items[part].flatten(1).float())
    return sums


def _extended(index: Index, items: Rows, labels: Tensor, n_classes: int) -> Index:
    known = len(index.order)
    lists = np.empty(len(items), dtype=np.int32)
    lists[index.order.numpy()] = np.repeat(np.arange(len(index.centres), dtype=np.int32), index.starts.diff().numpy())
    sums = F.pad(index.sums, (0, 0, 0, n_classes - len(index.sums)))
    new = torch.arange(known, len(items))
    for part in watched(new.split(CHUNK), len(new), "index of remembered pictures"):
        features = items[part].flatten(1).float()
        sums.index_add_(0, labels[part].long(), features)
        # the length of a row changes none of its choices, so rows need no normalising here
        lists[part.numpy()] = (features @ index.centres.T).argmax(1).numpy()
    order = torch.from_numpy(np.argsort(lists, kind="stable").astype(np.int32))
    sizes = torch.from_numpy(np.bincount(lists, minlength=len(index.centres)))
    starts = F.pad(sizes.cumsum(0), (1, 0))
    return Index(index.centres, order, starts, sums, index.made_for)


def _units(features: Tensor) -> Tensor:
    return F.normalize(features.flatten(1).float(), dim=1)
