"""What is open against the published figures: the verdicts of the table, what to run, and how long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from study_ledger import add_record, cells_of, write_study

from engram.report.systems import systems_tables
from engram.report.verdicts import verdict
from engram.reproduction.plan import Place
from engram.reproduction.still_open import NO_REFERENCE, OpenCell, open_cells, show_open
from engram.studies import load_study

TABLE = load_study("table1")


@pytest.fixture
def on_gpu(place: Place, tmp_path: Path) -> Place:
    """Records of the ledger are of a GPU; data is not looked at, so any file stands for it."""
    return Place(place.results, place.runs, Path("/nowhere"), "cuda")


def by_cell(place: Place) -> dict[tuple[str, str], OpenCell]:
    return {(line.cell.row, line.cell.cell.column): line for line in open_cells(TABLE, place)}


@pytest.fixture(autouse=True)
def data_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.reproduction.plan.why_no_data", lambda dataset, data: "")


def test_what_is_open_agrees_with_the_table(on_gpu: Place) -> None:
    add_record(on_gpu.results, "gnn/mini_5w1s_short", 0.9, number=1)
    add_record(on_gpu.results, "tpn/mini_5w1s_short", 0.2, number=2)
    cells = cells_of(on_gpu.results, "table1")
    wanted = {key for key, cell in cells.items() if cell.cell.paper and not verdict(cell).reached}
    found = by_cell(on_gpu)
    assert set(found) == wanted and ("GNN", "1-shot") not in found and ("TPN", "1-shot") in found
    table = systems_tables(TABLE, cells, "runs")
    assert found["TPN", "1-shot"].verdict.words.startswith("short by ")
    assert f"| {found['TPN', '1-shot'].verdict.words} |" in table


def test_each_has_its_run_and_its_minutes(on_gpu: Place) -> None:
    add_record(on_gpu.results, "tpn/mini_5w1s_short", 0.2, training={"iterations": 8000, "seconds": 400.0})
    found = by_cell(on_gpu)
    tpn, maml = found["TPN", "1-shot"], found["MAML", "1-shot"]
    assert tpn.what == "tpn/mini_5w1s, whole schedule" and tpn.seconds and tpn.time.endswith((" min", " h"))
    assert maml.verdict.words == "not run" and maml.seconds is None and maml.time == "unknown"
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    show_open(TABLE, on_gpu, console)
    text = console.export_text()
    assert f"{len(found)} of {sum(bool(c.paper) for _, c in TABLE.cells())} figures are open, about " in text
    assert "TPN, 1-shot" in text and tpn.time in text


def test_weights_that_can_be_asked_as_published_are_not_trained_longer(on_gpu: Place) -> None:
    trained = {"iterations": 12_000, "seconds": 600.0}
    add_record(on_gpu.results, "meta_sgd/mini_5w1s_short", 0.4, training=trained)
    again = by_cell(on_gpu)["Meta-SGD", "1-shot"]
    assert again.what == "meta_sgd/mini_5w1s_short trained again, then --query-statistics queries"
    assert again.seconds and again.seconds > 600


def test_a_protocol_that_training_decides_names_the_recipe_that_follows_it(
    on_gpu: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, recipe in enumerate(("relation_net/mini_5w1s_short", "versa/mini_5w5s_frozen")):
        add_record(on_gpu.results, recipe, 0.4, number=number)
    found = by_cell(on_gpu)
    assert found["Relation Net", "1-shot"].what == "relation_net/mini_5w1s_reference, trained as published"
    assert found["VERSA", "5-shot"].what == "versa/mini_5w5s_reference_distilled, trained as published"
    monkeypatch.setattr("engram.reproduction.still_open._trained_together", lambda cell: None)
    found = by_cell(on_gpu)
    assert found["VERSA", "5-shot"].what == NO_REFERENCE and found["VERSA", "5-shot"].time == "unknown"


def test_a_recorded_whole_schedule_leaves_nothing_to_run(on_gpu: Place) -> None:
    add_record(on_gpu.results, "tadam/mini_5w1s", 0.3)
    line = by_cell(on_gpu)["TADAM", "1-shot"]
    assert line.what == "" and line.time == "" and line.verdict.kind == "short"


def test_without_the_data_it_still_says_what_to_run(on_gpu: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    add_record(on_gpu.results, "tpn/mini_5w1s_short", 0.2, training={"iterations": 8000, "seconds": 400.0})
    with_data = by_cell(on_gpu)["TPN", "1-shot"]
    monkeypatch.setattr("engram.reproduction.plan.why_no_data", lambda dataset, data: "there is no such data")
    without = by_cell(on_gpu)["TPN", "1-shot"]
    assert without.what == with_data.what == "tpn/mini_5w1s, whole schedule"
    assert without.seconds and with_data.seconds and abs(without.seconds / with_data.seconds - 1) < 0.2


def test_a_study_without_published_figures_says_nothing(place: Place, tmp_path: Path) -> None:
    row = 'label = "a"\ncells = [{ column = "1-shot", recipe = "proto_net/glyphs_quick" }]'
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    show_open(load_study(str(write_study(tmp_path / "mine.toml", row))), place, console)
    assert not console.export_text().strip()
