"""Shards behind a URL: the store they were cut from, bit for bit, or one sentence that names the shard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest
from drawn import class_folders

from engram.data.datasets import check_dataset, open_split, write_shards
from engram.data.formats import shards
from engram.data.formats.shards import Shards, find_shards, url_of, write_store
from engram.data.store import Store, verify
from engram.errors import EngramError

ROW = 3 * 84 * 84
STORE = Store.from_arrays(np.arange(60, dtype=np.float16).reshape(20, 3), [5] * 4, "toy", "train")


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of six classes of four pictures; shards hold three."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 3 * ROW)
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    class_folders(tmp_path / "birds", 4, tuple("abcdef"))
    return f"folder:{tmp_path / 'birds'}"


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid4().hex}/birds" if request.param == "memory" else f"file://{tmp_path}/away/birds"


def behind(url: str, name: str) -> tuple[Any, str]:
    files, folder = fsspec.core.url_to_fs(f"{url}/train")
    return files, f"{folder}/{name}"


def test_shards_give_the_store_they_were_cut_from(images: str, url: str) -> None:
    written = write_shards(images, url, quiet=True)
    for split in ("train", "val", "test"):
        here, there = open_split(images, split), open_split(f"folder:{url}", split, quiet=True)
        manifest = written[f"{url}/{split}"]
        assert there.digest == here.digest == manifest.digest and verify(there)
        assert [shard.rows for shard in manifest.shards] == [3, 3, 2]
        assert there.info.source == f"shards in {url}"
    assert not check_dataset(f"folder:{url}").problems


@pytest.mark.parametrize("harm", ["missing", "cut", "other bytes"])
def test_a_bad_shard_is_named_with_the_way_out(images: str, url: str, harm: str) -> None:
    write_shards(images, url, quiet=True)
    files, path = behind(url, "shard-00001.bin")
    data, folder = files.cat_file(path), f"folder:{url}"
    wrong = {"cut": data[:-5], "other bytes": b"?" + data[1:]}
    files.rm_file(path) if harm == "missing" else files.pipe_file(path, wrong[harm])
    told = {
        "missing": f"of {len(data)} bytes is missing",
        "cut": f"has {len(data) - 5} bytes where manifest.json says {len(data)}",
        "other bytes": "has the digest .* where manifest.json says",
    }[harm]
    with pytest.raises(
        EngramError, match=rf"{url}/train/shard-00001.bin {told}.*: copy it again, or write all of them"
    ):
        open_split(folder, "train", quiet=True)
    files.pipe_file(path, data)
    assert verify(open_split(folder, "train", quiet=True))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "is not of version 1"),
        ({"counts": [1]}, "does not add up .images of uint8"),
        ({"dtype": "object"}, "does not add up .images of object"),
        ({"shards": []}, "does not add up .0 rows of"),
        ({"shards": [{"name": "../shard", "rows": 3, "size": 3 * ROW, "sha256": ""}]}, "shard '../shard' of 3 rows"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_manifest_that_does_not_hold_is_refused(images: str, url: str, change: dict[str, Any], told: str) -> None:
    write_shards(images, url, quiet=True)
    files, path = behind(url, "manifest.json")
    files.pipe_file(path, json.dumps(json.loads(files.cat_file(path)) | change).encode())
    with pytest.raises(EngramError, match=told):
        find_shards(url, (3, 84, 84))


def test_places_without_shards_and_shapes_that_nobody_asked_for(images: str, url: str) -> None:
    with pytest.raises(EngramError, match=f"there are no shards in {url}: write them with engram data"):
        open_split(f"folder:{url}", "train")
    with pytest.raises(EngramError, match=f"there are no shards in {url}/miniimagenet"):
        open_split("miniimagenet", "train", data=Path(url))
    write_shards(images, url, quiet=True)
    with pytest.raises(EngramError, match="hold images of 3x84x84 where 3x32x32 are asked for"):
        find_shards(url, (3, 32, 32))
    with pytest.raises(EngramError, match="nowhere://x cannot be reached"):
        Shards("nowhere://x")


def test_fsspec_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(EngramError, match=r"s3://bucket/data needs the package fsspec: pip install 'engram\[shards\]'"):
        Shards("s3://bucket/data")


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("s3://bucket/data", "s3://bucket/data"),
        (Path("s3://bucket/data"), "s3://bucket/data"),
        (Path("file:///data"), "file:///data"),
        ("memory://x", "memory://x"),
        ("data", ""),
        (Path("/data"), ""),
        ("C:/data", ""),
        (None, ""),
    ],
)
def test_urls_and_folders(place: Path | str | None, url: str) -> None:
    assert url_of(place) == url


def test_one_shard_at_a_time_is_read(images: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, each once: what is held is one shard."""
    written, read, whole = write_shards(images, url, quiet=True), list[str](), Shards.read
    monkeypatch.setattr(Shards, "read", lambda self, shard: read.append(shard.name) or whole(self, shard))
    store = open_split(f"folder:{url}", "train", quiet=True)
    assert read == [shard.name for shard in written[f"{url}/train"].shards] and isinstance(store, Store)


def test_features_are_cut_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 6 * 6)
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
