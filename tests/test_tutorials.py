"""Every command and every Python block of docs/tutorials runs, in order, in an empty folder, on embedded data."""

from __future__ import annotations

import glob
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engram.cli import main

TUTORIALS = sorted((Path(__file__).parent.parent / "docs/tutorials").glob("*.md"))
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """(language, file to write or "", text) of each fenced block."""
    return [match.groups(default="") for match in FENCE.finditer(page.read_text(encoding="utf-8"))]  # type: ignore[misc]


def commands(text: str) -> list[str]:
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def run_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`engram` in this process, which has torch loaded; anything else in a shell."""
    program, *words = shlex.split(line)
    if program != "engram":
        subprocess.run(line, shell=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        return
    found = [sorted(glob.glob(word)) or [word] if "*" in word else [word] for word in words]
    monkeypatch.setattr(sys, "argv", ["engram", *(word for part in found for word in part)])
    try:
        main()
    except SystemExit as end:
        assert not end.code, f"{line} ended with {end.code}"


@pytest.mark.parametrize("page", TUTORIALS, ids=[page.stem for page in TUTORIALS])
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    ran = 0
    for language, file, text in blocks(page):
        if file:
            Path(file).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, str(page), "exec"), {"__name__": "__main__"})
        else:
            assert language == "console" and commands(text), f"a block of {page.name} cannot be run"
            for line in commands(text):
                run_command(line, monkeypatch)
        ran += 1
    assert ran >= 4


def test_every_kind_of_user_has_a_page() -> None:
    assert {page.stem for page in TUTORIALS} == {"reproduce", "method", "pictures", "stream"}
