"""Stores written in shards, to be read from a URL as `engram.data.formats.shards` says."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from engram.data.catalogue import FOLDER_PREFIX, find_form
from engram.data.datasets import data_folder, open_split
from engram.data.formats.folder import FolderOptions
from engram.data.formats.shards import MANIFEST, VERSION, Manifest, Shard, Shards, url_of
from engram.data.store import Store, as_bytes
from engram.errors import EngramError

SHARD_BYTES = 128 * 2**20


def write_shards(dataset: str, url: str, data: Path | None = None, quiet: bool = False) -> dict[str, Manifest]:
    """Write every split to ``URL/<dataset>/<split>``, those of a folder of your own to ``URL/<split>``.

    They are read with ``data`` (or ENGRAM_DATA) = URL, or as the dataset ``folder:URL``.
    """
    if not url_of(url):
        raise EngramError(f"'{url}' is no URL to write shards to: give one such as s3://bucket/data or file:///data")
    place = url.rstrip("/") if dataset.startswith(FOLDER_PREFIX) else f"{url.rstrip('/')}/{dataset}"
    splits = find_form(dataset, data_folder(data), FolderOptions()).splits
    stores = {f"{place}/{split}": open_split(dataset, split, data, quiet=quiet) for split in splits}
    return {place: write_store(store, place, quiet) for place, store in stores.items()}


def write_store(store: Store, url: str, quiet: bool = False) -> Manifest:
    """One store. The manifest goes first and comes last: without it there are no shards."""
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
