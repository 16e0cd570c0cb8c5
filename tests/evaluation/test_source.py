"""Which model a command is given, and under which name its answers are filed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_store import make_store

from engram.data.store import Store
from engram.evaluation.bench import bench
from engram.ledger import RunRecord, record_path


@pytest.fixture(scope="module")
def store() -> Store:
    return make_store(n_classes=5, per_class=6, noise=20.0, split="test")


def ask(model: str | Path, results: Path, store: Store, **arguments: object) -> tuple[RunRecord, Path]:
    record, _ = bench(model, results=results, store=store, progress=False, device="cpu", **arguments)  # type: ignore[arg-type]
    return record, record_path(results, record)


def test_a_floors_result_is_not_filed_under_the_recipe_it_was_asked_with(tmp_path: Path, store: Store) -> None:
    glyphs = Store(store.images, store.offsets, replace(store.info, dataset="glyphs"))
    record, path = ask("chance", tmp_path, glyphs, recipe="proto_net/glyphs_5w1s", n_sequences=2, n_query=1)
    assert record.recipe_name == "chance/glyphs_5w1s" and path.name.startswith("chance.glyphs_5w1s.")
    assert record.recipe["paper"] is None
