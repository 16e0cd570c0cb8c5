import json
from dataclasses import replace
from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.ledger import (
    Evaluation,
    RunRecord,
    check_results_folder,
    new_run_id,
    read_ledger,
    read_record,
    record_path,
    write_record,
)


def record(**changes: object) -> RunRecord:
    blank = RunRecord(
        run_id=new_run_id(),
        kind="train",
        status="finished",
        method="proto_net",
        recipe_name="proto_net/glyphs_5w1s",
        recipe={"method": "proto_net"},
        recipe_digest="d",
        seed=1,
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        commit="abc",
        device="cpu",
        versions={},
        evaluations=[Evaluation({"n_way": 5}, "t", {"accuracy": 0.5, "nll": float("nan")})],
    )
    return replace(blank, **changes)  # type: ignore[arg-type]


def test_a_record_survives_the_way_to_disk_and_back(tmp_path: Path) -> None:
    written = record()
    path = write_record(tmp_path, written)
    assert path.name == f"proto_net.glyphs_5w1s.{written.run_id}.json"
    back = read_record(path)
    assert back.evaluations[0].metrics == {"accuracy": 0.5, "nll": None}  # NaN is not JSON
    assert replace(back, evaluations=[]) == replace(written, evaluations=[])


def test_what_was_measured_has_eight_digits_and_what_was_asked_for_has_all(tmp_path: Path) -> None:
    metrics = {"accuracy": 1 / 3, "reliability": {"weight": [2 / 3, 1]}, "nll": 1e-9 / 3}
    asked = {"method": "proto_net", "backbone_settings": {"slope": 1 / 3}}
    written = record(recipe=asked, curves={"loss": [200 / 3]}, evaluations=[Evaluation({"n_way": 5}, "t", metrics)])
    back = read_record(write_record(tmp_path, written))
    rounded = {"accuracy": 0.33333333, "reliability": {"weight": [0.66666667, 1]}, "nll": 3.3333333e-10}
    assert back.evaluations[0].metrics == rounded and back.curves == {"loss": [66.666667]}
    assert back.recipe == asked


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    first = record()
    path = write_record(tmp_path, first)
    before = path.read_text()
    with pytest.raises(EngramError, match="exists already and records are never overwritten"):
        write_record(tmp_path, replace(first, seconds=99.0))
    assert path.read_text() == before


def test_a_recipe_outside_the_box_is_named_by_its_method(tmp_path: Path) -> None:
    assert record_path(tmp_path, record(recipe_name="mine", run_id="r")).name == "proto_net.mine.r.json"


def test_unreadable_records_are_named_and_left_out(tmp_path: Path) -> None:
    write_record(tmp_path, record())
    (tmp_path / "broken.json").write_text("{")
    newer = json.loads(next(tmp_path.glob("proto_net*.json")).read_text()) | {"version": 99}
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    records, problems = read_ledger(tmp_path)
    assert len(records) == 1
    assert any("broken.json" in p for p in problems) and any("version 99" in p for p in problems)


def test_another_method_than_the_recipes_is_filed_under_its_own_name(tmp_path: Path) -> None:
    for method, recipe, stem in (
        ("mymodule:Thing", "proto_net/glyphs_5w1s", "mymodule.Thing.glyphs_5w1s"),
        ("a.b:Thing", "my recipe", "a.b.Thing.my.recipe"),
        ("mine:Floor", "mine:Floor/glyphs_5w1s", "mine.Floor.glyphs_5w1s"),
        ("egnn", "proto_net/glyphs_5w1s", "egnn.glyphs_5w1s"),
    ):
        path = record_path(tmp_path, record(method=method, recipe_name=recipe, run_id="r"))
        assert path == tmp_path / f"{stem}.r.json"


def test_a_results_folder_is_checked_without_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_results_folder(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tasks").write_text("")
    with pytest.raises(EngramError, match=r"runs cannot be made: .*runs/tasks is not a folder"):
        check_results_folder(tmp_path / "runs")
    monkeypatch.setattr("engram.ledger.records.os.access", lambda place, mode: place != tmp_path)
    with pytest.raises(EngramError, match=r"a/b cannot be written: .* gives no permission"):
        check_results_folder(tmp_path / "a" / "b")
