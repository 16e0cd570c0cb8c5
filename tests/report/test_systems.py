"""The systems side by side: cost of a step, many queries, and an audit lent by an alike recipe."""

from __future__ import annotations

import re
from pathlib import Path

from study_ledger import add_record, cells_of

from engram.ledger import Ledger, trusted_records
from engram.report.audits import verdict_text
from engram.report.book import Book
from engram.report.systems import alike_audit, cost_texts, many_queries_text, systems_table
from engram.studies import load_study


def test_a_step_measured_alone_stands_for_that_of_the_run(tmp_path: Path) -> None:
    training = {"iterations": 1000, "seconds": 60.0, "validation_seconds": 10.0}
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, training=training)
    record = trusted_records(tmp_path)[0][0]
    alone = {(record.recipe_digest, record.device): 6.92}
    for steps, told in (({}, "| ~50.0 |"), (alone, "| 6.9 |"), ({("another", record.device): 1.0}, "| ~50.0 |")):
        cells = cells_of(tmp_path, "table1")
        assert told in systems_table(load_study("table1"), cells, Ledger([record]), "runs", steps)


def test_milliseconds_of_a_cpu_are_marked() -> None:
    trained = {"iterations": 100, "seconds": 30.0, "validation_seconds": 10.0}
    assert cost_texts(trained, None, "cpu, 1 threads") == ("~200.0 (cpu)", "0.5")
    assert cost_texts(trained, 20.0, "NVIDIA H200") == ("20.0", "0.5")
    assert cost_texts({}, None, "cpu, 1 threads") == ("", "")


def test_fifteen_queries_have_a_column_and_name_their_seed(tmp_path: Path) -> None:
    add_record(tmp_path, "proto_net/mini_5w1s", 0.5, seed=111, number=1)
    alone = many_queries_text(cells_of(tmp_path, "table1")["Prototypical Net", "1-shot"])
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", alone)
    add_record(tmp_path, "proto_net/mini_5w1s", 0.6, seed=222, number=2)
    first, second = many_queries_text(cells_of(tmp_path, "table1")["Prototypical Net", "1-shot"]).split("; ")
    assert first == f"{alone}, seed 111" and second.endswith(", seed 222")


def test_an_audit_is_lent_within_one_regime_only(tmp_path: Path) -> None:
    add_record(tmp_path, "relation_net/mini_5w1s", 0.5, number=1)
    found = [{"probe": "company", "verdict": "declared"}, {"probe": "repeat", "verdict": "clean"}]
    reference = add_record(tmp_path, "relation_net/glyphs_reference", kind="audit", number=2, audit=found)
    recipe = cells_of(tmp_path, "table1")["Relation Net", "1-shot"].recipe
    assert recipe is not None
    assert verdict_text(reference) == "clean, declared: company"
    assert alike_audit(recipe, Ledger([reference])) is None  # its queries are normalised together
    own = add_record(tmp_path, "relation_net/glyphs_quick", kind="audit", number=3, audit=found[1:])
    assert alike_audit(recipe, Ledger([reference, own])) == own and verdict_text(own) == "clean"


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
    assert "](results/runs/gnn.mini_5w1s_short." in rows["GNN"][2] and " steps, 3 min" in rows["GNN"][3]
    assert rows["CML-BGNN"][2] == f"{DASH} <sup>1</sup>" and rows["CML-BGNN"][3].startswith("**70,000 steps")
    assert rows["CML-BGNN, class order"][2].endswith("<sup>2</sup>")
    assert "<sup>1</sup> under another protocol, ours" in table and "class-order in the paper, shuffled here" in table
    assert "<sup>2</sup> query order reveals the label" in table
