"""Opening a split of a dataset by name: found in the data folder, built once into the cache, mapped from then on.

A store lies in ``<cache>/<dataset>/<fingerprint>/<split>``. The fingerprint covers names, sizes and times of the source
files and the settings they are read with, so changed files give a new store and unchanged ones are never opened again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engram.data.catalogue import DATASETS, FOLDER_PREFIX, FOLDER_SPEC, GLYPHS, DatasetSpec, find_form, search, spec_of
from engram.data.formats.folder import FolderOptions
from engram.data.formats.form import SPLITS, Form, SplitSource
from engram.data.formats.shards import Manifest, url_of, write_store
from engram.data.store import STORE_VERSION, Store
from engram.data.writing import build
from engram.errors import EngramError, nearest

if sys.platform != "win32":
    import fcntl

FORMAT_VERSION = 1
"""Raise it when a reader gives other pixels or another order, so that stores are built again."""


@dataclass(frozen=True)
class SplitReport:
    split: str
    classes: int
    images: int
    image_shape: tuple[int, ...]
    digest: str
    """Of the built store; "" where it is not built yet."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DatasetReport:
    """What a folder holds of a dataset. `problems` are sentences; none means that every split can be used."""

    dataset: str
    form: str
    root: Path | str | None
    splits: tuple[SplitReport, ...]
    problems: tuple[str, ...]


def data_folder(data: Path | str | None = None) -> Path | None:
    """The folder given, else ENGRAM_DATA, else None."""
    chosen = data or os.environ.get("ENGRAM_DATA")
    return Path(chosen).expanduser() if chosen else None


def cache_folder(cache: Path | str | None = None) -> Path:
    """The folder given, else ENGRAM_CACHE, else ``~/.cache/engram``."""
    return Path(cache or os.environ.get("ENGRAM_CACHE") or "~/.cache/engram").expanduser()


def open_split(
    dataset: str,
    split: str,
    data: Path | None = None,
    cache: Path | None = None,
    quiet: bool = False,
    options: FolderOptions = FolderOptions(),  # noqa: B008 - frozen
) -> Store:
    """The store of one split (train, val or test), built on first use. ``options`` concern ``folder:PATH`` only."""
    if split not in SPLITS:
        raise EngramError(f"unknown split '{split}'{nearest(split, SPLITS)}")
    form = find_form(dataset, data_folder(data), options)
    folder = _store_folder(dataset, split, form, cache_folder(cache))
    if (folder / "store.json").is_file():
        return Store.open(folder)
    with _lock(folder):
        if (folder / "store.json").is_file():  # another process built it while this one waited
            return Store.open(folder)
        source, notes = _read_checked(dataset, split, form)
        origin = "; ".join((f"{form.name} in {form.root}", *notes))
        return build(folder, dataset, split, source, origin, quiet, resume=True)


def check_dataset(dataset: str, data: Path | None = None, read: bool = False) -> DatasetReport:
    """Look at every split: its lists and labels always, with ``read`` every image too, which builds the stores."""
    try:
        form = find_form(dataset, data_folder(data), FolderOptions())
    except EngramError as error:
        return DatasetReport(dataset, "", None, (), (str(error),))
    reports: list[SplitReport] = []
    problems: list[str] = []
    split_of: dict[str, str] = {}
    for split in SPLITS:
        try:
            source, notes = _read_checked(dataset, split, form)
            folder = _store_folder(dataset, split, form, cache_folder())
            if read:
                open_split(dataset, split, data)
            digest = Store.open(folder).digest if (folder / "store.json").is_file() else ""
        except EngramError as error:
            problems.append(str(error))
            continue
        shared = [name for name in source.class_names if split_of.setdefault(name, split) != split]
        if shared:
            problems.append(
                f"{len(shared)} classes of {split}, such as '{shared[0]}', are in {split_of[shared[0]]} too"
            )
        reports.append(
            SplitReport(split, len(source.class_names), sum(source.counts), tuple(source.image_shape), digest, notes)
        )
    return DatasetReport(dataset, form.name, form.root, tuple(reports), tuple(problems))


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


def describe(data: Path | None = None) -> list[tuple[DatasetSpec, str]]:
    """Each benchmark with the form and folder it was found in, or why it was not."""
    root = data_folder(data)
    return [(spec, _found(spec, root)) for spec in (*DATASETS.values(), FOLDER_SPEC)]


def _found(spec: DatasetSpec, root: Path | None) -> str:
    if spec.name == GLYPHS:
        return "always there"
    if spec is FOLDER_SPEC:
        return "give its path"
    if root is None:
        return "no data folder: set ENGRAM_DATA or give --data"
    try:
        form = search(spec, root)
    except EngramError as error:
        return str(error)
    return f"{form.name} in {form.root}" if form else f"not in {root}"


def _read_checked(dataset: str, split: str, form: Form) -> tuple[SplitSource, tuple[str, ...]]:
    """One split of a form with its class count checked, and what there is to say about it."""
    if split not in form.splits:
        there = ", ".join(form.splits)
        raise EngramError(
            f"{dataset} in {form.root} ({form.name}) has no {split} split: it has {there}; add the files of {split}"
        )
    source, spec = form.read(split), spec_of(dataset)
    _check_counts(spec, dataset, split, source, form)
    total, published = sum(source.counts), spec.images.get(split)
    notes = [source.note] if source.note else []
    if published is not None and total != published:
        notes.append(f"{split} has {total} images where {published} are published")
    return source, tuple(notes)


def _check_counts(spec: DatasetSpec, dataset: str, split: str, source: SplitSource, form: Form) -> None:
    expected, there = spec.classes.get(split), len(source.class_names)
    if expected is not None and there != expected:
        raise EngramError(
            f"{dataset} {split} has {there} classes in {form.root} ({form.name}) where {expected} are expected: "
            f"fetch the set again, or use {FOLDER_PREFIX}PATH for a set of your own"
        )
    empty = [name for name, count in zip(source.class_names, source.counts, strict=True) if count == 0]
    if empty or not there:
        what = (
            f"class '{empty[0]}' of {dataset} {split} has no images" if empty else f"{dataset} {split} has no classes"
        )
        raise EngramError(f"{what} in {form.root} ({form.name}): fetch the set again")


def _store_folder(dataset: str, split: str, form: Form, cache: Path) -> Path:
    name = f"folder-{Path(form.root).resolve().name}" if dataset.startswith(FOLDER_PREFIX) else dataset
    return cache / name / _fingerprint(form) / split


def _fingerprint(form: Form) -> str:
    digest = hashlib.sha256(f"{FORMAT_VERSION} {STORE_VERSION} {form.name} {form.options}".encode())
    for path in form.files:
        name = path.relative_to(form.root) if path.is_relative_to(form.root) else path.name
        try:
            for entry, status in _statuses(path, form.every_file):
                digest.update(f"\n{name}/{entry} {status.st_size} {status.st_mtime_ns}".encode())
        except OSError as error:
            raise EngramError(
                f"{error.filename or path} cannot be looked at ({error.strerror}): check the file or remove it"
            ) from error
    return digest.hexdigest()[:16]


def _statuses(path: Path, every_file: bool) -> Iterator[tuple[str, os.stat_result]]:
    yield "", path.stat()
    if every_file and path.is_dir():
        with os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not entry.name.startswith("."):
                    yield entry.name, entry.stat()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One process at a time builds a store; the others wait and then find it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        stream = (folder.parent / f".{folder.name}.lock").open("w")
    except OSError as error:
        raise EngramError(
            f"the cache {folder.parent} cannot be written ({error.strerror}): set ENGRAM_CACHE to a folder that can"
        ) from error
    with stream:
        if sys.platform != "win32":  # a build is atomic anyway; without the lock it may be done twice
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
