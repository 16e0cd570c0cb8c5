"""Omniglot (Lake et al., 2015): 1,623 handwritten characters of 50 alphabets, 20 drawings each.

Forms: the tree ``images_background/<Alphabet>/<characterNN>/<id>_<drawer>.png`` and ``images_evaluation/...``, the two
official zips of those names, or ``omniglot.tar.xz`` (or .gz, .bz2, plain) of both, read in one pass and never unpacked.
Drawings become 28x28, one channel, ink high: 0 is paper, 255 is ink.

Two splits, both by class:

- ``omniglot``, after Vinyals et al. (2016): 1,200 characters for training, the other 423 for test, and each character
  turned by 0, 90, 180 and 270 degrees gives four classes. The paper does not publish its draw. Ours orders the
  characters by the SHA-256 of "<Alphabet>/<characterNN>", so that it depends on no random generator: the first 1,100
  train, the next 100 validate, the rest test. Train and val together are the usual 4,800 classes.
- ``omniglot-alphabets``: unseen alphabets. The background alphabets train, but for the last five in order of name,
  which validate; the evaluation alphabets test. No rotations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np

from engram.data.formats.archives import ZipSet, read_tar
from engram.data.formats.form import SPLITS, Form, SplitSource, names_in
from engram.data.formats.images import decode_image
from engram.errors import EngramError

IMAGE_SHAPE = (1, 28, 28)
PARTS = ("images_background", "images_evaluation")
TRAIN_CHARACTERS, VAL_CHARACTERS = 1100, 100
VAL_ALPHABETS = 5
ROTATIONS = (0, 90, 180, 270)

Drawings = Mapping[str, "bytes | Path"]
"""Name below the root -> a PNG in memory or on disk."""


def find_rotated(root: Path, train: int = TRAIN_CHARACTERS, val: int = VAL_CHARACTERS) -> Form | None:
    """Omniglot in any form, split by characters with rotations as classes, or None."""

    def choose(characters: Sequence[str], split: str) -> list[str]:
        order = sorted(characters, key=_fixed_order)
        start, stop = {"train": (0, train), "val": (train, train + val), "test": (train + val, len(order))}[split]
        return order[start:stop]

    return _find(root, choose, ROTATIONS)


def find_alphabets(root: Path, val: int = VAL_ALPHABETS) -> Form | None:
    """Omniglot in any form, split by alphabets without rotations, or None."""

    def choose(characters: Sequence[str], split: str) -> list[str]:
        background = sorted({name.split("/")[1] for name in characters if name.startswith(PARTS[0])})
        train = set(background[:-val])
        return [name for name in characters if split == _alphabet_split(name, train)]

    return _find(root, choose, (0,))


def _fixed_order(character: str) -> str:
    return hashlib.sha256(character.split("/", 1)[1].encode()).hexdigest()


def _alphabet_split(character: str, train: set[str]) -> str:
    part, alphabet, _ = character.split("/")
    if part == PARTS[1]:
        return "test"
    return "train" if alphabet in train else "val"


def _find(root: Path, choose: Callable[[Sequence[str], str], list[str]], rotations: Sequence[int]) -> Form | None:
    found = _find_files(root)
    if found is None:
        return None
    name, files, collect = found
    place = f"{files[0]}:" if name == "tar archive" else f"{root}/"

    def read(split: str) -> SplitSource:
        characters = _by_character(collect(), place)
        chosen = sorted(choose(sorted(characters), split))
        return _source({key: characters[key] for key in chosen}, place, rotations)

    return Form(name, root, files, SPLITS, read)


def _find_files(root: Path) -> tuple[str, tuple[Path, ...], Callable[[], Drawings]] | None:
    folders = [root / part for part in PARTS]
    if all(folder.is_dir() for folder in folders):
        return "folders of drawings", _character_folders(folders), lambda: _tree_drawings(folders, root)
    zips = tuple(folder.with_name(f"{folder.name}.zip") for folder in folders)
    if all(path.is_file() for path in zips):
        return "the two official zips", zips, lambda: ZipSet(zips).read_all(".png")
    tars = sorted(path for path in root.glob("[oO]mniglot*.tar*") if path.is_file())
    return ("tar archive", (tars[0],), lambda: read_tar(tars[0], ".png")) if tars else None


def _character_folders(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The folders two levels down: their times change when drawings come or go, and 32,460 files need not be asked."""
    return tuple(path for folder in folders for alphabet in _folders_in(folder) for path in _folders_in(alphabet))


def _folders_in(folder: Path) -> list[Path]:
    return [folder / name for name in names_in(folder) if not name.startswith(".") and (folder / name).is_dir()]


def _tree_drawings(folders: Sequence[Path], root: Path) -> Drawings:
    return {
        (path.relative_to(root)).as_posix(): path
        for character in _character_folders(folders)
        for path in sorted(character.glob("*.png"))
        if not path.name.startswith(".")
    }


def _by_character(drawings: Drawings, place: str) -> dict[str, dict[str, bytes | Path]]:
    """Part/Alphabet/character -> its drawings in order of name; folders above and hidden files are passed over."""
    characters: dict[str, dict[str, bytes | Path]] = {}
    for name in sorted(drawings):
        parts = PurePosixPath(name).parts
        if len(parts) >= 4 and parts[-4] in PARTS and not parts[-1].startswith(".") and "__MACOSX" not in parts:
            characters.setdefault("/".join(parts[-4:-1]), {})[name] = drawings[name]
    if not characters:
        raise EngramError(
            f"the Omniglot files {place} hold no drawings below {PARTS[0]}/ and {PARTS[1]}/: fetch them again"
        )
    return characters


def _source(characters: Mapping[str, Drawings], place: str, rotations: Sequence[int]) -> SplitSource:
    names = list(characters)

    @lru_cache(maxsize=1)  # the rotations of one character follow each other
    def upright(character: str) -> np.ndarray:
        drawings = characters[character].items()
        return np.stack([255 - decode_image(data, f"{place}{name}", IMAGE_SHAPE) for name, data in drawings])

    def read_class(index: int) -> Iterator[np.ndarray]:
        character, turn = divmod(index, len(rotations))
        images = upright(names[character])
        return iter(np.ascontiguousarray(np.rot90(images, rotations[turn] // 90, axes=(2, 3))))

    suffixes = [""] if len(rotations) == 1 else [f"/rotated{angle:03d}" for angle in rotations]
    class_names = tuple(name.split("/", 1)[1] + suffix for name in names for suffix in suffixes)
    counts = tuple(len(characters[name]) for name in names for _ in suffixes)
    return SplitSource(class_names, counts, read_class, IMAGE_SHAPE)
