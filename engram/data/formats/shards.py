"""Stores in pieces, for places that are read file by file: ``s3://``, ``gs://`` and whatever else fsspec knows.

``URL/<dataset>/<split>`` holds ``shard-00000.bin``, ... with the bytes of the images in the store's order, and
``manifest.json`` with the rows, size and digest of each. They are read once, one after the other, into a store of the
cache. `write_store` writes them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track

from engram.data.formats.form import SPLITS, Form, SplitSource
from engram.errors import EngramError
from engram.structure import structure

if TYPE_CHECKING:
    from engram.data.store import Store

MANIFEST, VERSION = "manifest.json", 1
MOST_BYTES = 2**31
"""of a shard: it is held in memory while it is read"""
SHARD_BYTES = 128 * 2**20
"""of one that is written"""


@dataclass(frozen=True)
class Shard:
    name: str
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    version: int
    dataset: str
    split: str
    class_names: tuple[str, ...]
    counts: tuple[int, ...]
    group_size: int
    image_shape: tuple[int, ...]
    dtype: str
    digest: str
    """of the store they were cut from"""
    shards: tuple[Shard, ...]


def url_of(place: Path | str | None) -> str:
    """The URL that a place is, "" where it is a folder; a `Path` of one has lost a slash."""
    found = re.fullmatch(r"([a-z][a-z0-9+]+):(/+)(.*)", str(place or ""))
    return f"{found[1]}://{'/' if found[1] == 'file' else ''}{found[3].lstrip('/')}" if found else ""


class Shards:
    """The folder of one split behind a URL."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise EngramError(f"{url} needs the package fsspec: pip install 'engram[shards]'") from error
        self.url = url.rstrip("/")
        try:
            self.files, self.folder = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise EngramError(
                f"{url} cannot be reached ({error}): pip install 'engram[shards]', or check it"
            ) from error

    def manifest(self) -> Manifest | None:
        """What is there, None where nothing is; refused where it does not add up."""
        try:
            raw = json.loads(self.files.cat_file(f"{self.folder}/{MANIFEST}"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise EngramError(f"{self.url}/{MANIFEST} cannot be read ({error}): {AGAIN}") from error
        if not isinstance(raw, dict) or raw.get("version") != VERSION:
            raise EngramError(f"{self.url}/{MANIFEST} is not of version {VERSION}, which this Engram reads: {AGAIN}")
        manifest = structure(raw, Manifest, f"{self.url}/{MANIFEST}")
        if wrong := _does_not_add_up(manifest):
            raise EngramError(f"{self.url}/{MANIFEST} does not add up ({wrong}): {AGAIN}")
        return manifest

    def check(self, manifest: Manifest) -> None:
        """Every shard is there in its size: told before the first is read."""
        self.files.invalidate_cache()
        try:
            sizes = {PurePosixPath(e["name"]).name: e["size"] for e in self.files.ls(self.folder, detail=True)}
        except OSError as error:
            raise EngramError(f"the shards in {self.url} cannot be listed ({error}): try again") from error
        for shard in manifest.shards:
            if shard.name not in sizes:
                raise EngramError(f"the shard {self.url}/{shard.name} of {shard.size} bytes is missing: {AGAIN}")
            self._check_size(shard, int(sizes[shard.name]))

    def read(self, shard: Shard) -> bytes:
        try:
            data: bytes = self.files.cat_file(f"{self.folder}/{shard.name}")
        except OSError as error:
            raise EngramError(f"the shard {self.url}/{shard.name} cannot be read ({error}): try again") from error
        self._check_size(shard, len(data))
        if (found := hashlib.sha256(data).hexdigest()) != shard.sha256:
            raise EngramError(
                f"the shard {self.url}/{shard.name} has the digest {found[:16]} where {MANIFEST} says "
                f"{shard.sha256[:16]}: {AGAIN}"
            )
        return data

    def _check_size(self, shard: Shard, size: int) -> None:
        if size != shard.size:
            raise EngramError(
                f"the shard {self.url}/{shard.name} has {size} bytes where {MANIFEST} says {shard.size}: {AGAIN}"
            )


AGAIN = "copy it again, or write all of them with engram data DATASET --shards URL"


def _does_not_add_up(manifest: Manifest) -> str:
    row_bytes = math.prod(manifest.image_shape) * np.dtype(manifest.dtype).itemsize if _is_plain(manifest) else 0
    if not row_bytes or manifest.group_size < 1 or len(manifest.counts) != len(manifest.class_names):
        return f"images of {manifest.dtype} {manifest.image_shape}, {len(manifest.counts)} counts of classes"
    for shard in manifest.shards:
        if PurePosixPath(shard.name).name != shard.name or not 0 < shard.rows * row_bytes == shard.size <= MOST_BYTES:
            return f"shard '{shard.name}' of {shard.rows} rows in {shard.size} bytes"
    rows = sum(shard.rows for shard in manifest.shards)
    return "" if rows == sum(manifest.counts) else f"{rows} rows of {sum(manifest.counts)} images"


def _is_plain(manifest: Manifest) -> bool:
    return manifest.dtype in ("uint8", "float16", "float32") and min((*manifest.image_shape, *manifest.counts)) > 0


def find_shards(url: str, image_shape: tuple[int, ...]) -> Form:
    """The splits in ``URL/<split>`` as a form; refused where there is none, or images are of another shape."""
    places = {split: Shards(f"{url}/{split}") for split in SPLITS}
    found = {split: manifest for split, place in places.items() if (manifest := place.manifest())}

    def read(split: str) -> SplitSource:
        places[split].check(found[split])
        return _source(places[split], found[split])

    if not found:
        raise EngramError(f"there are no shards in {url}: write them with engram data DATASET --shards URL")
    for split, manifest in found.items():
        if manifest.image_shape != image_shape:
            here, asked = ("x".join(map(str, shape)) for shape in (manifest.image_shape, image_shape))
            raise EngramError(f"the shards in {url}/{split} hold images of {here} where {asked} are asked for: {AGAIN}")
    digest = hashlib.sha256(repr(found).encode()).hexdigest()
    return Form("shards", url, (), tuple(found), read, options=digest)


def _source(place: Shards, manifest: Manifest) -> SplitSource:
    starts = np.cumsum([0, *(shard.rows for shard in manifest.shards)]).tolist()
    offsets = np.cumsum([0, *manifest.counts]).tolist()

    @lru_cache(maxsize=1)  # the order of reading is that of the shards
    def images(number: int) -> np.ndarray:
        return np.frombuffer(place.read(manifest.shards[number]), manifest.dtype).reshape(-1, *manifest.image_shape)

    def read_class(index: int) -> Iterator[np.ndarray]:
        row, end = offsets[index : index + 2]
        while row < end:
            number = int(np.searchsorted(starts, row, side="right")) - 1
            stop = min(end, starts[number + 1])
            yield from images(number)[row - starts[number] : stop - starts[number]]
            row = stop

    return SplitSource(
        manifest.class_names, manifest.counts, read_class, manifest.image_shape, manifest.group_size, manifest.dtype
    )


def write_store(store: Store, url: str, quiet: bool = False) -> Manifest:
    """One store. The manifest goes first and comes last: without it there are no shards."""
    import torch  # finding shards does without

    from engram.data.store import as_bytes

    place, shards = Shards(url), list[Shard]()
    step = max(1, SHARD_BYTES // (store.n_bytes // len(store.images)))
    starts, said = range(0, len(store.images), step), f"shards of {store.info.dataset} {store.info.split}"
    try:
        place.files.makedirs(place.folder, exist_ok=True)
        if place.files.exists(f"{place.folder}/{MANIFEST}"):
            place.files.rm_file(f"{place.folder}/{MANIFEST}")
        console = Console(stderr=True)
        for start in track(starts, said, console=console, disable=quiet or not console.is_terminal, transient=True):
            rows = torch.arange(start, min(start + step, len(store.images)))
            data, name = as_bytes(store.gather(rows)).tobytes(), f"shard-{len(shards):05d}.bin"
            place.files.pipe_file(f"{place.folder}/{name}", data)
            shards.append(Shard(name, len(rows), len(data), hashlib.sha256(data).hexdigest()))
        info, dtype = store.info, str(store.images.dtype).removeprefix("torch.")
        known = info.dataset, info.split, info.class_names, tuple(store.class_sizes.tolist()), info.group_size
        manifest = Manifest(VERSION, *known, store.image_shape, dtype, store.digest, tuple(shards))
        place.files.pipe_file(f"{place.folder}/{MANIFEST}", json.dumps(asdict(manifest), indent=1).encode())
    except OSError as error:
        raise EngramError(f"shards could not be written to {url} ({error}): write them again") from error
    return manifest
