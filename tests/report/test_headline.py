"""The rows a method's page opens with: few, chosen by one rule, whatever the order of the records."""

from __future__ import annotations

from pathlib import Path

from result_records import make_evaluation, make_record

from engram.ledger import Evaluation, RunRecord
from engram.report.book import Book
from engram.report.headline import FEW, headline
from engram.report.results import of_today
from engram.report.rows import ResultRow, result_rows

ROOT = Path(__file__).parents[2]


def others(method: str, count: int = FEW) -> list[RunRecord]:
    """Rows of recipes that no study names, older than all others."""
    return [
        make_record(n, make_evaluation(0.2), method=method, recipe_name=f"{method}/own_{n}", recipe_digest=f"d{n}")
        for n in range(count)
    ]


def named(number: int, recipe: str, *evaluations: Evaluation, steps: int = 1000) -> RunRecord:
    training = {"iterations": steps, "seconds": 60.0}
    values = {"method": recipe.split("/")[0], "recipe_name": recipe, "training": training}
    return make_record(number, *(evaluations or [make_evaluation(0.5)]), recipe_digest=f"{recipe}{steps}", **values)


def names(rows: list[ResultRow]) -> list[str]:
    return [row.record.recipe_name for row in rows]


def test_a_cell_of_table_1_shows_the_papers_schedule_before_a_shorter_one_and_then_what_is_beside_it() -> None:
    short = [named(20, "egnn/mini_5w1s_short"), named(21, "egnn/mini_5w1s_uniform_norms")]
    records = [*others("egnn"), *short, named(22, "egnn/mini_5w1s_frozen_depth1")]
    assert names(headline(result_rows(records))) == ["egnn/mini_5w1s_uniform_norms", "egnn/mini_5w1s_short"]
    whole = [*records, named(19, "egnn/mini_5w1s")]
    for given in (whole, whole[::-1]):
        assert names(headline(result_rows(given))) == ["egnn/mini_5w1s_uniform_norms", "egnn/mini_5w1s"]


def test_a_recipe_has_one_row_its_first_question_after_the_longest_training() -> None:
    asked = make_evaluation(0.6, n_query=15), make_evaluation(0.5)
    long, quick = named(20, "egnn/mini_5w1s", *asked, steps=9000), named(30, "egnn/mini_5w1s", steps=10)
    (row,) = headline(result_rows([*others("egnn"), long, quick]))
    assert row.record is long and row.protocol["n_query"] == 1


def test_a_method_that_only_other_studies_name_shows_their_recipes() -> None:
    records = [*others("content_memory"), named(20, "content_memory/mini_5w1s_named")]
    assert names(headline(result_rows(records))) == ["content_memory/mini_5w1s_named"]


def test_a_method_that_no_study_names_shows_the_plainest_answer_of_each_kind() -> None:
    newer = named(50, "own/new", make_evaluation(0.4, views=2), make_evaluation(0.7, n_shot=5))
    first, second = headline(result_rows([*others("own"), newer]))
    assert (first.record.run_id[13:15], first.protocol["n_shot"]) == ("07", 1)  # the newest without averaged views
    assert (second.record, second.protocol["n_shot"]) == (newer, 5)


def test_few_rows_stand_as_they_are_and_failures_never_open_a_page() -> None:
    few = result_rows([*others("own", FEW - 1), make_record(9, status="failed", method="own")])
    assert headline(few) == few
    more = result_rows([*others("own"), make_record(9, status="failed", method="own")])
    assert all(row.evaluation for row in headline(more))


def test_no_page_of_the_box_opens_with_more() -> None:
    rows = Book(ROOT / "results/runs").rows
    for method in {row.record.method for row in rows}:
        assert 0 < len(headline(of_today([row for row in rows if row.record.method == method]))) <= FEW, method
