"""Features that may be too many to be copied: blocks in memory or on disk, read as one tensor would be."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SMALL = 50_000


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
