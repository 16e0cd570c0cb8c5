"""What a record states before anything has run."""

from __future__ import annotations

import pytest

from engram.ledger import current_commit, new_record
from engram.recipes import load_recipe


def test_a_record_begins_with_its_recipe_and_what_is_given_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_COMMIT", "abc")
    recipe = load_recipe("proto_net/glyphs_quick")
    record = new_record("bench", recipe, "cpu", 2, status="failed", note="a note")
    assert (record.kind, record.status, record.note, record.revision) == ("bench", "failed", "a note", 2)
    assert (record.method, record.recipe_name) == ("proto_net", recipe.name)
    assert (record.recipe_digest, record.seed) == (recipe.digest, recipe.train.seed)
    assert record.commit == current_commit() == "abc" and set(record.versions) == {"python", "engram", "torch", "numpy"}
    assert record.run_id != new_record("bench", recipe, "cpu", 2).run_id
