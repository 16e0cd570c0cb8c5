"""A store written whole or not at all, in place of nothing but another store."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
from rich.progress import track

from engram.data.formats.form import SplitSource
from engram.data.store import FILES, STORE_VERSION, Store, StoreInfo, digest_of
from engram.errors import EngramError
from engram.files import read_json, remove_own


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
        digest = digest_of(images.view(np.uint8) if images.dtype != np.uint8 else images, offsets, source.class_names)
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
