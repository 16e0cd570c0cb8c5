"""Published figures by recipe: every name is one of the box, and the right table is quoted."""

from __future__ import annotations

import pytest

from engram.recipes import recipe_names
from engram.studies.published import published_figures
from engram.studies.schema import load_study, study_names


@pytest.mark.parametrize(
    ("recipe", "table", "paper", "published"),
    [
        ("cml_bgnn/mini_5w1s", "Table 1", (88.62, 0.43), (0.0, 0.0)),
        ("egnn/mini_5w1s", "Table 1", (58.65, 0.55), (59.18, 0.0)),  # Table 3 has the same run as its third layer
        ("egnn/mini_5w1s_frozen_depth3", "Table 3", (58.65, 0.55), (0.0, 0.0)),
        ("gnn/mini_5w5s_frozen_depth3", "Table 3", (66.99, 0.43), (0.0, 0.0)),  # Tables 1 and 4 show it too
        ("proto_net/mini_5w1s_uniform_norms_short", "Table 1", (49.42, 0.78), (49.42, 0.78)),  # no study runs it
    ],
)
def test_a_recipe_is_set_beside_one_figure(
    recipe: str, table: str, paper: tuple[float, float], published: tuple[float, float]
) -> None:
    found = published_figures()[recipe]
    assert found.table == table and (found.cell.paper, found.cell.interval) == paper
    assert (found.cell.published, found.cell.published_interval) == published


def test_what_a_figure_is_set_beside_is_in_the_box_and_of_one_method() -> None:
    for study in map(load_study, study_names()):
        for row, cell in study.cells():
            assert set(cell.beside) <= set(recipe_names()), row.label
            assert {name.split("/")[0] for name in cell.beside} <= {cell.recipe.split("/")[0]}, row.label
    assert "content_memory/mini_5w1s_named" not in published_figures()
