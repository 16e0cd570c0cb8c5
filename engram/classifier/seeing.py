"""Pictures through an encoder, once: what it saw of a picture is kept in the user's cache under the content of both."""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.classifier.engine import Engine
from engram.classifier.pictures import Unreadable, batches, side_by_side
from engram.classifier.progress import watched
from engram.data.datasets import cache_folder
from engram.errors import EngramError, EngramWarning
from engram.files import read_bytes

MOST = 100_000
"""features kept, over all encoders: half a gigabyte of those of `imagenet`; the oldest go first"""
FILE = "features.sqlite"
TABLE = "CREATE TABLE IF NOT EXISTS features (digest BLOB PRIMARY KEY, seen BLOB)"
PLACES = "CREATE TABLE IF NOT EXISTS places (digest INT PRIMARY KEY, path TEXT)"
FIND = "SELECT path FROM places WHERE digest = ?"
TRIM = "DELETE FROM features WHERE rowid <= (SELECT max(rowid) FROM features) - ?"
CHUNK = 64
"""pictures after which a bar moves"""
LOOKED_AT = 16
"""pictures that are read to see whether they are drawings, or a few more"""
NO_DRAWINGS = "most of these pictures look like photographs, but the weights learned from drawings: use imagenet"


def see_pictures(engine: Engine, X: Sequence[Any], unreadable: Unreadable | None = None) -> Tensor | None:
    """What an engine keeps of pictures: (n, ...), those that cannot be read told to ``unreadable`` and left out; None
    where none is left."""
    if engine.light_ink:
        _look_for_photographs(engine, X)
    rows: list[Tensor] = []
    chunks = (range(len(X))[start : start + CHUNK] for start in range(0, len(X), CHUNK))
    for places in watched(chunks, len(X), "pictures"):
        rows += _chunk(engine, X, places, unreadable)
    return torch.stack(rows) if rows else None


def see_labelled(
    engine: Engine, X: Sequence[Any], labels: Sequence[Any], unreadable: Unreadable | None = None
) -> tuple[Tensor, list[Any], Tensor]:
    """`see_pictures`, the labels of those that could be read, one at least, and digests (n,) of their content."""
    left_out: dict[int, str] = {}

    def told(place: int, why: str) -> None:
        assert unreadable is not None
        left_out[place] = why
        unreadable(place, why)

    items = see_pictures(engine, X, told if unreadable else None)
    if items is None:
        raise EngramError(f"none of the {len(X)} pictures can be read; the first: {left_out[0]}")
    kept = [place for place in range(len(X)) if place not in left_out]
    digests = digests_of([X[i] for i in kept])
    files = [(digest, X[i]) for digest, i in zip(digests, kept, strict=True) if isinstance(X[i], str | Path)]
    _keep("places", "REPLACE", [(digest, str(Path(file).absolute())) for digest, file in files])
    return items, [labels[place] for place in kept], torch.tensor(digests, dtype=torch.int64)


def digests_of(X: Sequence[Any]) -> list[int]:
    """Of the content of pictures."""
    return [_short(found) for found in side_by_side(_content, X)]


def lying_at(digests: Sequence[int]) -> dict[int, Path]:
    """Where remembered pictures lie, of those that were read from files and still are there as they were."""
    try:
        with closing(_opened()) as store:
            asked = ((digest, store.execute(FIND, (digest,)).fetchone()) for digest in digests)
            found = {digest: Path(row[0]) for digest, row in asked if row is not None}
    except (OSError, sqlite3.Error):
        return {}
    return {digest: file for digest, file in found.items() if _short(_content(file)) == digest}


def _short(content: bytes) -> int:
    return int.from_bytes(content[:8], "little", signed=True)


def _chunk(engine: Engine, X: Sequence[Any], places: range, unreadable: Unreadable | None) -> list[Tensor]:
    keys = dict(zip(places, side_by_side(lambda i: _key(X[i], engine.digest), places), strict=True))
    rows = _recalled(keys)
    new = [place for place in places if place not in rows]
    left_out: set[int] = set()

    def told(place: int, why: str) -> None:
        assert unreadable is not None
        left_out.add(place)
        unreadable(place, why)

    skip = told if unreadable else None
    images = batches(X, engine.image_shape, unreadable=skip, crop=engine.crop, places=new)
    seen: list[Tensor] = []
    for batch in images:
        seen += engine.see(batch)
    fresh = dict(zip((place for place in new if place not in left_out), seen, strict=True))
    _keep(
        "features",
        "IGNORE",
        [(keys[p], row.numpy().astype(np.float32).tobytes()) for p, row in fresh.items() if keys[p]],
    )
    rows |= fresh
    return [rows[place] for place in places if place in rows]


def _look_for_photographs(engine: Engine, X: Sequence[Any]) -> None:
    """Warn of pictures that weights of drawings do not know; also if all are in the cache, so some are read for it."""
    places = range(0, len(X), max(1, len(X) // LOOKED_AT))
    some = list(batches(X, engine.image_shape, unreadable=lambda *_: None, crop=engine.crop, places=places))
    if some and far_from_drawings(torch.cat(some)):
        warnings.warn(NO_DRAWINGS, EngramWarning, stacklevel=4)


def far_from_drawings(images: Tensor) -> bool:
    """Whether most pictures have no even ground at their border, as drawings have. uint8 (n, C, H, W)"""
    border = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]], -1).flatten(1).float()
    even = ((border - border.median(1, keepdim=True).values).abs() < 16).float().mean(1)
    return float((even < 0.8).float().mean()) > 0.5


def _key(item: Any, encoder: str) -> bytes:
    """Digest of a picture and the encoder; empty where nothing is to be kept."""
    content = _content(item) if encoder else b""
    return content and hashlib.sha256(encoder.encode() + content).digest()


def _content(item: Any) -> bytes:
    """Digest of a picture, whatever it is called; empty where it cannot be read, which is told where it is decoded."""
    try:
        if isinstance(item, str | Path):
            said, content = b"file", read_bytes(Path(item))
        elif isinstance(item, Image.Image):
            said, content = f"{item.mode} {item.size}".encode(), item.tobytes()
        else:
            array = np.asarray(item)
            said, content = f"{array.dtype} {array.shape}".encode(), np.ascontiguousarray(array).tobytes()
    except Exception:
        return b""
    return hashlib.sha256(said + content).digest()


def _opened() -> sqlite3.Connection:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(folder / FILE, timeout=5)
    store.execute(TABLE)
    store.execute(PLACES)
    return store


def _recalled(keys: dict[int, bytes]) -> dict[int, Tensor]:
    """What is known of pictures already; nothing where there is no cache to be had."""
    found: dict[int, Tensor] = {}
    if not any(keys.values()):
        return found
    try:
        with closing(_opened()) as store:
            for place, key in keys.items():
                row = store.execute("SELECT seen FROM features WHERE digest = ?", (key,)).fetchone() if key else None
                if row is not None:
                    found[place] = torch.from_numpy(np.frombuffer(row[0], np.float32).copy())
    except (OSError, sqlite3.Error, ValueError):
        return {}
    return found


def _keep(table: str, met: str, rows: Sequence[tuple[Any, Any]]) -> None:
    """Rows of a table, the oldest of which go; ``met`` says what becomes of one that is there."""
    if not rows:
        return
    try:
        with closing(_opened()) as store, store:
            store.executemany(f"INSERT OR {met} INTO {table} VALUES (?, ?)", rows)
            store.execute(TRIM.replace("features", table), (MOST,))
    except (OSError, sqlite3.Error, UnicodeError):  # a full disk; a name that is no UTF-8
        return  # without a cache time is lost, and a page shows no remembered pictures, nothing else
