"""Claims of the paper as data: each test names cells that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.recipes import recipe_names
from engram.studies import load_study, study_names
from engram.studies.claims import load_claims, published_figures

FIRST = 'study = "table1"\ncolumn = "1-shot"\nfirst = '
CLAIM = '[[claim]]\ntext = "t"\nwhere = "Table 1"\n[[claim.tests]]\n{test}\n'


def test_the_claims_of_the_box_name_cells_of_its_studies() -> None:
    claims = load_claims({name: load_study(name) for name in study_names()})
    assert all(claim.text and claim.where and (claim.tests or claim.why) for claim in claims)
    assert {test.kind for claim in claims for test in claim.tests} >= {"higher", "reaches", "audit"}


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ('study = "tabel1"', r"there is no study 'tabel1'; did you mean 'table1'"),
        (f'{FIRST}"LEOO"', "table1 has no cell 'LEOO', '1-shot'; did you mean 'LEO'"),
        (f'{FIRST}"LEO"\nsecond = "MAML"\nsecond_column = "2-shot"', "table1 has no cell 'MAML', '2-shot'"),
        ('kind = "lower"', "kind = 'lower' does not fit"),
    ],
)
def test_a_claim_about_what_is_not_there_is_told(tmp_path: Path, test: str, sentence: str) -> None:
    (tmp_path / "claims.toml").write_text(CLAIM.format(test=test))
    with pytest.raises(EngramError, match=rf"claims.toml \[\[claim\]\] 1.*{sentence}"):
        load_claims({"table1": load_study("table1")}, tmp_path / "claims.toml")


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
