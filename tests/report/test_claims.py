"""Verdicts on the paper's claims: confirmed, not confirmed, not testable, each from records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_ledger import add_record

from engram.errors import EngramError
from engram.ledger import RunRecord, write_record
from engram.report.book import Book
from engram.report.claims import CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE, UNDECIDED, Finding, claims_table, findings
from engram.studies.claims import Claim, ClaimTest, load_claims

HIGHER = ClaimTest(study="table1", first="CML-BGNN", second="CML-BGNN w/o B", column="1-shot")
WITH, WITHOUT = "cml_bgnn/mini_5w1s", "cml_bgnn/mini_5w1s_no_bayes"


def judge(folder: Path, *tests: ClaimTest, why: str = "") -> Finding:
    book = Book(folder)
    return findings([Claim("a claim", "Table 1", tests, why)], book.cells, book.ledger)[0]


def test_the_claims_in_the_box_are_whole_and_without_records_none_is_testable(tmp_path: Path) -> None:
    book = Book(tmp_path)
    assert len(book.findings) >= 15 and {f.verdict for f in book.findings} == {NOT_TESTABLE}
    assert all(f.words for f in book.findings)
    assert (
        claims_table(book.findings, "docs").markdown().startswith("0 confirmed, 0 not confirmed, 0 cannot be decided, ")
    )


@pytest.mark.parametrize(("gain", "verdict"), [(0.2, CONFIRMED), (0.0, NOT_CONFIRMED), (-0.2, NOT_CONFIRMED)])
def test_a_difference_decides(tmp_path: Path, gain: float, verdict: str) -> None:
    add_record(tmp_path, WITH, 0.5 + gain, number=1)
    assert judge(tmp_path, HIGHER).verdict == NOT_TESTABLE  # the other row is missing
    add_record(tmp_path, WITHOUT, 0.5, number=2)
    found = judge(tmp_path, HIGHER)
    assert found.verdict == verdict and "points" in found.words and "full schedule" in found.words
    assert ("inside the noise" in found.words) == (gain == 0.0)


def test_noise_around_nothing_decides_only_what_it_leaves_out(tmp_path: Path) -> None:
    """The paper has 1.47 points between the two rows: inside the noise of 40 tasks."""
    add_record(tmp_path, WITH, 0.501, number=1)
    add_record(tmp_path, WITHOUT, 0.5, number=2)
    found = judge(tmp_path, HIGHER)
    assert found.verdict == UNDECIDED and "inside the noise" in found.words
    assert judge(tmp_path, replace(HIGHER, claimed=25.0)).verdict == NOT_CONFIRMED


def test_a_test_that_does_not_decide_only_stands_beside(tmp_path: Path) -> None:
    add_record(tmp_path, WITH, 0.5, number=1)
    add_record(tmp_path, WITHOUT, 0.3, number=2)
    beside = replace(HIGHER, first=HIGHER.second, second=HIGHER.first, label="the other way", decides=False)
    found = judge(tmp_path, HIGHER, beside, why="a remark")
    assert found.verdict == CONFIRMED and "the other way: -" in found.words and found.words.endswith("a remark")


def test_reaching_the_papers_figure(tmp_path: Path) -> None:
    add_record(tmp_path, WITH, 0.88)
    reaches = ClaimTest("reaches", "table1", "CML-BGNN", column="1-shot", within=2.0)
    assert judge(tmp_path, reaches).verdict == CONFIRMED
    assert judge(tmp_path, replace(reaches, column="5-shot")).verdict == NOT_TESTABLE


EARLY = ClaimTest("early", "figure3", "CML-BGNN", column="1-shot")
PEAKS = {"iteration": [20_000, 35_000, 52_500, 70_000], "validation_interval": [0.012] * 4}


@pytest.mark.parametrize(
    ("validation", "verdict"),
    [
        ([0.60, 0.58, 0.56, 0.55], CONFIRMED),
        ([0.48, 0.53, 0.56, 0.58], NOT_CONFIRMED),
        ([0.5712, 0.56, 0.5784, 0.571], UNDECIDED),  # 0.7 points between the halves, 1.7 within the noise
        ([0.5784, 0.56, 0.5712, 0.571], UNDECIDED),
    ],
)
def test_a_peak_is_early_or_late_only_outside_the_noise(tmp_path: Path, validation: list[float], verdict: str) -> None:
    add_record(tmp_path, WITH, 0.5, curves={**PEAKS, "validation_accuracy": validation})
    found = judge(tmp_path, EARLY)
    assert found.verdict == verdict and f"best validation {100 * max(validation[:2]):.2f} ± 1.20 %" in found.words
    assert ("inside the noise" in found.words) == (verdict == UNDECIDED)


def test_one_late_seed_refutes_and_one_unclear_seed_leaves_it_open(tmp_path: Path) -> None:
    early, late, flat = ([0.6, 0.6, 0.5, 0.5], [0.5, 0.5, 0.6, 0.6], [0.6, 0.6, 0.6, 0.6])
    add_record(tmp_path, WITH, 0.5, curves={**PEAKS, "validation_accuracy": early}, number=1)
    add_record(tmp_path, WITH, 0.5, curves={**PEAKS, "validation_accuracy": flat}, seed=222, number=2)
    assert judge(tmp_path, EARLY).verdict == UNDECIDED
    add_record(tmp_path, WITH, 0.5, curves={**PEAKS, "validation_accuracy": late}, seed=333, number=3)
    assert judge(tmp_path, EARLY).verdict == NOT_CONFIRMED


def test_a_curve_of_one_half_tells_nothing_of_a_peak(tmp_path: Path) -> None:
    add_record(tmp_path, WITH)  # validated up to 3,000 of 70,000
    found = judge(tmp_path, EARLY)
    assert found.verdict == NOT_TESTABLE and "no validation over both halves" in found.words


def test_a_smaller_spread_needs_seeds_and_more_than_luck(tmp_path: Path) -> None:
    steadier = ClaimTest("steadier", "sampling", "10 samples", "1 sample", "5-shot")
    recipes = ("cml_bgnn/mini_5w5s_samples1", "cml_bgnn/mini_5w5s_samples10")
    for recipe in recipes:
        add_record(tmp_path, recipe, 0.5)
    assert "one seed each" in judge(tmp_path, steadier).words
    for number, (seed, wide, narrow) in enumerate(((222, 0.2, 0.50), (333, 0.8, 0.51)), 1):
        add_record(tmp_path, recipes[0], wide, seed=seed, number=number)
        add_record(tmp_path, recipes[1], narrow, seed=seed, number=number)
    found = judge(tmp_path, steadier)
    assert found.verdict == CONFIRMED and "spread over seeds" in found.words
    assert judge(tmp_path, replace(steadier, first="1 sample", second="10 samples")).verdict == NOT_CONFIRMED


def test_an_audit_decides_by_its_effect(tmp_path: Path) -> None:
    test = ClaimTest("audit", recipe="cml_bgnn/glyphs_quick", probe="own past against foreign")
    assert judge(tmp_path, test).verdict == NOT_TESTABLE
    trained = add_record(tmp_path, "cml_bgnn/glyphs_quick")
    finding = {"probe": test.probe, "effect": 0.002, "bound": 0.03, "unit": "accuracy", "kind": "statistical"}
    audit: RunRecord = replace(trained, run_id="20260102-000000-abcdef", kind="audit", evaluations=[], audit=[finding])
    write_record(tmp_path, audit)
    found = judge(tmp_path, test)
    assert found.verdict == UNDECIDED and "+0.2 ± 3.0 points, inside the noise" in found.words
    assert judge(tmp_path, replace(test, claimed=24.88)).verdict == NOT_CONFIRMED  # the noise leaves that out


def test_a_claim_about_a_cell_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(
        '[[claim]]\ntext = "t"\nwhere = "w"\ntests = [{ study = "table1", first = "CML-BGN", column = "1-shot" }]\n'
    )
    with pytest.raises(EngramError, match="table1 has no cell 'CML-BGN', '1-shot'; did you mean 'CML-BGNN'"):
        load_claims(Book(tmp_path).studies, path)
