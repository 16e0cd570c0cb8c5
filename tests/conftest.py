"""Stores small enough for every test; nothing is read from the user's own cache."""

from __future__ import annotations

import os

import pytest
import torch
from toy_store import make_store

from engram.data.store import Store

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # GPU kernels are checked by an interpreter; Triton reads it when imported


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def toy_store() -> Store:
    return make_store()
