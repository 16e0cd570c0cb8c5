"""Stores small enough for every test; nothing is read from the user's own cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from toy_store import make_store

from engram.data.store import Store

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # GPU kernels are checked by an interpreter; Triton reads it when imported


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What every method is held to comes last, method by method: a worker then trains each but once."""

    def variant(item: pytest.Item) -> str:
        name = item.path.name
        return item.name.partition("[")[2] if name in ("test_contract.py", "test_audit_contract.py") else ""

    items.sort(key=variant)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled once for all tests and the processes they start; workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def private_cache(kernels: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.mktemp("cache")
    (cache / "kernels").symlink_to(kernels)
    monkeypatch.setenv("ENGRAM_CACHE", str(cache))


@pytest.fixture(scope="session")
def toy_store() -> Store:
    return make_store()
