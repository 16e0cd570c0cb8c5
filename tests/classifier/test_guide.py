"""The guide keeps its word: the commands of docs/own-images.md give the lines it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toy_project import Project

GUIDE = (Path(__file__).parents[2] / "docs" / "own-images.md").read_text()


def test_the_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from engram.page.example import write_example

    project = Project(tmp_path, monkeypatch, capfd)
    write_example(tmp_path / "letters")
    block = next(part for part in GUIDE.split("```") if "$ engram remember" in part)
    steps = re.findall(r"^\$ engram (.+)\n((?:(?!\$ ).+\n)*)", block, re.MULTILINE)
    assert [command.split()[0] for command, _ in steps] == ["remember", "predict", "forget"]
    for command, shown in steps:
        lines = project.succeeds(*command.split()).splitlines()
        assert len(lines) == len(shown.splitlines())
        for mine, theirs in zip(lines, shown.splitlines(), strict=True):
            assert _without_digits(mine) == _without_digits(theirs)  # the last digits of a percentage may differ


def _without_digits(line: str) -> list[str]:
    return re.sub(r"[0-9.]+ %", "", line).split()
