"""Studies in the box are whole and have the paper's numbers; bad files get one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from study_ledger import write_study

from engram.errors import EngramError
from engram.recipes import load_recipe, recipe_names
from engram.studies import load_study, study_names
from engram.studies.checks import check_recipes, missing_recipes
from engram.studies.schema import studies_called, study_from_dict

WANTED = {"table1", "table2", "table3", "table4", "figure3", "figure4", "order_leak"}
SYSTEMS = [
    "meta_lstm", "maml", "reptile", "meta_sgd", "snail", "leo", "platipus", "versa", "lwof", "param_predict", "wdae",
    "matching_net", "proto_net", "relation_net", "tadam", "ctm", "gnn", "covamnet", "tpn", "egnn", "cml_bgnn",
]  # fmt: skip
MINIMAL: dict[str, Any] = {
    "title": "t",
    "columns": ["1-shot"],
    "row": [{"label": "a", "cells": [{"column": "1-shot", "recipe": "proto_net/glyphs_quick"}]}],
}


def test_the_papers_tables_and_figures_and_our_own_studies_are_there() -> None:
    assert set(study_names()) >= WANTED
    assert studies_called("memory-stream") == ["memory_stream_anonymous", "memory_stream_named"]
    assert studies_called("all") == study_names() and studies_called("order-leak") == ["order-leak"]


@pytest.mark.parametrize("name", study_names())
def test_every_recipe_of_a_study_exists(name: str) -> None:
    study = load_study(name)
    assert study.description and not missing_recipes(study)


def test_table_1_has_all_21_systems_and_the_papers_figures() -> None:
    table = load_study("table1")
    stems = {cell.recipe.split("/")[0] for _, cell in table.cells()}
    assert stems == set(SYSTEMS)
    figures = {row.label: {c.column: (c.paper, c.interval) for c in row.cells} for row in table.rows}
    assert figures["LEO"] == {"1-shot": (61.76, 0.08), "5-shot": (77.59, 0.12)}
    assert figures["PLATIPUS"]["5-shot"] == (0.0, 0.0)  # a dash in the paper
    assert figures["CML-BGNN w/o C"]["1-shot"] == (63.74, 0.63)
    assert [len(load_study(f"table{n}").rows) for n in (2, 3, 4)] == [19, 6, 6]


@pytest.mark.parametrize("name", study_names())
def test_a_cell_and_its_recipe_state_the_same_published_figure(name: str) -> None:
    """Where a recipe quotes the very table of the study; LabeledOnly cells quote another table's recipe."""
    study = load_study(name)
    for row, cell in study.cells():
        if cell.recipe in recipe_names() and cell.paper:
            paper = load_recipe(cell.recipe).paper
            if paper and paper.table.lower().replace(" ", "") == name:
                assert (paper.accuracy, paper.interval) == (cell.paper, cell.interval), (row.label, cell.column)


def test_figure_3_uses_the_papers_seeds_and_figure_4_nine_variants() -> None:
    assert load_study("figure3").paper.seeds == load_study("figure3").short.seeds == (111, 222, 333)
    recipes = [load_recipe(cell.recipe) for _, cell in load_study("figure4").cells()]
    grid = {(r.method_settings["n_layers"], r.data.stream_length) for r in recipes}
    assert grid == {(layers, length) for layers in (1, 2, 3) for length in (4, 8, 16)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"titel": "x"}, "unknown key 'titel'; did you mean 'title'"),
        ({"columns": "1-shot"}, r"columns = '1-shot' does not fit; it takes a list of a text"),
        ({"columns": []}, "at least one column and one row"),
        ({"kind": "plot"}, "kind = 'plot' does not fit; it takes 'table' or 'training' or 'stream'"),
        ({"short": 3}, r"short = 3 does not fit; it takes a table, \[short\]"),
        ({"short": {"seeds": [1, 1]}}, r"seeds = \[1, 1\] but they must be different and at least 0"),
        ({"short": {"minutes": -1.0}}, "minutes = -1.0 but at least 0 is needed"),
        ({"row": {"label": "a"}}, "it takes a list of tables"),
        ({"row": MINIMAL["row"] * 2}, "two rows are called 'a'"),
        ({"row": [{"label": "a", "cells": [{"column": "2-shot"}]}]}, "row 'a': there is no column '2-shot'"),
        ({"row": [{"label": "a", "cells": [{"column": "1-shot", "paper": 101.0}]}]}, "lies between 0 and 100"),
        ({"row": [{"label": "a", "cells": [{"column": "1-shot", "papre": 1.0}]}]}, "unknown key 'papre'"),
        (
            {"row": [{"label": "a", "cells": [{"column": "1-shot", "ask": {"slot_order": "sorted"}}]}]},
            "ask has slot_order = 'sorted'; it takes 'shuffled' or 'class-order'",
        ),
        (
            {"row": [{"label": "a", "cells": [{"column": "1-shot", "ask": {"n_query": "many"}}]}]},
            "ask has n_query = 'many'; it takes a number",
        ),
        (
            {"row": [{"label": "a", "paper_ask": {"batch_norm": "batch"}, "cells": [{"column": "1-shot"}]}]},
            "paper_ask has batch_norm = 'batch'; it takes 'none' or 'running' or 'support' or 'task'",
        ),
        ({"row": [{"label": "a", "cells": [{"column": "1-shot"}] * 2}]}, "two cells stand in one column"),
        ({"row": [{"label": "a", "ask": {"n_wai": 5}, "cells": [{"column": "1-shot"}]}]}, "did you mean 'n_way'"),
        ({"compare": [{"first": "a", "second": "b"}]}, "there is no row 'b'"),
    ],
)
def test_bad_studies_get_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence) as caught:
        study_from_dict({**MINIMAL, **change}, "x", "x.toml")
    assert str(caught.value).startswith("x.toml")


def test_unknown_studies_and_unknown_recipes_are_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="there is no study 'tabel1'; did you mean 'table1'"):
        load_study("tabel1")
    with pytest.raises(EngramError, match=r"absent.toml cannot be read"):
        load_study(str(tmp_path / "absent.toml"))
    row = 'label = "mine"\ncells = [{ column = "1-shot", recipe = "proto_net/glyphs_quik" }]'
    own = load_study(str(write_study(tmp_path / "mine.toml", row)))
    with pytest.raises(
        EngramError, match=r"mine.toml, row 'mine': there is no recipe 'proto_net/glyphs_quik'; did you"
    ):
        check_recipes(own)


def test_a_rows_settings_hold_for_its_cells_and_a_cells_own_go_first() -> None:
    cells = [{"column": "1-shot", "ask": {"n_way": 3}}]
    row = {"label": "a", "recipe": "r", "short": "s", "ask": {"n_way": 5, "n_query": 2}, "cells": cells}
    (cell,) = study_from_dict({**MINIMAL, "row": [row]}, "x", "x.toml").rows[0].cells
    assert (cell.recipe, cell.short, cell.ask) == ("r", ("s",), {"n_way": 3, "n_query": 2})


def test_studies_need_no_torch() -> None:
    code = "import sys, engram.ledger, engram.reproduction.carry_out; print('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
