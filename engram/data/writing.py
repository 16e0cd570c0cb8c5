"""A store written whole or not at all, in place of nothing but another store.

Images are written one after another, so that memory holds a few of them, whatever their number.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from engram.data.digests import begin_digest
from engram.data.formats.form import SplitSource
from engram.data.store import FILES, STORE_VERSION, Store, StoreInfo
from engram.data.unfinished import Unfinished, begin, remove, sync
from engram.errors import EngramError
from engram.files import read_json

BLOCK_BYTES = 4 * 2**20
"""of images that are gathered before they are written"""
NOTE_BYTES = 256 * 2**20
"""of images after which it is noted how far they are: what is lost of a killed build, at most"""


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


def build(
    folder: Path, dataset: str, split: str, source: SplitSource, origin: str, quiet: bool = False, resume: bool = False
) -> Store:
    """Write a store from a source with a progress bar; nothing is left behind if it fails half-way.

    ``resume`` goes on with a build of the same source that was killed or interrupted; else such a one is removed.
    """
    check_replaceable(folder)
    info = StoreInfo(STORE_VERSION, dataset, split, source.class_names, source.group_size, origin, "")
    half: Unfinished | None = None
    try:
        half = begin(folder, resume)
        with half.images:
            _Writing(half, source, info).write(quiet)
            half.publish(folder)
    except BaseException as error:
        if half and not (resume and isinstance(error, KeyboardInterrupt)):
            remove(half.folder)
        if isinstance(error, OSError):
            raise EngramError(
                f"the store {folder} could not be written ({error.strerror or error}): nothing was left behind"
            ) from error
        raise
    return Store.open(folder)


class _Writing:
    """Images on their way from a source to a hidden folder; their digest is made meanwhile."""

    def __init__(self, half: Unfinished, source: SplitSource, info: StoreInfo) -> None:
        self.half, self.source, self.info = half, source, info
        self.offsets = np.concatenate([[0], np.cumsum(source.counts)]).astype(np.int64)
        self.row_bytes = int(np.prod(source.image_shape)) * np.dtype(source.dtype).itemsize
        self.block = np.empty((max(1, BLOCK_BYTES // self.row_bytes), *source.image_shape), source.dtype)
        self.header, self.digest = self._header(), begin_digest(self.offsets, source.class_names)
        self.plan = hashlib.sha256(self.header + f"{asdict(info)} {source.counts}".encode()).hexdigest()
        self.row = self.noted = self._go_on()

    def write(self, quiet: bool) -> None:
        filled = 0
        console = Console(stderr=True)
        with Progress(console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
            task = bar.add_task(f"building {self.info.dataset} {self.info.split}", total=int(self.offsets[-1]))
            for image in self._images():
                self.block[filled] = image
                filled += 1
                if filled == len(self.block):
                    self._add(self.block)
                    bar.update(task, completed=self.row)
                    filled = 0
            self._add(self.block[:filled])
        sync(self.half.images)
        np.save(self.half.folder / FILES[1], self.offsets)
        info = replace(self.info, digest=self.digest.hexdigest())
        (self.half.folder / FILES[2]).write_text(json.dumps(asdict(info), indent=1))

    def _images(self) -> Iterator[np.ndarray]:
        """Those not yet written, class after class; each class must have as many as were announced."""
        source, first = self.source, int(np.searchsorted(self.offsets, self.row, side="right")) - 1
        for c in range(first, len(source.class_names)):
            given = self.row - int(self.offsets[c]) if c == first else 0
            for image in islice(source.read_class(c), given, None):
                if given < source.counts[c]:  # a surplus image must not land in the next class
                    yield image
                given += 1
            if given != source.counts[c]:
                raise EngramError(
                    f"class '{source.class_names[c]}' of {self.info.dataset} {self.info.split} gave {given} images "
                    f"where {source.counts[c]} were announced: check {self.info.source}"
                )

    def _add(self, images: np.ndarray) -> None:
        data = images.reshape(-1).view(np.uint8).data
        self.half.images.write(data)
        self.digest.update(data)
        self.row += len(images)
        if (self.row - self.noted) * self.row_bytes >= NOTE_BYTES:
            self.half.note(self.plan, self.row, self.digest.hexdigest())
            self.noted = self.row

    def _header(self) -> bytes:
        """What stands in a file before its images."""
        stream, said = io.BytesIO(), np.lib.format.header_data_from_array_1_0(self.block)
        shape = (int(self.offsets[-1]), *self.source.image_shape)
        np.lib.format.write_array_header_1_0(stream, said | {"shape": shape})
        return stream.getvalue()

    def _go_on(self) -> int:
        """The row to begin with. What a killed build has left counts where its digest is the one that was noted."""
        images, note = self.half.images, self.half.noted(self.plan)
        images.seek(0)
        if note and images.read(len(self.header)) == self.header:
            digest, left = self.digest.copy(), note["rows"] * self.row_bytes
            while left > 0 and (data := images.read(min(left, BLOCK_BYTES))):
                digest.update(data)
                left -= len(data)
            if digest.hexdigest() == note["digest"]:
                images.truncate(len(self.header) + note["rows"] * self.row_bytes)
                self.digest = digest
                return int(note["rows"])
        images.truncate(0)
        images.write(self.header)
        return 0
