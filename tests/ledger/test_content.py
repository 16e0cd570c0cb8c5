"""Tables of a record: a known key of another kind is told, unknown keys and missing ones are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from minimal import RECIPE

from engram.errors import EngramError
from engram.ledger import Ledger, new_record, read_ledger, write_record
from engram.ledger.content import check_content
from engram.ledger.records import Evaluation
from engram.recipes.schema import recipe_from_dict

RECORD = new_record("train", recipe_from_dict(RECIPE, "x", "x.toml"), "cpu", 0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"run_id": "../x"}, "its run_id"),
        ({"revision": -1}, "its revision is -1"),
        ({"training": {"iterations": "2"}}, "training: iterations = '2' does not fit; it takes a whole number"),
        ({"curves": {"loss": "high"}}, "curves: curves = .* does not fit; it takes a table"),
        ({"recipe": {"train": {"iterations": 2}}}, "does not say its seed"),
        ({"recipe": {"data": {"n_way": "5"}}}, r"recipe \[data\]: n_way = '5' does not fit"),
        ({"audit": [{"effect": "large"}]}, "audit: effect = 'large' does not fit"),
        ({"evaluations": [Evaluation({"n_way": "5"}, "t", {})]}, "protocol: n_way = '5' does not fit"),
        ({"evaluations": [Evaluation({}, "t", {"accuracy": [1]})]}, r"metrics: accuracy = \[1\] does not fit"),
        ({"evaluations": [Evaluation({}, "t", {}, tasks_file="../../a.npz")]}, "lies elsewhere"),
    ],
)
def test_what_is_of_another_kind_is_told(changes: dict[str, Any], says: str) -> None:
    check_content(RECORD)
    with pytest.raises((EngramError, ValueError), match=says):
        check_content(replace(RECORD, **changes))


def test_what_is_unknown_or_not_finite_passes() -> None:
    check_content(replace(RECORD, training={"of_tomorrow": [1]}, curves={"interval": [None, 0.5, 1]}))


def test_one_bad_record_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    bad = write_record(tmp_path, replace(RECORD, run_id="20260101-000000-ffffff", training={"iterations": "two"}))
    records, problems = read_ledger(tmp_path)
    assert [record.run_id for record in records] == [RECORD.run_id]
    assert len(problems) == 1 and str(bad) in problems[0] and "restore it from git or remove it" in problems[0]


def test_records_that_name_each_other_lead_nowhere() -> None:
    first, second = (
        replace(RECORD, run_id=run_id, training={"resumed_from": other}) for run_id, other in (("a", "b"), ("b", "a"))
    )
    assert Ledger([first, second]).trainers.of(first) in (first, second)
