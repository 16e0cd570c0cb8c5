"""The summary a person can open: a line for each answered question, from the newest record that answers it."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

from study_ledger import add_record

from engram.ledger import RunRecord
from engram.report.sections import rebuild
from engram.report.summary import COLUMNS, SUMMARY, summary_csv

QUICK = "cml_bgnn/glyphs_quick_class_order"


def lines(records: list[RunRecord]) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(summary_csv(records))))


def test_a_line_for_each_answer_with_its_seed_training_and_record(tmp_path: Path) -> None:
    old = add_record(tmp_path, QUICK, 0.6, number=1)
    new = add_record(tmp_path, QUICK, 0.7, number=2)
    other = add_record(tmp_path, QUICK, 0.8, seed=222, number=3)
    asked = add_record(tmp_path, QUICK, 0.5, ask={"slot_order": "shuffled"}, number=4, trained_by=new.run_id)
    failed = add_record(tmp_path, QUICK, number=5, status="failed")
    found = lines([old, new, other, asked, failed])
    assert [line["seed"] for line in found] == ["111", "111", "222"]  # slots shuffled first, then in class order
    bench, train, _ = found
    assert bench["iterations"] == train["iterations"] == str(new.training["iterations"])
    assert train["accuracy_percent"] == f"{100 * new.evaluations[0].metrics['accuracy']:.2f}"
    assert "class order" in train["protocol"] and "shuffled" in bench["protocol"]
    assert (tmp_path / bench["record"].removeprefix("runs/")).is_file()
    assert train["settings"] == bench["settings"] == new.recipe_digest[:6] != other.recipe_digest[:6]


def test_no_records_leave_the_header(tmp_path: Path) -> None:
    assert summary_csv([]) == ",".join(COLUMNS) + "\n"


def test_the_report_writes_it_and_check_tells_an_edit(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("<!-- results:begin all -->\n<!-- results:end -->\n")
    add_record(tmp_path / "results/runs", QUICK, 0.6)
    assert SUMMARY.as_posix() in rebuild(tmp_path, check=True) and not (tmp_path / SUMMARY).exists()
    rebuild(tmp_path, check=False)
    written = (tmp_path / SUMMARY).read_text()
    assert rebuild(tmp_path, check=True) == [] and written.count("\n") == 2
    (tmp_path / SUMMARY).write_text(written.replace("glyphs,", "mini,"))
    assert rebuild(tmp_path, check=True) == ["results/summary.csv"]
