"""The systems side by side: published and ours under both protocols, with a verdict; and in few words."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_ledger import add_record, cells_of

from engram.report.book import Book
from engram.report.systems import (
    COLUMNS,
    lean_systems_table,
    published_protocol,
    reached_text,
    systems_tables,
    trained,
)
from engram.report.verdicts import verdict
from engram.studies import load_study
from engram.studies.schema import Cell

TABLE = load_study("table1")


def lines(folder: Path, column: str = "1-shot") -> dict[str, dict[str, str]]:
    """System -> column -> text, of the table of one column."""
    folder.mkdir(parents=True, exist_ok=True)
    text = systems_tables(TABLE, cells_of(folder, "table1"), "../results/runs")
    part = text.partition(f"**{column}**\n")[2].partition("\n\n**")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| [")]
    return {row[0][1:].partition("]")[0]: dict(zip(COLUMNS, [*row, ""], strict=False)) for row in rows}


def test_each_system_stands_once_for_each_column_with_both_protocols(tmp_path: Path) -> None:
    add_record(tmp_path, "tpn/mini_5w1s_short", 0.6, number=1)
    add_record(tmp_path, "egnn/mini_5w1s", 0.6, number=2)
    table = lines(tmp_path)
    assert len(table) == sum(cell.column == "1-shot" for _, cell in TABLE.cells())
    tpn, egnn = table["TPN"], table["EGNN†"]
    assert tpn["System"] == "[TPN](methods/tpn.md)" and tpn["Its protocol"] == "15 queries"
    assert tpn["Ours, same protocol"] == tpn["Ours, clean"]  # its paper asked as we do
    assert egnn["Its protocol"] == "1 query" and egnn["Ours, same protocol"] != egnn["Ours, clean"]
    assert "(../results/runs/egnn.mini_5w1s." in egnn["Ours, clean"] and egnn["Trained"] == "**100,000 of 100,000**"
    assert table["MAML"]["Verdict"] == "not run" and table["MAML"]["Ours, clean"] == DASH


def test_a_stand_in_and_a_frozen_encoder_are_marked(tmp_path: Path) -> None:
    add_record(tmp_path, "leo/mini_5w1s_short", 0.5, training={"iterations": 4000, "seconds": 9.0})
    text = systems_tables(TABLE, cells_of(tmp_path, "table1"), "runs")
    assert "WRN-28 -> resnet12_wide <sup>" in text and "</sup> resnet12_wide stands in for wrn28_10." in text
    assert "</sup> encoder trained before, then frozen." in text
    assert "</sup> published on train and validation classes (unverified); ours on train alone." in text
    assert lines(tmp_path)["LEO"]["Trained"].startswith("4,000 of 100,000 <sup>")


def test_the_short_table_marks_an_encoder_trained_before_where_the_published_one_was_not(tmp_path: Path) -> None:
    add_record(tmp_path, "leo/mini_5w1s_short", 0.5, number=1)
    text = lean_systems_table(TABLE, cells_of(tmp_path, "table1"), "results/runs")
    assert "trained before" not in text  # LEO's own schedule starts from features too
    add_record(tmp_path, "snail/mini_5w1s_pretrained_short", 0.5, number=2)
    add_record(tmp_path, "egnn/mini_5w1s_frozen_distilled_8k", 0.5, number=3)
    add_record(tmp_path, "meta_lstm/mini_5w1s_from_meta_sgd_with_head", 0.5, number=4)
    text = lean_systems_table(TABLE, cells_of(tmp_path, "table1"), "results/runs")
    assert "</sup> starts from an encoder trained before." in text
    assert "</sup> starts from encoder and head of a learner trained before." in text
    assert "</sup> encoder trained before, then frozen." in text


def test_commands_are_told_once_and_a_figure_asked_otherwise_is_noted(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5)
    text = systems_tables(TABLE, cells_of(tmp_path, "table1"), "runs")
    assert text.count("`engram reproduce table1 --scale paper`") == 1
    assert "</sup> asked otherwise (1 query per class, shuffled, T = 8) ours is [" in text


def test_the_count_agrees_with_the_verdicts(tmp_path: Path) -> None:
    assert reached_text(TABLE, cells_of(tmp_path, "table1")).startswith(
        "Within or above the published figure: 0 of 0 run at 1-shot (0 within, 0 above); 0 of 0 run at 5-shot"
    )
    add_record(tmp_path, "gnn/mini_5w1s_short", 0.9, number=1)
    add_record(tmp_path, "tpn/mini_5w1s_short", 0.2, number=2)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_public_class_order", 0.99, number=3)  # of the paper itself: not counted
    cells = cells_of(tmp_path, "table1")
    kinds = [verdict(cells[row, "1-shot"]).kind for row in ("GNN", "TPN", "CML-BGNN, class order")]
    assert kinds == ["above", "short", "above"]
    assert "1 of 2 run at 1-shot (0 within, 1 above)" in reached_text(TABLE, cells)


def test_all_twenty_systems_are_counted_by_their_published_figures() -> None:
    text = reached_text(TABLE, Book(Path("results/runs")).cells["table1"], "1-shot")
    assert " of 20 systems at 1-shot (" in text


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell("1-shot", paper=50.0), "each query alone"),
        (Cell("1-shot", paper=50.0, paper_ask={"batch_norm": "task", "n_query": 1}), "1 query, BatchNorm: task"),
        (Cell("1-shot", paper=50.0, paper_ask={"n_query": 15}, trained_on="both"), "15 queries, both"),
        (Cell("1-shot", paper=50.0, paper_ask={"slot_order": "class-order"}), "class order"),
        (Cell("1-shot"), ""),
    ],
)
def test_a_published_protocol_in_few_words(cell: Cell, words: str) -> None:
    assert published_protocol(cell) == words


def test_seeds_stand_with_the_steps(tmp_path: Path) -> None:
    for number, seed in enumerate((111, 222)):
        add_record(tmp_path, "egnn/mini_5w1s", 0.6, seed=seed, number=number)
    assert trained(cells_of(tmp_path, "table1")["EGNN†", "1-shot"]) == "**100,000 of 100,000**, 2 seeds"


STEMS = """
    cml_bgnn meta_lstm maml reptile meta_sgd snail leo platipus versa lwof param_predict wdae matching_net proto_net
    relation_net tadam ctm gnn covamnet tpn egnn
""".split()  # noqa: SIM905
DASH = "\N{EN DASH}"


def lean(folder: Path, runs: str = "results/runs") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return Book(folder).study_section("systems-lean", runs)


def test_every_system_links_to_its_page_and_has_a_dash_until_it_is_run(tmp_path: Path) -> None:
    rows = [line for line in lean(tmp_path / "runs").splitlines() if line.startswith("| [")]
    assert len(rows) == len(STEMS) + 1  # CML-BGNN in class order too
    assert all(any(f"](docs/methods/{stem}.md)" in row for row in rows) for stem in STEMS)
    assert all(row.split(" | ")[2] == DASH and row.count("|") == 5 for row in rows)
    assert "](../docs/methods/maml.md)" in lean(tmp_path / "runs", "../results/runs")


def test_same_protocol_gives_a_figure_and_another_a_note(tmp_path: Path) -> None:
    add_record(tmp_path / "runs", "gnn/mini_5w1s_short", accuracy=0.5)
    add_record(tmp_path / "runs", "cml_bgnn/mini_5w1s", accuracy=0.5)
    add_record(tmp_path / "runs", "cml_bgnn/mini_5w1s_public_class_order", accuracy=0.9, number=2)
    table = lean(tmp_path / "runs")
    rows = {line.split("]")[0][3:]: line.split(" | ") for line in table.splitlines() if line.startswith("| [")}
    assert "](results/runs/gnn.mini_5w1s_short." in rows["GNN"][2] and rows["GNN"][3] == "within (8%) <sup>1</sup> |"
    assert rows["CML-BGNN"][2:] == [f"{DASH} <sup>2</sup>", "not comparable (**100%**) |"]
    assert rows["CML-BGNN, class order"][3] == "above (**100%**) <sup>3</sup> |"
    assert " with other query order." in table.partition("<sup>1</sup>")[2]
    assert "Within or above the published figure: 1 of 1 run at 1-shot" in table
    assert "<sup>3</sup> query order reveals the label" in table
