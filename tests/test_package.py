"""What `import engram` offers: every name is there, and those that are modules too can be called, again and again."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import engram
from engram.errors import EngramError


@pytest.mark.parametrize("name", [n for n in dir(engram) if not n.startswith("_")])
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(engram, name) is not None


@pytest.mark.parametrize("name", ["train", "bench", "quickstart", "audit", "compare"])
def test_calls_stay_calls_after_their_modules_are_imported(name: str) -> None:
    for module in ("engram.training.experiment", "engram.evaluation.bench", "engram.tour", "engram.probes.audit"):
        importlib.import_module(module)
        assert callable(getattr(engram, name))


def test_the_quickstart_is_a_call_the_second_time_too(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(EngramError, match="seconds = 0 but training needs more than 0"):
            engram.quickstart(out=tmp_path / "out", seconds=0)


def test_type_checkers_see_every_public_name() -> None:
    """A module's ``__getattr__`` gives them ``Any``: the imports for them list what the table lists."""
    tree = ast.parse(Path(engram.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert seen == engram._LAZY
    assert (Path(engram.__file__).parent / "py.typed").is_file()


def test_calls_are_the_functions_themselves() -> None:
    assert engram.train is importlib.import_module("engram.training.experiment").train
    assert list(inspect.signature(engram.train).parameters) == [
        "recipe",
        "stores",
        "on_validation",
        "progress",
        "options",
    ]
    assert inspect.signature(engram.bench).return_annotation == "tuple[RunRecord, tuple[Result, ...]]"


def test_the_import_is_quick_and_needs_no_torch() -> None:
    script = (
        "import sys, time; start = time.perf_counter(); import engram; took = time.perf_counter() - start; "
        "assert not {'torch', 'numpy', 'tyro'} & set(sys.modules); print(took)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout) for _ in "123"
    ]
    assert min(times) < 0.020


@pytest.mark.parametrize(
    "name", [n for n in dir(engram) if not n.startswith("_") and n[0].isupper() and n != n.upper()]
)
def test_every_public_type_is_documented(name: str) -> None:
    text = getattr(engram, name).__doc__ or ""
    assert text and not text.startswith(f"{name}("), f"{name} has no docstring of its own"
