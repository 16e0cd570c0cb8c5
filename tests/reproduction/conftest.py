"""A place with nothing in it, and a project with images to train on."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_project import Project

from engram.reproduction.plan import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    return Place(tmp_path / "ledger", tmp_path / "runs", None, "cpu")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Project(tmp_path, monkeypatch, capfd).with_images()
