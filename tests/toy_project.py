"""A small project as a person has it: a folder of images, a recipe in TOML, and the command line to use them with."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.cli import main

RECIPE = """
description = "small"

[backbone]
name = "conv32"
width = 4

[method]
name = "proto_net"

[data]
dataset = "folder:{images}"
n_way = 2

[train]
iterations = 2
sequences = 2
validate_every = 1
validation_sequences = 3

[test]
n_way = 2
n_query = [1, 2]
n_sequences = 5
"""


def write_images(root: Path, classes: int = 3, per_class: int = 4, size: int = 30) -> Path:
    """Class folders in train/ val/ test/; each class has a colour of its own."""
    rng = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for label in range(classes):
            folder = root / split / f"{split}{label}"
            folder.mkdir(parents=True)
            colour = rng.integers(0, 256, 3)
            for number in range(per_class):
                pixels = (colour + rng.integers(-20, 20, (size, size + 4, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What the user is told; fails unless it is one line on stderr, status 2 and no traceback."""
        assert self.status == 2, (self.status, self.out, self.err)
        assert "Traceback" not in self.err + self.out
        lines = self.err.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("engram: "), self.err
        return lines[0].removeprefix("engram: ")


class Project:
    """A folder with ``images``, ``recipe.toml`` and the command line; it is the working directory too."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.root, self.monkeypatch, self._capfd = root, monkeypatch, capfd
        self.images = root / "images"
        monkeypatch.chdir(root)
        monkeypatch.syspath_prepend(str(root))
        for name, value in (("ENGRAM_COMMIT", "test"), ("COLUMNS", "100"), ("NO_COLOR", "1")):
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("ENGRAM_DATA", raising=False)

    def with_images(self, classes: int = 3, per_class: int = 4) -> Project:
        write_images(self.images, classes, per_class)
        self.write_recipe()
        return self

    def write_recipe(self, *changes: tuple[str, str], name: str = "recipe") -> Path:
        text = RECIPE.format(images=self.images)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = self.root / f"{name}.toml"
        path.write_text(text)
        return path

    def run(self, *arguments: object) -> Outcome:
        """``engram <arguments>`` in this process."""
        self.monkeypatch.setattr(sys, "argv", ["engram", *map(str, arguments)])
        self._capfd.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        captured = self._capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    def succeeds(self, *arguments: object) -> str:
        outcome = self.run(*arguments)
        assert outcome.status == 0, outcome.err
        return outcome.out

    def train(self, *arguments: object, out: str = "run") -> Outcome:
        return self.run("train", "recipe.toml", "--device", "cpu", "--out", out, *arguments)

    def records(self) -> list[Path]:
        return sorted((self.root / "results/runs").glob("*.json"))

    def files(self) -> dict[str, bytes]:
        """All files but the cache of stores and the empty lock files, to show that none has changed."""
        paths = (p for p in self.root.rglob("*") if p.is_file() and "cache" not in p.relative_to(self.root).parts[:1])
        return {str(p.relative_to(self.root)): p.read_bytes() for p in paths if p.name != "run.lock"}
