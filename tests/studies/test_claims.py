"""Claims of the paper as data: each test names cells that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.studies import load_study, study_names
from engram.studies.claims import load_claims

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
