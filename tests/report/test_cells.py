"""Cells from made-up records: which run a cell shows, and what it says of that run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from study_ledger import add_record, cells_of

from engram.ledger import record_path, trusted_records, write_record
from engram.report.cells import compare, measured, scale_text
from engram.report.report_page import write_report
from engram.report.results import results_table
from engram.report.rows import result_rows
from engram.report.studies import comparisons_table
from engram.studies import load_study

PUBLIC = "cml_bgnn/mini_5w1s_public"


def test_a_cell_shows_the_full_schedule_before_a_short_run(tmp_path: Path) -> None:
    add_record(tmp_path, f"{PUBLIC}_class_order_short", 0.8, number=1)
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    assert cell.scale == "short" and cell.estimate is not None and abs(cell.estimate.mean - 0.8) < 0.1
    add_record(tmp_path, f"{PUBLIC}_class_order", 0.9, number=2)
    assert cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"].scale == "paper"


def test_a_cut_run_of_a_paper_recipe_counts_as_short_and_says_so(tmp_path: Path) -> None:
    add_record(tmp_path, f"{PUBLIC}_class_order", training={"iterations": 5000, "seconds": 60.0})
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    assert cell.scale == "short" and scale_text(cell).startswith("short, 5,000 of 70,000 iterations")


def test_a_short_run_says_what_else_it_changed(tmp_path: Path) -> None:
    trained = {"iterations": 6000, "seconds": 60.0}
    add_record(tmp_path, "egnn/mini_5w1s_short", training=trained, number=1)
    add_record(tmp_path, "versa/mini_5w1s_frozen", training=trained | {"iterations": 1000}, number=2)
    cells = cells_of(tmp_path, "table1")
    few = "short, 6,000 iterations, other dropout, starting weights, augmentation"
    many = "short, 1,000 iterations, frozen encoder, other backbone, data, train settings"
    assert (scale_text(cells["EGNN†", "1-shot"]), scale_text(cells["VERSA", "1-shot"])) == (few, many)


def test_a_run_that_was_short_and_nothing_else_says_no_more(tmp_path: Path) -> None:
    add_record(tmp_path, "reptile/mini_5w1s_short", training={"iterations": 6000, "seconds": 60.0})
    assert scale_text(cells_of(tmp_path, "table1")["REPTILE", "1-shot"]) == "short, 6,000 of 8,000 iterations"


def test_a_head_that_saw_a_part_of_the_images_says_so(tmp_path: Path) -> None:
    features = (
        "features of resnet12_wide by stage_one/mini_resnet12_wide, from 6d09; the first 380 images of each class"
    )
    add_record(tmp_path, "leo/mini_5w1s_short", training={"iterations": 8000, "seconds": 60.0, "features": features})
    cell = cells_of(tmp_path, "table1")["LEO", "1-shot"]
    told = (
        "short, 8,000 iterations, frozen encoder, other backbone, learning rate, batch size, head trained on the first"
    )
    assert scale_text(cell) == f"{told} 380 images of each class"
    table = results_table(result_rows(trusted_records(tmp_path)[0]), "leo")
    assert "`leo/mini_5w1s_short` ¹" in table and "¹ Trained on the first 380 images of each class." in table


def test_seeds_are_averaged_and_an_edited_record_never_is(tmp_path: Path) -> None:
    for number, seed in enumerate((111, 222, 333)):
        last = add_record(tmp_path, "egnn/mini_5w1s", 0.6, seed=seed, number=number)
    path = record_path(tmp_path, last)
    raw = json.loads(path.read_text())
    raw["evaluations"][0]["metrics"]["accuracy"] = 0.99
    path.write_text(json.dumps(raw))
    cell = cells_of(tmp_path, "table1")["EGNN†", "1-shot"]
    assert list(cell.answers) == [111, 222] and cell.estimate is not None and cell.estimate.seeds == 2
    page = write_report((), tmp_path, tmp_path / "out/report.html").read_text()
    assert "Records that do not count" in page and path.name in page


def test_differences_are_between_models_of_equally_many_iterations(tmp_path: Path) -> None:
    def add(name: str, accuracy: float, number: int, iterations: int) -> None:
        training = {"iterations": iterations, "seconds": 60.0}
        add_record(tmp_path, f"cml_bgnn/{name}", accuracy, number=number, training=training)

    add("mini_5w1s", 0.7, 1, 70000)
    add("mini_5w1s_no_bayes_10k", 0.5, 2, 10000)
    study = load_study("table1")
    assert "| 70,000 and 10,000 |" in comparisons_table(study, cells_of(tmp_path, "table1")).markdown()
    add("mini_5w1s_10k", 0.5, 3, 10000)
    cells = cells_of(tmp_path, "table1")
    assert cells["CML-BGNN", "1-shot"].scale == "paper"  # what is shown is the full schedule still
    compared = compare(cells["CML-BGNN", "1-shot"], cells["CML-BGNN w/o B", "1-shot"])
    assert compared is not None and compared.first.iterations == compared.second.iterations == 10000
    assert abs(compared.found.mean) < 0.1
    assert "| 10,000 each |" in comparisons_table(study, cells).markdown()


def test_measures_of_a_stream(tmp_path: Path) -> None:
    correct = np.arange(8.0)[None, :, None] * np.ones((3, 8, 5))
    assert [measured(correct, m)[0] for m in ("accuracy", "first", "last", "last_quarter")] == [3.5, 0, 7, 6.5]
    add_record(tmp_path, "cml_bgnn/glyphs_leak_class_order", 0.5, rise=0.4)
    cells = cells_of(tmp_path, "order_leak")
    first, last = (cells["trained and tested in class order", f"{n} task"].estimate for n in ("first", "last"))
    assert last.mean - first.mean > 0.25


def test_a_cell_knows_its_weights_asked_cleanly_over_the_same_tasks(tmp_path: Path) -> None:
    one = add_record(tmp_path, "egnn/mini_5w1s", 0.6, seed=111, number=1)
    cell = cells_of(tmp_path, "table1")["EGNN†", "1-shot"]
    assert cell.protocol["n_query"] == 1 and [a.evaluation.protocol["n_query"] for a in cell.clean.values()] == [15]
    assert cell.clean[111].record.run_id == one.run_id
    other = add_record(tmp_path, "egnn/mini_5w1s", 0.6, seed=222, number=2)
    assert list(cells_of(tmp_path, "table1")["EGNN†", "1-shot"].clean) == [111, 222]
    many = [replace(e, tasks_digest="others") if e.protocol["n_query"] == 15 else e for e in other.evaluations]
    write_record(tmp_path, replace(other, run_id="20260101-000003-aaaaaa", evaluations=many))
    assert list(cells_of(tmp_path, "table1")["EGNN†", "1-shot"].clean) == [222]  # never averaged over other tasks


def test_a_model_that_normalises_queries_together_is_clean_only_where_asked_otherwise(tmp_path: Path) -> None:
    norm = {"batch_norm": "task"}
    asked = add_record(tmp_path, "maml/mini_5w1s_20k", 0.5, ask=norm, training={"iterations": 20_000, "seconds": 9.0})
    assert not cells_of(tmp_path, "table1")["MAML", "1-shot"].clean
    add_record(tmp_path, "maml/mini_5w1s_20k", 0.4, ask={"batch_norm": "support"}, number=1, trained_by=asked.run_id)
    assert cells_of(tmp_path, "table1")["MAML", "1-shot"].clean
