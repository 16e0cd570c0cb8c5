"""Studies in the box are whole and have the paper's numbers."""

from __future__ import annotations

import sys
from subprocess import run

from engram.recipes import load_recipe
from engram.studies import load_study

SYSTEMS = [
    "meta_lstm", "maml", "reptile", "meta_sgd", "snail", "leo", "platipus", "versa", "lwof", "param_predict", "wdae",
    "matching_net", "proto_net", "relation_net", "tadam", "ctm", "gnn", "covamnet", "tpn", "egnn", "cml_bgnn",
]  # fmt: skip


def test_table_1_has_all_21_systems_and_the_papers_figures() -> None:
    table = load_study("table1")
    stems = {cell.recipe.split("/")[0] for _, cell in table.cells()}
    assert stems == set(SYSTEMS)
    figures = {row.label: {c.column: (c.paper, c.interval) for c in row.cells} for row in table.rows}
    assert figures["LEO"] == {"1-shot": (61.76, 0.08), "5-shot": (77.59, 0.12)}
    assert figures["PLATIPUS"]["5-shot"] == (0.0, 0.0)  # a dash in the paper
    assert figures["CML-BGNN w/o C"]["1-shot"] == (63.74, 0.63)
    assert [len(load_study(f"table{n}").rows) for n in (2, 3, 4)] == [19, 6, 6]


def test_figure_3_uses_the_papers_seeds_and_figure_4_nine_variants() -> None:
    assert load_study("figure3").paper.seeds == load_study("figure3").short.seeds == (111, 222, 333)
    recipes = [load_recipe(cell.recipe) for _, cell in load_study("figure4").cells()]
    grid = {(r.method_settings["n_layers"], r.data.stream_length) for r in recipes}
    assert grid == {(layers, length) for layers in (1, 2, 3) for length in (4, 8, 16)}


def test_studies_need_no_torch() -> None:
    code = "import sys, engram.ledger, engram.reproduction.carry_out; print('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
