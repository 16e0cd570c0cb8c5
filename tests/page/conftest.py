"""A visitor who has shown two classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from coloured import coloured

from engram.page.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = Session()
    session.add("red", coloured(tmp_path, "red", (220, 40, 40)))
    session.add("green", coloured(tmp_path, "green", (40, 200, 60)))
    return session
