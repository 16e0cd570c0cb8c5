"""Class-indexed images (or features) of one split in memory-mapped files.

A store is a folder with three files: ``images.npy`` (n, ...) with the images of one class next to each other,
``offsets.npy`` (n_classes + 1,) where class c owns rows ``offsets[c]:offsets[c + 1]``, and ``store.json``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from engram.data.digests import digest_of
from engram.data.rows import RowFile, shares
from engram.errors import EngramError
from engram.files import UNPACKING, open_regular, read_versioned
from engram.structure import structure

STORE_VERSION = 1
MIRRORED = ", picture and mirror averaged"
MIDDLE = ", the middle seen as "
"""what the maker of such features ends in"""
MOVED_BYTES = 64 * 2**20
"""of images that go to a device at a time"""
FILES = ("images.npy", "offsets.npy", "store.json")
"""of a store; the last says that the folder is one"""


@dataclass(frozen=True)
class StoreInfo:
    version: int
    dataset: str
    split: str
    class_names: tuple[str, ...]
    group_size: int
    source: str
    digest: str


class Store:
    """Images of one split. They stay on disk, in ``file``, until `to` moves them to memory or a device."""

    near: Tensor | None = None
    """the first images, on the device of a training that has no room for the others"""

    def __init__(self, images: Tensor, offsets: np.ndarray, info: StoreInfo, file: RowFile | None = None) -> None:
        self.images = images
        """a memory map where they are on disk: good for shapes; `gather` takes less memory"""
        self.offsets = offsets
        self.info = info
        self.file = file

    @property
    def n_classes(self) -> int:
        return len(self.offsets) - 1

    @property
    def class_sizes(self) -> np.ndarray:
        """(n_classes,) images per class."""
        return np.diff(self.offsets)

    @property
    def group_counts(self) -> np.ndarray:
        """(n_classes,) originals per class: what a task may draw without meeting one twice."""
        return self.class_sizes // self.info.group_size

    @property
    def image_shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[1:])

    @property
    def n_bytes(self) -> int:
        """Of all images."""
        return self.images.numel() * self.images.element_size()

    @property
    def is_pixels(self) -> bool:
        """Whether these are images of whole numbers, which can be augmented, and not features."""
        return self.images.dtype == torch.uint8 and len(self.image_shape) == 3

    @property
    def maker(self) -> str:
        """Who made them, where these are features: encoder, recipe, run and step; "" for images."""
        maker = self.info.source.split(", from ")[0]
        return maker if maker.startswith("features of ") else ""

    @property
    def views(self) -> int:
        """2 where these are features of picture and mirror image averaged; 1 otherwise."""
        return 2 if self.maker.endswith(MIRRORED) else 1

    @property
    def window(self) -> str:
        """CROP:SIZE where these are features of the middle of each image, enlarged; "" otherwise."""
        return self.maker.removesuffix(MIRRORED).partition(MIDDLE)[2]

    @property
    def encoder(self) -> str:
        """`maker` without how it looked at the images."""
        return self.maker.removesuffix(MIRRORED).partition(MIDDLE)[0]

    @property
    def digest(self) -> str:
        return self.info.digest

    def to(self, device: torch.device | str) -> Store:
        """The same store with its images held on ``device`` ("cpu" = in memory)."""
        if self.file is None:
            images = self.images.clone() if str(device) == "cpu" else self.images.to(device)
            return Store(images, self.offsets, self.info)
        return Store(self._first(len(self.images), device), self.offsets, self.info)

    def with_near(self, room: int, device: torch.device | str) -> Store:
        """The same store with as many of its first images on ``device`` as ``room`` bytes hold."""
        found = Store(self.images, self.offsets, self.info, self.file)
        if self.file and room >= self.file.row_bytes:
            found.near = self._first(room // self.file.row_bytes, device)
        return found

    def past_cache(self) -> Store:
        """The same store, read past the system's cache of files where it can be."""
        return Store(self.images, self.offsets, self.info, self.file and self.file.past_cache())

    def _first(self, count: int, device: torch.device | str) -> Tensor:
        """So many images of a file, moved in pieces."""
        images = torch.empty((count, *self.image_shape), dtype=self.images.dtype, device=device)
        step = max(1, MOVED_BYTES * count // max(1, images.nbytes))
        for start in range(0, count, step):
            images[start : start + step] = self.gather(torch.arange(start, min(start + step, count)))
        return images

    def classes(self, ends: Sequence[int]) -> Store:
        """The classes from ``ends[0]`` to below ``ends[1]`` as a store of their own under the same digest; () = all."""
        if not ends:
            return self
        if len(ends) != 2 or not 0 <= ends[0] < ends[1] <= self.n_classes:
            raise EngramError(
                f"train_classes = {list(ends)} but {self.info.dataset} {self.info.split} has {self.n_classes} classes: "
                f"give the first and the end, from 0 up to {self.n_classes}, such as [0, {self.n_classes // 2}]"
            )
        offsets = self.offsets[ends[0] : ends[1] + 1]
        info = replace(self.info, class_names=self.info.class_names[ends[0] : ends[1]])
        file = self.file and self.file.after(int(offsets[0]))
        return Store(self.images[offsets[0] : offsets[-1]], offsets - offsets[0], info, file)

    def gather(self, rows: Tensor) -> Tensor:
        """Images of any index tensor: (...,) -> (..., C, H, W), on the store's device."""
        if self.file is None:
            rows = rows.to(self.images.device)
            return self.images.index_select(0, rows.flatten()).unflatten(0, rows.shape)
        images = torch.empty((rows.numel(), *self.image_shape), dtype=self.images.dtype)
        self.file.read_all(self.checked(rows.flatten().cpu().numpy()), as_bytes(images))
        return images.unflatten(0, rows.shape)

    def plan(self, rows: np.ndarray, out: Tensor, pool: Executor) -> list[Future[Any]]:
        """`gather` into a tensor in memory by the threads of a pool: done when all of these are."""
        if self.file:
            return self.file.plan(self.checked(rows), as_bytes(out), pool)
        select, images = torch.index_select, self.images
        return [pool.submit(select, images, 0, torch.from_numpy(rows[p]), out=out[p]) for p in shares(len(rows))]

    def checked(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self.images):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self.images)}")
        return rows

    @classmethod
    def from_arrays(
        cls,
        images: np.ndarray | Tensor,
        counts: Sequence[int],
        dataset: str = "array",
        split: str = "test",
        class_names: Sequence[str] | None = None,
        group_size: int = 1,
    ) -> Store:
        """A store in memory, for tests, features and notebooks. ``counts`` gives the images of each class in order."""
        array = torch.as_tensor(images)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if offsets[-1] != len(array):
            raise EngramError(f"the class counts add up to {offsets[-1]} but there are {len(array)} images")
        names = tuple(class_names or (f"class{i}" for i in range(len(counts))))
        digest = digest_of(array.cpu().contiguous().view(torch.uint8).numpy(), offsets, names)
        return cls(array, offsets, StoreInfo(STORE_VERSION, dataset, split, names, group_size, "memory", digest))

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open a built store in milliseconds: files are mapped, not read."""
        try:
            way_out = "update Engram, or delete the folder to build it again"
            raw = read_versioned(folder / FILES[-1], STORE_VERSION, way_out=way_out)
            info = structure(raw, StoreInfo, "store.json")
            mapped = _mapped(folder / "images.npy", "c")
            images = torch.from_numpy(mapped)
            offsets = np.array(_mapped(folder / "offsets.npy", "r"))
            _check_rows(info, images, offsets)
            file = _row_file(folder / "images.npy", images, mapped.offset)
        except (OSError, ValueError, TypeError, EOFError, MemoryError, OverflowError, *UNPACKING) as error:
            raise EngramError(
                f"the store {folder} cannot be opened ({error}): delete the folder and it is built again"
            ) from error
        return cls(images, offsets, info, file)


def as_bytes(images: Tensor) -> np.ndarray:
    """(n, ...) in memory -> (n, bytes of one), the same memory."""
    return images.flatten(1).view(torch.uint8).numpy()


def _row_file(path: Path, images: Tensor, start: int) -> RowFile | None:
    """None where the system has no way to read at a place: the memory map is left."""
    row_bytes = images[0].numel() * images.element_size() if len(images) else 0
    if not row_bytes or not images.is_contiguous() or not hasattr(os, "preadv"):
        return None
    return RowFile(path, start, row_bytes)


def _mapped(path: Path, mode: Literal["c", "r"]) -> np.memmap:
    """An array on disk; nothing is read of it, so that a few bytes that announce terabytes cost none."""
    with open_regular(path):
        pass  # a pipe or a device is told, not waited for
    array = np.load(path, mmap_mode=mode)
    if not isinstance(array, np.memmap):
        raise ValueError(f"{path.name} is not one array")
    return array


def _check_rows(info: StoreInfo, images: Tensor, offsets: np.ndarray) -> None:
    """Every class owns rows that are there."""
    if images.dim() not in (2, 4) or 0 in images.shape[1:]:
        raise ValueError(f"images of the shape {tuple(images.shape[1:])} are neither pictures nor features")
    if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) != len(info.class_names) + 1:
        raise ValueError("offsets.npy has no row for each class")
    if offsets[0] != 0 or (np.diff(offsets) < 0).any() or offsets[-1] != len(images):
        raise ValueError("row counts differ")
    if info.group_size < 1:
        raise ValueError(f"its group_size is {info.group_size}")


def verify(store: Store) -> bool:
    """Read every byte and compare with the digest the store was built with."""
    data = store.images.cpu().contiguous().view(torch.uint8).numpy()
    return digest_of(data, store.offsets, store.info.class_names) == store.digest
