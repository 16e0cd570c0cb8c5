"""Writing shards: what is half written is none."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import fsspec
import numpy as np
import pytest

from engram.data import sharding
from engram.data.formats.shards import Shards
from engram.data.sharding import write_shards, write_store
from engram.data.store import Store
from engram.errors import EngramError

STORE = Store.from_arrays(np.arange(60, dtype=np.float16).reshape(20, 3), [5] * 4, "toy", "train")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "SHARD_BYTES", 6 * 6)


def test_features_are_cut_in_their_order() -> None:
    url = f"memory://{uuid4().hex}"
    manifest = write_store(STORE, url, quiet=True)
    assert Shards(url).manifest() == manifest and manifest.dtype == "float16" and manifest.digest == STORE.digest
    data = b"".join(Shards(url).read(shard) for shard in manifest.shards)
    assert len(manifest.shards) == 4 and data == STORE.images.numpy().tobytes()


def test_an_interrupted_writing_leaves_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{uuid4().hex}"
    write_store(STORE, url, quiet=True)
    files = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(files, "pipe_file", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
    with pytest.raises(EngramError, match=rf"shards could not be written to {url} \(No space left on device\)"):
        write_store(STORE, url, quiet=True)
    assert Shards(url).manifest() is None


def test_a_folder_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="is no URL to write shards to: give one such as s3://bucket/data"):
        write_shards("glyphs", str(tmp_path))
