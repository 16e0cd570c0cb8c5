"""The datasets Engram knows: what each holds, where it can be had, in which forms it is read, and how it is found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from engram.data.formats import mini_imagenet, omniglot, tiered
from engram.data.formats.folder import FolderOptions, find_folder
from engram.data.formats.form import SPLITS, Form, SplitSource
from engram.data.formats.shards import find_shards, url_of
from engram.errors import EngramError, nearest

FOLDER_PREFIX = "folder:"
GLYPHS = "glyphs"


@dataclass(frozen=True)
class DatasetSpec:
    """One row of the table: facts a person asks for, and the finders of its forms, tried in order."""

    name: str
    image_shape: tuple[int, ...]
    source: str
    """Where it can be had, in plain words."""
    forms: tuple[str, ...]
    """The forms it is read in, in plain words."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Classes per split that must be there; {} where the set itself decides."""
    images: Mapping[str, int] = field(default_factory=dict)
    """Images per split as published; fewer are read but told."""
    finders: tuple[Callable[[Path], Form | None], ...] = ()
    folders: tuple[str, ...] = ()
    """Sub-folders of the data folder that are looked into as well."""


_OMNIGLOT_SOURCE = (
    "the Omniglot repository of Brenden Lake on GitHub (python/images_background.zip and images_evaluation.zip)"
)
_OMNIGLOT_FORMS = (
    "images_background/ and images_evaluation/",
    "images_background.zip and images_evaluation.zip",
    "omniglot.tar.xz (or .gz, .bz2, .tar) of both",
)

DATASETS: dict[str, DatasetSpec] = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            GLYPHS, (1, 28, 28), "in the box: drawn from the fonts that come with matplotlib", ("no files needed",)
        ),
        DatasetSpec(
            "miniimagenet",
            mini_imagenet.IMAGE_SHAPE,
            "made from ImageNet (image-net.org, research use) with the lists of Ravi & Larochelle; "
            "pickles of it are linked by the few-shot-ssl-public and few-shot-egnn repositories",
            (
                "images/ with train.csv, val.csv, test.csv",
                "mini*imagenet*.zip with images/ and the same lists",
                "mini-imagenet-cache-{train,val,test}.pkl",
                "mini_imagenet_{train,val,test}.pickle",
            ),
            {"train": 64, "val": 16, "test": 20},
            {"train": 38400, "val": 9600, "test": 12000},
            mini_imagenet.FINDERS,
            ("miniimagenet", "mini-imagenet", "mini_imagenet", "miniImageNet"),
        ),
        DatasetSpec(
            "tieredimagenet",
            tiered.IMAGE_SHAPE,
            "made from ImageNet (research use), linked by the few-shot-ssl-public repository of Mengye Ren",
            (
                "{train,val,test}_images.npz with {train,val,test}_labels.pkl",
                "{train,val,test}_images_png.pkl with {train,val,test}_labels.pkl",
            ),
            {"train": 351, "val": 97, "test": 160},
            {"train": 448695, "val": 124261, "test": 206209},
            (tiered.find_npz, tiered.find_png),
            ("tieredimagenet", "tiered-imagenet", "tiered_imagenet", "tieredImageNet"),
        ),
        DatasetSpec(
            "omniglot",
            omniglot.IMAGE_SHAPE,
            _OMNIGLOT_SOURCE,
            _OMNIGLOT_FORMS,
            {"train": 4400, "val": 400, "test": 1692},
            {"train": 88000, "val": 8000, "test": 33840},
            (omniglot.find_rotated,),
            ("omniglot", "Omniglot", "omniglot-py"),
        ),
        DatasetSpec(
            "omniglot-alphabets",
            omniglot.IMAGE_SHAPE,
            _OMNIGLOT_SOURCE,
            _OMNIGLOT_FORMS,
            {"train": 813, "val": 151, "test": 659},
            {"train": 16260, "val": 3020, "test": 13180},
            (omniglot.find_alphabets,),
            ("omniglot", "Omniglot", "omniglot-py"),
        ),
    )
}

FOLDER_SPEC = DatasetSpec(
    FOLDER_PREFIX + "PATH",
    (3, 84, 84),
    "yours",
    (
        "class folders in train/ val/ test/",
        "class folders with splits.json or splits.csv",
        "class folders divided by seed",
    ),
)


def spec_of(dataset: str) -> DatasetSpec:
    """The row of a dataset's name; ``folder:PATH`` is a row of its own."""
    if dataset.startswith(FOLDER_PREFIX):
        return FOLDER_SPEC
    if dataset not in DATASETS:
        raise EngramError(f"unknown dataset '{dataset}'{nearest(dataset, [*DATASETS, FOLDER_SPEC.name])}")
    return DATASETS[dataset]


def find_form(dataset: str, data: Path | None, options: FolderOptions) -> Form:
    """The first form of a dataset in its folder, by names and times alone: no archive is opened."""
    spec = spec_of(dataset)
    if spec is FOLDER_SPEC:
        written = dataset.removeprefix(FOLDER_PREFIX)
        if not written:
            raise EngramError("'folder:' needs a path, as in folder:my/images")
        if url := url_of(written):
            return find_shards(url, (options.channels, options.image_size, options.image_size))
        return find_folder(_check_folder(Path(written).expanduser(), "the image folder"), options)
    if spec.name == GLYPHS:
        return _glyphs_form()
    if data is None:
        raise EngramError(
            f"{dataset} needs its files: set ENGRAM_DATA or give --data with the folder that holds them "
            f"({' or '.join(spec.forms)}; source: {spec.source}), or the URL of shards"
        )
    if url := url_of(data):
        return find_shards(f"{url}/{dataset}", spec.image_shape)
    root = _check_folder(data, "the data folder")
    form = search(spec, root)
    if form is None:
        raise EngramError(
            f"no {dataset} in {root}: looked there and in {', '.join(name + '/' for name in spec.folders)} for "
            f"{' or '.join(spec.forms)}; source: {spec.source}"
        )
    return form


def search(spec: DatasetSpec, root: Path) -> Form | None:
    for folder in (root, *(root / name for name in spec.folders)):
        for finder in spec.finders if folder.is_dir() else ():
            form = finder(folder)
            if form is not None:
                return form
    return None


def _glyphs_form() -> Form:
    """The set in the box. It is drawn by code, so that code and its fonts' version are what a store depends on."""
    found = find_spec("engram.data.glyphs")  # found without an import, which would bring matplotlib along
    if found is None or found.origin is None:
        raise EngramError("the glyphs are missing from this installation: install Engram again")
    code = Path(found.origin)

    def read(split: str) -> SplitSource:
        from engram.data.glyphs import glyph_sources

        return glyph_sources()[split]

    return Form("drawn from fonts", code.parent, (code,), SPLITS, read, options=f"matplotlib {version('matplotlib')}")


def _check_folder(path: Path, what: str) -> Path:
    try:
        with os.scandir(path) as entries:
            empty = next(entries, None) is None
    except FileNotFoundError as error:
        raise EngramError(f"{what} {path} does not exist: check the path") from error
    except NotADirectoryError as error:
        raise EngramError(f"{what} {path} is a file: give the folder it lies in") from error
    except OSError as error:
        raise EngramError(f"{what} {path} cannot be read ({error.strerror}): check its permissions") from error
    if empty:
        raise EngramError(f"{what} {path} is empty: put the dataset there, or check the path")
    return path
