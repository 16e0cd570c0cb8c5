"""The report from made-up records: what each cell shows, what is left out, and that it is fast and needs no torch."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from subprocess import run

import numpy as np
import pytest
from study_ledger import add_record, write_study

from engram.errors import EngramError
from engram.ledger import Ledger, record_path, trusted_records
from engram.report.sections import rebuild
from engram.report.study.cells import alike, compare, fill, measured, scale_text
from engram.report.study.pages import write_report
from engram.report.study.sections import StudyBook
from engram.report.study.tables import (
    alike_audit,
    comparisons_table,
    cost_texts,
    many_queries_text,
    study_table,
    systems_table,
)
from engram.report.tables import results_table
from engram.report.verdicts import verdict_text
from engram.studies import load_study, study_names
from engram.studies.jobs import jobs_of

PUBLIC = "cml_bgnn/mini_5w1s_public"


def cells_of(folder: Path, name: str) -> dict:
    return fill(load_study(name), Ledger(trusted_records(folder)[0]), folder)


def test_a_cell_shows_the_full_schedule_before_a_short_run(tmp_path: Path) -> None:
    add_record(tmp_path, f"{PUBLIC}_class_order_short", 0.8, number=1)
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    assert cell.scale == "short" and cell.estimate is not None and abs(cell.estimate.mean - 0.8) < 0.1
    add_record(tmp_path, f"{PUBLIC}_class_order", 0.9, number=2)
    assert cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"].scale == "paper"


def test_a_cut_run_of_a_paper_recipe_counts_as_short_and_says_so(tmp_path: Path) -> None:
    add_record(tmp_path, f"{PUBLIC}_class_order", training={"iterations": 5000, "seconds": 60.0})
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    assert cell.scale == "short" and cell.cut == "5,000 of 70,000 iterations"


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
    assert "`leo/mini_5w1s_short`, trained on the first 380 images of each class" in results_table(
        trusted_records(tmp_path)[0], "leo"
    )


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


def test_rows_not_run_give_the_command_and_rows_without_recipe_say_so(tmp_path: Path) -> None:
    table = study_table(load_study("table1"), cells_of(tmp_path, "table1"), "runs")
    assert "not run: `engram reproduce table1 --scale paper`" in table
    assert re.search(r"\| CML-BGNN \(slots.*88\.62 ± 0\.43 \| not run: `engram reproduce table1 --scale short`", table)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_10k", status="failed", error="out of memory")
    assert "failed: out of memory" in study_table(load_study("table1"), cells_of(tmp_path, "table1"), "runs")


def test_figures_differences_and_words_of_a_table(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_no_bayes", 0.5, seed=111, number=2)
    cells = cells_of(tmp_path, "table1")
    table = study_table(load_study("table1"), cells, "runs")
    assert "protocols differ in slots" in table and "full schedule" in table and "runs/cml_bgnn.mini_5w1s." in table
    found = compare(cells["CML-BGNN", "1-shot"], cells["CML-BGNN w/o B", "1-shot"])
    assert found is not None and found.paired  # both answered the same frozen tasks
    assert "same tasks" in comparisons_table(load_study("table1"), cells)
    records = trusted_records(tmp_path)[0]
    systems = systems_table(load_study("table1"), cells, Ledger(records), "runs", {})
    assert systems.count("\n| ") >= 24 and "Published, %" in systems


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
    cell = cells_of(tmp_path, "table1")["Relation Net", "1-shot"]
    assert verdict_text(reference) == "clean, declared: company"
    assert alike_audit(cell, Ledger([reference])) is None  # its queries are normalised together
    own = add_record(tmp_path, "relation_net/glyphs_quick", kind="audit", number=3, audit=found[1:])
    assert alike_audit(cell, Ledger([reference, own])) == own and verdict_text(own) == "clean"


def test_differences_are_between_models_of_equally_many_iterations(tmp_path: Path) -> None:
    def add(name: str, accuracy: float, number: int, iterations: int) -> None:
        training = {"iterations": iterations, "seconds": 60.0}
        add_record(tmp_path, f"cml_bgnn/{name}", accuracy, number=number, training=training)

    add("mini_5w1s", 0.7, 1, 70000)
    add("mini_5w1s_no_bayes_10k", 0.5, 2, 10000)
    study = load_study("table1")
    assert "| 70,000 and 10,000 |" in comparisons_table(study, cells_of(tmp_path, "table1"))
    add("mini_5w1s_10k", 0.5, 3, 10000)
    cells = cells_of(tmp_path, "table1")
    assert cells["CML-BGNN", "1-shot"].scale == "paper"  # what is shown is the full schedule still
    first, second = alike(cells["CML-BGNN", "1-shot"], cells["CML-BGNN w/o B", "1-shot"])
    assert first.iterations == second.iterations == 10000
    found = compare(first, second)
    assert found is not None and abs(found.mean) < 0.1
    assert "| 10,000 each |" in comparisons_table(study, cells)


def test_measures_of_a_stream(tmp_path: Path) -> None:
    correct = np.arange(8.0)[None, :, None] * np.ones((3, 8, 5))
    assert [measured(correct, m)[0] for m in ("accuracy", "first", "last", "last_quarter")] == [3.5, 0, 7, 6.5]
    add_record(tmp_path, "cml_bgnn/glyphs_leak_class_order", 0.5, rise=0.4)
    cells = cells_of(tmp_path, "order_leak")
    first, last = (cells["trained and tested in class order", f"{n} task"].estimate for n in ("first", "last"))
    assert last.mean - first.mean > 0.25


VOID = {"meta", "br", "path", "use", "rect", "image", "hr"}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def full_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 records: every job of every study that has a recipe, three seeds."""
    folder, number = tmp_path_factory.mktemp("full") / "runs", 0
    studies = [load_study(name) for name in study_names()]
    for scale in ("short", "paper"):
        for job in jobs_of(studies, scale, (111, 222, 333))[0]:
            for ask in job.asks:
                if number < 300:
                    add_record(
                        folder, job.recipe, 0.5 + 0.001 * (number % 200), seed=job.recipe.train.seed, sequences=30,
                        ask=dict(ask) if ask else None, number=number,
                    )  # fmt: skip
                    number += 1
    return folder


def test_the_report_of_300_records_is_whole_fast_and_needs_no_torch(full_ledger: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib, engram.report.study.pages as r; "
        f"r.write_report((), pathlib.Path({str(full_ledger)!r}), pathlib.Path({str(tmp_path / 'report.html')!r})); "
        "print('torch' in sys.modules, time.process_time())"
    )
    torch, seconds = run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert torch == "False" and float(seconds) < 10
    page = (tmp_path / "report.html").read_text()
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    assert not re.search(r'(src|href)="(https?:)?//|@import|<script', page)  # nothing from the network
    for words in ("What the paper claims", "Table 4", "over training", "validation edge accuracy", "Cost against"):
        assert words in page
    assert page.count("<svg") > 20 and "prefers-color-scheme: dark" in page and "max-width: 720px" in page


def test_a_study_of_ones_own_stands_in_the_report(tmp_path: Path) -> None:
    row = 'label = "my row"\nshort = "proto_net/glyphs_quick"\ncells = [{ column = "1-shot" }]'
    mine = load_study(str(write_study(tmp_path / "mine.toml", row)))
    add_record(tmp_path / "runs", "proto_net/glyphs_quick")
    page = write_report((mine,), tmp_path / "runs", tmp_path / "r.html").read_text()
    assert "my row" in page and "engram reproduce mine.toml" in page


def test_sections_of_docs_name_known_studies_only(tmp_path: Path) -> None:
    (tmp_path / "results/runs").mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- study:begin tabel1 -->\n<!-- study:end -->\n")
    with pytest.raises(EngramError, match="names no known study; did you mean 'table1'"):
        rebuild(tmp_path, False)
    (tmp_path / "README.md").write_text("<!-- study:begin overview -->\n<!-- study:end -->\n")
    assert rebuild(tmp_path, False) == ["README.md", "results/summary.csv"] and rebuild(tmp_path, True) == []
    assert "`table1`" in (tmp_path / "README.md").read_text()
    assert "| Study |" in StudyBook(tmp_path / "results/runs").section("overview", [], "")
