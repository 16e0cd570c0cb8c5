"""Tables that are almost recipes, and command lines of words that nobody meant: one sentence, never a traceback."""

from __future__ import annotations

import copy
import os
import random
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fuzzing import failures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_project import RECIPE as TEXT
from toy_project import Project
from toy_run import changed, go

from engram.cli import main
from engram.errors import EngramError
from engram.recipes.schema import recipe_from_dict

SEED = int(os.environ.get("ENGRAM_FAULTS_SEED", 1))
SAMPLE = int(os.environ.get("ENGRAM_FAULTS", 60))
RECIPE = tomllib.loads(TEXT)
PLACES = [(table, key) for table, keys in RECIPE.items() if isinstance(keys, dict) for key in (*keys, "unknown")]
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@hypothesis.seed(SEED)
@settings(max_examples=SAMPLE // 4 or 500, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_tables_that_are_almost_recipes(tally: Callable[..., None], changes: list[tuple[tuple[str, str], Any]]) -> None:
    tally("recipes", 1)
    table = copy.deepcopy(RECIPE)
    for (part, key), value in changes:
        table[part][key] = value
    try:
        recipe_from_dict(table, "mine", "mine.toml").to_dict()
    except EngramError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000


WORDS = (
    *("", " ", "\udcff", "a\nb", "9" * 30, "-1", "0", "1", "2", "nan", "inf", "1e400", "x", "../.."),
    *("/dev/null", "/", ".", "run", "model", "proto_net/glyphs_5w1s", "recipe.toml", "test", "cpu"),
    *("cuda:99", "folder:images", "--", "-", "{}"),
)
COMMANDS = (
    *("bench run", "bench", "audit run", "picture run", "features run", "pack run", "attach run run"),
    *("compare", "list", "recipe", "data", "predict", "forget", "import-public", "train recipe.toml"),
    "reproduce --dry-run",
)
FLAGS = (
    *("--n-way", "--n-shot", "--n-query", "--n-sequences", "--stream-length", "--device", "--seed"),
    *("--data", "--out", "--results", "--split", "--recipe", "--features", "--support", "--model"),
    *("--weights", "--engine", "--views", "--pool-classes", "--names", "--bits", "--max-minutes"),
    *("--iterations", "--resume", "--figure", "--json"),
)


def command_line(dice: random.Random) -> list[str]:
    words = dice.choice(COMMANDS).split()
    for _ in range(dice.randrange(4)):
        words += [dice.choice(FLAGS), dice.choice(WORDS)] if dice.random() < 0.6 else [dice.choice(WORDS)]
    return words


def test_command_lines_that_nobody_meant(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tally: Callable[..., None],
    sample: int,
) -> None:
    project = Project(tmp_path, monkeypatch, capfd).with_images()
    go(tmp_path / "run", changed(train={"iterations": 1, "validate_every": 1}))
    dice = random.Random(SEED)
    inputs = [command_line(dice) for _ in range(sample // 20 or 200)]

    def use(words: list[str]) -> None:
        sys.argv = ["engram", *words]
        main()

    failed = failures(inputs, use, project.root)
    tally("command lines", len(inputs), len(failed))
    assert not failed, "\n".join(f"{line} <- {inputs[int(line.split()[1].strip(':'))]}" for line in failed)
