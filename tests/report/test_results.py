"""Tables from made-up records: what is shown, what wins and what is marked."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

from result_records import make_evaluation, make_record, rows_of
from study_ledger import add_record

from engram.ledger import RunRecord
from engram.methods import METHODS
from engram.protocol import CLASS_ORDER_MARK
from engram.recipes import load_recipe
from engram.report import results
from engram.report.results import PAGELESS, SUMMARY
from engram.report.rows import result_rows
from engram.report.sections import rebuild


def results_table(records: Sequence[RunRecord], method: str) -> str:
    return results.results_table(result_rows(records), method)


def section_text(name: str, records: Sequence[RunRecord], runs: str = "results/runs") -> str:
    return results.results_section(name, result_rows(records), runs)


def test_a_row_has_every_number_and_a_link_to_its_record() -> None:
    (row,) = rows_of(results_table([make_record(1, make_evaluation(0.51834))], "cml_bgnn"))
    assert row == [
        "`cml_bgnn/mini_5w1s`",
        "conv4",
        "1 query per class, T = 8",
        "88.62 ± 0.43 (Table 1)",
        "51.83 ± 0.42",
        "0.031",
        "12.3 (70,000 steps)",
        "H200",
        "[abcdef](results/runs/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json)",
    ]


def test_a_table_says_once_what_all_of_its_rows_share_and_groups_them_by_data_ways_and_shots() -> None:
    table = results_table([make_record(1, make_evaluation(0.51), make_evaluation(0.45, n_query=15))], "cml_bgnn")
    assert table.startswith("| Recipe | Test tasks | Published, % | Ours, % | ECE | Record |")
    assert table.count("**miniImageNet, 5-way 1-shot**") == 1
    assert "In every row: Encoder conv4; Minutes trained 12.3 (70,000 steps); Device H200. Ours: accuracy" in table


def many(count: int) -> list[RunRecord]:
    """Rows that no study names, then one of each recipe that Table 1 shows."""
    others = [
        make_record(n, make_evaluation(0.2 + n / 1000), recipe_name=f"cml_bgnn/own_{n}", recipe_digest=f"other{n}")
        for n in range(count)
    ]
    shown = make_record(90, make_evaluation(0.5), make_evaluation(0.4, n_query=15))
    public = {"recipe_name": "cml_bgnn/mini_5w1s_public", "recipe_digest": "public"}
    return [*others, shown, make_record(91, make_evaluation(0.6), **public)]


def test_a_page_opens_with_few_rows_and_folds_all_of_them_away_below() -> None:
    text = results_table(many(9), "cml_bgnn")
    opening, _, rest = text.partition("\n<summary>All 12 recorded rows</summary>\n\n")
    assert opening.startswith("| Recipe | Test tasks | Published, % | Ours, % | Record |")
    assert [row[3] for row in rows_of(opening)] == ["60.00 ± 0.42", "50.00 ± 0.42"]  # the newest first
    everything = "".join(row[3] for row in rows_of(rest) if len(row) > 3)
    assert all(figure in everything for figure in ("60.00", "50.00", "40.00", "20.00", "20.80"))
    assert "<details" not in results_table(many(5), "cml_bgnn")  # eight rows stand as they are


def test_the_latest_of_equal_records_wins_whatever_their_order() -> None:
    old, new = make_record(1, make_evaluation(0.41)), make_record(2, make_evaluation(0.52))
    for records in ([old, new], [new, old]):
        (row,) = rows_of(results_table(records, "cml_bgnn"))
        assert row[4] == "52.00 ± 0.42"


def test_another_protocol_or_another_seed_is_another_row() -> None:
    other_seed = make_record(2, make_evaluation(0.43), recipe_digest="e1e1e1e1")
    table = results_table(
        [make_record(1, make_evaluation(0.41), make_evaluation(0.45, n_query=15)), other_seed], "cml_bgnn"
    )
    rows = rows_of(table)
    assert len(rows) == 3
    assert sum("settings d0d0d0" in r[0] for r in rows) == 1  # the two rows of one name are told apart
    assert sum("settings e1e1e1" in r[0] for r in rows) == 1


def test_failed_runs_are_rows_and_replace_nothing() -> None:
    error = "loss became\nNaN | at step 12"
    failed = make_record(2, status="failed", error=error, training={})
    rows = rows_of(results_table([make_record(1, make_evaluation(0.41)), failed], "cml_bgnn"))
    assert [r[3] for r in rows] == ["41.00 ± 0.42", r"**failed**: loss became NaN \| at step 12"]
    assert rows[1][1] == "1 query per class, T = 8"


def test_an_interrupted_run_stands_until_a_later_one_finishes() -> None:
    interrupted = make_record(1, status="interrupted")
    assert rows_of(results_table([interrupted], "cml_bgnn"))[0][4] == "**interrupted**"
    rows = rows_of(results_table([interrupted, make_record(2, make_evaluation(0.41))], "cml_bgnn"))
    assert [r[4] for r in rows] == ["41.00 ± 0.42"]


def test_class_order_rows_are_marked_and_no_other() -> None:
    table = results_table(
        [make_record(1, make_evaluation(0.88, slot_order="class-order"), make_evaluation(0.5))], "cml_bgnn"
    )
    shuffled, ordered = rows_of(table)
    assert ordered[0].endswith(" ¹") and "**class order**" in ordered[1] and "class order" not in shuffled[1]
    assert f"¹ C{CLASS_ORDER_MARK[1:]}; no evidence that history helps." in table
    assert "no evidence" not in results_table([make_record(1, make_evaluation(0.5))], "cml_bgnn")


def test_the_papers_figure_stands_only_beside_its_own_setting() -> None:
    table = results_table([make_record(1, make_evaluation(0.3, n_way=20), make_evaluation(0.5))], "cml_bgnn")
    assert table.index("5-way 1-shot**") < table.index("20-way 1-shot**")
    assert [r[2] for r in rows_of(table)] == ["88.62 ± 0.43 (Table 1)", ""]


def test_a_bench_over_features_shows_its_training_and_which_images_it_saw() -> None:
    source = "features of conv4 by stage_one/mini_conv4, from 6d09"
    part = {"iterations": 20, "seconds": 60.0, "features": f"{source}; the first 380 images of each class"}
    trained = make_record(1, training=part)
    bench = make_record(2, make_evaluation(0.4), kind="bench", training={"features": source}, trained_by=trained.run_id)
    table = results_table([trained, bench], "cml_bgnn")
    (row,) = rows_of(table)
    assert row[0] == "`cml_bgnn/mini_5w1s` ¹" and table.endswith("¹ Trained on the first 380 images of each class.")
    assert row[6] == "1.0 (20 steps)"


def test_positions_of_short_and_long_streams() -> None:
    short, long, longest = (make_evaluation(0.5, stream_length=length) for length in (8, 16, 100))
    text = section_text("cml_bgnn", [make_record(1, short, long, longest)])
    _, of_8, of_16 = text.split("Accuracy in % by position in a stream of ")
    assert "Task 8 | ± at most |" in of_8 and "| 50.7 | 1.1 |" in of_8
    assert "Task 8 | Task 16 | ± at most |" in of_16 and "Task 3 |" not in of_16 and "| 51.5 | 1.1 |" in of_16
    assert "stream of 100 tasks" not in text  # those are curves elsewhere


def test_a_systems_own_published_figure_goes_before_the_one_the_paper_prints() -> None:
    def table(recipe: str) -> str:
        named = {"method": recipe.split("/")[0], "recipe_name": recipe}
        return results_table([make_record(2, make_evaluation(0.5), **named)], str(named["method"]))

    assert "| 48.70 ± 1.84 | 50.00" in table("maml/mini_5w1s")  # both say the same
    assert "| 59.18; 58.65 ± 0.55 (Table 1) | 50.00" in table("egnn/mini_5w1s")
    assert "as the paper of CML-BGNN prints it" in table("egnn/mini_5w1s") and "prints" not in table("maml/mini_5w1s")
    assert "Published" not in table("maml/glyphs_quick")
    own = make_record(3, make_evaluation(0.5), method="own:Method", recipe_name="maml/mini_5w1s")
    assert "48.70" not in results_table([own], "own:Method")  # another method makes no claim to it


def test_a_methods_page_leaves_out_settings_that_its_recipe_no_longer_has() -> None:
    now = load_recipe("cml_bgnn/mini_5w1s").to_dict()
    changed = {**now, "train": {**now["train"], "iterations": 7}}
    other_seed = {**now, "train": {**now["train"], "seed": 5}}
    settings = [(now, 0.5), (changed, 0.25), (other_seed, 0.75)]
    records = [
        make_record(number, make_evaluation(accuracy), recipe=recipe, recipe_digest=f"digest{number}")
        for number, (recipe, accuracy) in enumerate(settings)
    ]
    page, everything = results_table(records, "cml_bgnn"), section_text("all", records)
    assert "50.00" in page and "75.00" in page and "25.00" not in page and "[other runs](../runs.md)" in page
    assert all(figure in everything for figure in ("50.00", "75.00", "25.00"))
    others = section_text("others", records)
    assert "25.00" in others and "50.00" not in others and "75.00" not in others  # each stands in one place
    alone = results_table(records[1:2], "cml_bgnn")  # nothing newer answers the question: it stays
    assert "25.00" in alone and "[other runs]" not in alone
    _, along = section_text("cml_bgnn", records).split("<details")
    assert "50.0 " in along and "25.0 " not in along


def test_the_list_of_all_runs_is_brief_and_keeps_failures() -> None:
    failed = make_record(2, status="failed", error="out of memory", recipe_digest="other")
    text = section_text("all", [make_record(1, make_evaluation(0.41)), failed], "runs")
    assert text.startswith("| System | Recipe | Test tasks | Ours, % | ECE | Record |")
    assert [len(row) for row in rows_of(text)] == [6, 6] and "41.00 ± 0.42" in text and "**failed" in text
    assert section_text("all", [], "runs") == section_text("others", [], "runs") == "No runs are recorded yet."


def test_methods_without_a_page_are_among_the_others() -> None:
    chance = make_record(1, make_evaluation(0.2), method="chance", recipe_digest="other")
    records = [chance, make_record(2, make_evaluation(0.5))]
    assert [row[3] for row in rows_of(section_text("others", records, "runs"))] == ["20.00 ± 0.42"]
    missing = {stem for stem in METHODS if not (Path(__file__).parents[2] / "docs/methods" / f"{stem}.md").is_file()}
    assert missing == set(PAGELESS)


def test_positions_are_folded_on_a_methods_page() -> None:
    text = section_text("cml_bgnn", [make_record(1, make_evaluation(0.41))], "runs")
    table, folded = text.split("<details")
    assert "41.00 ± 0.42" in table and "by position in a stream of 8" in folded and folded.endswith("</details>")
    assert "<details" not in section_text("cml_bgnn", [make_record(1, make_evaluation(0.4, stream_length=1))], "runs")


def test_a_run_from_before_a_change_of_its_method_says_so_and_gives_way_to_one_of_today() -> None:
    recipe = load_recipe("cml_bgnn/mini_5w1s").to_dict()
    old = make_record(1, make_evaluation(0.5), recipe=recipe, revision=0)
    new = make_record(2, make_evaluation(0.6), recipe=recipe)
    old_answers = [make_evaluation(0.5), make_evaluation(0.4, n_query=15)]
    twice = results_table([replace(old, evaluations=old_answers)], "cml_bgnn")
    assert [row[0] for row in rows_of(twice)] == ["`cml_bgnn/mini_5w1s` ¹"] * 2
    assert twice.count("¹ Run before this change of the method: eq. 7: ") == 1  # told once, below
    table = results_table([old, new], "cml_bgnn")
    assert "¹" not in table and "60.00" in table and "50.00" not in table
    assert "50.00" in section_text("others", [old, new])


QUICK = "cml_bgnn/glyphs_quick_class_order"


def lines(records: list[RunRecord]) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(results.summary_csv(result_rows(records)))))


def test_a_line_for_each_answer_with_its_seed_training_and_record(tmp_path: Path) -> None:
    old = add_record(tmp_path, QUICK, 0.6, number=1)
    new = add_record(tmp_path, QUICK, 0.7, number=2)
    other = add_record(tmp_path, QUICK, 0.8, seed=222, number=3)
    asked = add_record(tmp_path, QUICK, 0.5, ask={"slot_order": "shuffled"}, number=4, trained_by=new.run_id)
    failed = add_record(tmp_path, QUICK, number=5, status="failed")
    found = lines([old, new, other, asked, failed])
    assert [line["seed"] for line in found] == ["111", "111", "222"]  # queries shuffled first, then in class order
    bench, train, _ = found
    assert bench["iterations"] == train["iterations"] == str(new.training["iterations"])
    assert train["accuracy_percent"] == f"{100 * new.evaluations[0].metrics['accuracy']:.2f}"
    assert "class order" in train["protocol"] and "shuffled" in bench["protocol"]
    assert (tmp_path / bench["record"].removeprefix("runs/")).is_file()
    assert train["settings"] == bench["settings"] == new.recipe_digest[:6] != other.recipe_digest[:6]


def test_no_records_leave_the_header(tmp_path: Path) -> None:
    header = results.summary_csv([])
    assert header.startswith("recipe,method,dataset,protocol,accuracy_percent,") and header.count("\n") == 1


def test_the_report_writes_it_and_check_tells_an_edit(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("<!-- results:begin all -->\n<!-- results:end -->\n")
    add_record(tmp_path / "results/runs", QUICK, 0.6)
    assert SUMMARY.as_posix() in rebuild(tmp_path, check=True) and not (tmp_path / SUMMARY).exists()
    rebuild(tmp_path, check=False)
    written = (tmp_path / SUMMARY).read_text()
    assert rebuild(tmp_path, check=True) == [] and written.count("\n") == 2
    (tmp_path / SUMMARY).write_text(written.replace("glyphs,", "mini,"))
    assert rebuild(tmp_path, check=True) == ["results/summary.csv"]
