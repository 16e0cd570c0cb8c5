"""Class-indexed images (or features) of one split in memory-mapped files.

A store is a folder with three files: ``images.npy`` (n, ...) with the images of one class next to each other,
``offsets.npy`` (n_classes + 1,) where class c owns rows ``offsets[c]:offsets[c + 1]``, and ``store.json``.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from engram.data.formats.form import SplitSource
from engram.errors import EngramError
from engram.files import open_regular, read_json, remove_own
from engram.structure import structure

STORE_VERSION = 1
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
    """Images of one split. ``images`` stays on disk until `to` moves it to memory or a device."""

    def __init__(self, images: Tensor, offsets: np.ndarray, info: StoreInfo) -> None:
        self.images = images
        self.offsets = offsets
        self.info = info

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
    def maker(self) -> str:
        """Who made them, where these are features: encoder, recipe, run and step; "" for images."""
        maker = self.info.source.split(", from ")[0]
        return maker if maker.startswith("features of ") else ""

    @property
    def digest(self) -> str:
        return self.info.digest

    def to(self, device: torch.device | str) -> Store:
        """The same store with its images held on ``device`` ("cpu" = in memory)."""
        images = self.images.clone() if str(device) == "cpu" else self.images.to(device)
        return Store(images, self.offsets, self.info)

    def gather(self, rows: Tensor) -> Tensor:
        """Images of any index tensor: (...,) -> (..., C, H, W), on the store's device."""
        rows = rows.to(self.images.device)
        return self.images.index_select(0, rows.flatten()).unflatten(0, rows.shape)

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
        digest = _digest(array.cpu().contiguous().view(torch.uint8).numpy(), offsets, names)
        return cls(array, offsets, StoreInfo(STORE_VERSION, dataset, split, names, group_size, "memory", digest))

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open a built store in milliseconds: files are mapped, not read."""
        try:
            raw = read_json(folder / "store.json")
            if not isinstance(raw, dict) or not isinstance(raw.get("version"), int):
                raise ValueError("store.json has no version")
            if raw["version"] > STORE_VERSION:
                raise EngramError(
                    f"{folder}/store.json has version {raw['version']} but this Engram reads up to {STORE_VERSION}: "
                    f"update Engram, or delete the folder to build it again"
                )
            info = structure(raw, StoreInfo, "store.json")
            images = torch.from_numpy(_mapped(folder / "images.npy", "c"))
            offsets = np.array(_mapped(folder / "offsets.npy", "r"))
            _check_rows(info, images, offsets)
        except (OSError, ValueError, TypeError, EOFError, MemoryError, OverflowError) as error:
            raise EngramError(
                f"the store {folder} cannot be opened ({error}): delete the folder and it is built again"
            ) from error
        return cls(images, offsets, info)


def _mapped(path: Path, mode: Literal["c", "r"]) -> np.ndarray:
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


def _digest(data: np.ndarray, offsets: np.ndarray, class_names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    digest.update(np.ascontiguousarray(offsets, dtype=np.int64).tobytes())
    digest.update("\n".join(class_names).encode())
    flat = data.reshape(len(data), -1)
    for start in range(0, len(flat), 4096):  # in pieces: a memory map larger than memory must pass too
        digest.update(np.ascontiguousarray(flat[start : start + 4096]).tobytes())
    return digest.hexdigest()


def verify(store: Store) -> bool:
    """Read every byte and compare with the digest the store was built with."""
    data = store.images.cpu().contiguous().view(torch.uint8).numpy()
    return _digest(data, store.offsets, store.info.class_names) == store.digest


def check_replaceable(folder: Path) -> None:
    """Refuse a folder that a store may not take the place of: only an earlier store or an empty folder is given up."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise EngramError(f"{folder} is a link or a file, which no store replaces: name another folder")
    held = {entry.name for entry in folder.iterdir()}
    if held and not (held <= set(FILES) and _is_marked(folder)):
        what = f"it holds '{min(held - set(FILES), default=min(held))}'"
        raise EngramError(
            f"{folder} is not a store that Engram wrote ({what}), so it is not replaced: name another folder"
        )


def _is_marked(folder: Path) -> bool:
    try:
        marker = read_json(folder / FILES[-1])
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and {f.name for f in fields(StoreInfo)} <= marker.keys()


def _publish(temporary: Path, folder: Path, aside: Path) -> None:
    """Give a complete store its name; one of that name from before is moved aside, and back if this fails."""
    if folder.exists():
        os.replace(folder, aside)
    try:
        os.replace(temporary, folder)
    except OSError:
        if aside.exists():
            os.replace(aside, folder)
        raise


def build(folder: Path, dataset: str, split: str, source: SplitSource, origin: str, quiet: bool = False) -> Store:
    """Write a store from a source with a progress bar; nothing is left behind if it fails half-way."""
    check_replaceable(folder)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
    aside = temporary.with_name(f"{temporary.name}.replaced")
    try:
        temporary.mkdir(parents=True)
        offsets = np.concatenate([[0], np.cumsum(source.counts)]).astype(np.int64)
        shape = (int(offsets[-1]), *source.image_shape)
        images = np.lib.format.open_memmap(temporary / "images.npy", "w+", np.dtype(source.dtype), shape)
        classes = range(len(source.class_names))
        for c in track(classes, f"building {dataset} {split}", disable=quiet, transient=True):
            row = int(offsets[c])
            for image in source.read_class(c):
                if row < offsets[c + 1]:  # a surplus image must not land in the next class
                    images[row] = image
                row += 1
            if row != offsets[c + 1]:
                raise EngramError(
                    f"class '{source.class_names[c]}' of {dataset} {split} gave {row - offsets[c]} images "
                    f"where {source.counts[c]} were announced: check {origin}"
                )
        images.flush()
        np.save(temporary / "offsets.npy", offsets)
        digest = _digest(images.view(np.uint8) if images.dtype != np.uint8 else images, offsets, source.class_names)
        info = StoreInfo(STORE_VERSION, dataset, split, source.class_names, source.group_size, origin, digest)
        (temporary / "store.json").write_text(json.dumps(asdict(info), indent=1))
        _publish(temporary, folder, aside)
    except OSError as error:
        raise EngramError(
            f"the store {folder} could not be written ({error.strerror or error}): nothing was left behind"
        ) from error
    finally:
        for left in (temporary, aside):
            with suppress(OSError):
                remove_own(left, FILES)
    return Store.open(folder)
