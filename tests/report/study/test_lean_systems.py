"""The short table: every system of the paper once, ours only where it was asked as the paper's."""

from __future__ import annotations

from pathlib import Path

from study_ledger import add_record

from engram.report.study.sections import StudyBook

STEMS = """
    cml_bgnn meta_lstm maml reptile meta_sgd snail leo platipus versa lwof param_predict wdae matching_net proto_net
    relation_net tadam ctm gnn covamnet tpn egnn
""".split()  # noqa: SIM905
DASH = "\N{EN DASH}"


def lean(folder: Path, runs: str = "results/runs") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return StudyBook(folder).section("systems-lean", [], runs)


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
    assert "](results/runs/gnn.mini_5w1s_short." in rows["GNN"][2] and " steps, 3 min" in rows["GNN"][3]
    assert rows["CML-BGNN"][2] == f"{DASH} <sup>1</sup>" and rows["CML-BGNN"][3].startswith("**70,000 steps")
    assert rows["CML-BGNN, class order"][2].endswith("<sup>2</sup>")
    assert "<sup>1</sup> asked otherwise, ours is " in table and "class-order in the paper, shuffled here" in table
    assert "<sup>2</sup> query order reveals the label" in table
