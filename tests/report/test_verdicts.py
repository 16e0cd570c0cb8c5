"""Ours beside the published figure: like with like, and a verdict of equals alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study_ledger import add_record

from engram.ledger import RunRecord
from engram.recipes import load_recipe
from engram.report.book import Book
from engram.report.cells import Filled
from engram.report.studies import cell_html, ours_text
from engram.report.table import Notes
from engram.report.verdicts import against_centroid, against_paper, differing, judged, like_paper, verdict


def noted(cell: Filled) -> str:
    """A cell's text with its notes."""
    notes = Notes()
    return f"{ours_text(cell, 'runs', notes)} {notes.markdown()}"


MAML = "maml/mini_5w1s_20k"


def maml_cell(folder: Path) -> Filled:
    return Book(folder).cells["table1"]["MAML", "1-shot"]


def ask_transductively(folder: Path, accuracy: float, trained_by: str, number: int, **ask: object) -> None:
    """The same weights asked as `engram bench --query-statistics queries` asks them."""
    recipe = load_recipe(MAML)
    changed = replace(recipe, method_settings={**recipe.method_settings, "query_statistics": "queries"})
    add_record(folder, changed, accuracy, ask={"batch_norm": "task", **ask}, number=number, trained_by=trained_by)


def test_another_regime_is_named_and_never_called_clear(tmp_path: Path) -> None:
    add_record(tmp_path, MAML, 0.2, training={"iterations": 20_000})  # the paper has 48.70, queries together
    found = against_paper(maml_cell(tmp_path))
    assert found is not None and found.gap.mean < -found.gap.interval and not found.other
    assert found.word == "protocols differ in BatchNorm (task in the paper, running here)"
    assert "clear" not in noted(maml_cell(tmp_path))
    assert "protocols differ in BatchNorm" in cell_html(maml_cell(tmp_path), "runs")


def test_the_same_weights_asked_as_the_paper_are_set_beside_it(tmp_path: Path) -> None:
    trained = add_record(tmp_path, MAML, 0.2, number=1, training={"iterations": 20_000})
    ask_transductively(tmp_path, 0.1, "another run", 2, n_query=1)
    ask_transductively(tmp_path, 0.1, trained.run_id, 3, n_query=15)
    assert "protocols differ" in noted(maml_cell(tmp_path))  # other weights, other queries per class
    ask_transductively(tmp_path, 0.48, trained.run_id, 4, n_query=1)
    found = against_paper(maml_cell(tmp_path))
    assert found is not None and found.other
    assert found.figure.mean == pytest.approx(found.answer.evaluation.metrics["accuracy"])
    assert found.gap.mean == pytest.approx(found.figure.mean - 0.4870) and found.word == "inside the noise"
    text = noted(maml_cell(tmp_path))
    assert f"asked as in the paper [{100 * found.figure.mean:.2f}" in text and "20260101-000004" in text
    assert f"asked so {100 * found.figure.mean:.2f}" in cell_html(maml_cell(tmp_path), "runs")


def test_the_queries_of_the_paper_are_chosen_from_one_record(tmp_path: Path) -> None:
    record = add_record(tmp_path, "tpn/mini_5w1s_short", 0.5)  # asked with 1 and with 15, as its paper
    cell = Book(tmp_path).cells["table1"]["TPN", "1-shot"]
    found = against_paper(cell)
    many = next(e for e in record.evaluations if e.protocol["n_query"] == 15)
    assert cell.protocol["n_query"] == 1 and found is not None and found.other
    assert found.figure.mean == pytest.approx(many.metrics["accuracy"])


def test_a_cell_asked_as_the_paper_stands_for_itself(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s_public_class_order", 0.5, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, number=2)
    cells = Book(tmp_path).cells["table1"]
    alike, shuffled = (against_paper(cells[row, "1-shot"]) for row in ("CML-BGNN, class order", "CML-BGNN"))
    assert alike is not None and not alike.other and alike.word == "clear for this seed"
    assert shuffled is not None and shuffled.word.startswith("protocols differ in query order (class-order in")


def test_only_what_differs_is_told() -> None:
    asked = {"batch_norm": "task", "n_query": 5, "slot_order": "shuffled"}
    told = differing({"batch_norm": "running", "n_query": 1}, asked)
    assert told == "BatchNorm (task in the paper, running here) and queries per class (5 in the paper, 1 here)"
    assert differing({"batch_norm": "task", "n_query": 5}, asked) == ""


@pytest.mark.parametrize(
    ("gap", "ours", "published", "kind", "words"),
    [
        (-0.005, 0.01, 0.01, "within", "within"),
        (-0.02, 0.001, 0.001, "within", "within"),  # 2 points and no more
        (-0.0201, 0.001, 0.001, "short", "short by 2.01"),
        (-0.03, 0.031, 0.04, "within", "within"),  # inside both intervals
        (-0.03, 0.031, 0.02, "short", "short by 3.00"),  # inside one of them
        (0.019, 0.001, 0.001, "within", "within"),
        (0.05, 0.001, 0.001, "above", "above"),
    ],
)
def test_a_shortfall_is_one_sided_and_more_than_two_points_or_noise(
    gap: float, ours: float, published: float, kind: str, words: str
) -> None:
    found = judged(gap, ours, published)
    assert (found.kind, found.words) == (kind, words) and found.reached == (kind in ("within", "above"))


def system(folder: Path, row: str, column: str = "1-shot") -> Filled:
    return Book(folder).cells["table1"][row, column]


def test_what_is_not_run_or_not_published_is_open(tmp_path: Path) -> None:
    assert verdict(system(tmp_path, "MAML")).words == "not run"
    assert verdict(system(tmp_path, "PLATIPUS", "5-shot")).words == "no published figure"
    assert verdict(system(tmp_path, "MAML")).kind == "open" and not verdict(system(tmp_path, "MAML")).reached


def test_another_protocol_is_no_shortfall(tmp_path: Path) -> None:
    add_record(tmp_path, MAML, 0.2, training={"iterations": 20_000})
    found = verdict(maml_cell(tmp_path))
    assert found.kind == "not comparable"
    assert found.words == "not comparable: BatchNorm (task in the paper, running here)"


def test_another_backbone_is_no_shortfall_and_not_above(tmp_path: Path) -> None:
    add_record(tmp_path, "lwof/mini_5w1s_short", 0.9)
    found = verdict(system(tmp_path, "LwoF"))
    assert found.words == "not comparable: backbone (conv64_signed published, resnet12_wide here)"


def test_equals_are_judged(tmp_path: Path) -> None:
    add_record(tmp_path, "gnn/mini_5w1s_short", 0.3, sequences=400)
    assert verdict(system(tmp_path, "GNN")).kind == "short"
    add_record(tmp_path, "gnn/mini_5w1s_short", 0.8, sequences=400, number=1)
    assert verdict(system(tmp_path, "GNN")).kind == "above"


FEATURES = "features of resnet12_wide by stage_one/mini_resnet12_wide, run {}, best-00012500, from 6d09"


def encoder(folder: Path, accuracy: float, **changes: Any) -> RunRecord:
    """Stage one as it answers the tasks that heads over it are asked: by nearest centroid."""
    asked = replace(load_recipe("stage_one/mini_resnet12_wide"), test=load_recipe(HEAD).test)
    training = {"iterations": 15_000, "seconds": 60.0, "best_iteration": 12_500}
    return add_record(folder, asked, accuracy, **{"training": training, "number": 1, **changes})


HEAD = "param_predict/mini_5w1s_short"


def head(folder: Path, accuracy: float, encoder_run: str) -> Filled:
    training = {"iterations": 3000, "seconds": 60.0, "features": FEATURES.format(encoder_run)}
    add_record(folder, HEAD, accuracy, number=5, training=training)
    return system(folder, "Param_Predict")


def test_a_head_counts_only_if_it_is_not_below_nearest_centroid_on_its_features(tmp_path: Path) -> None:
    for number, (accuracy, kind) in enumerate(((0.9, "above"), (0.4, "not comparable"))):
        folder = tmp_path / str(number)
        made = encoder(folder, 0.6)
        cell = head(folder, accuracy, made.run_id)
        gap = against_centroid(cell)
        assert gap is not None and gap.paired and (gap.mean > gap.interval) == (kind == "above")
        assert verdict(cell).kind == kind
    assert verdict(cell).words.startswith("not comparable: below nearest centroid on its features (-")


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"iterations": 15_000, "seconds": 60.0, "best_iteration": 10_000}},
        {"ask": {"views": 2}, "trained_by": "20260101-000001-aaaaaa"},
        {"ask": {"n_sequences": 100}},
    ],
)
def test_a_head_whose_nearest_centroid_is_not_recorded_cannot_be_told(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Other weights of the encoder, pictures seen otherwise, or other tasks."""
    made = encoder(tmp_path, 0.2, **changes)
    found = verdict(head(tmp_path, 0.6, changes.get("trained_by", made.run_id)))
    assert found.kind == "open" and found.words.startswith("cannot be told: nearest centroid")


@pytest.mark.parametrize(("taken", "kind"), [("feed0001", "not comparable"), ("feed0002", "open")])
def test_a_head_that_saw_images_is_set_beside_its_encoder_by_the_digest_of_the_weights(
    tmp_path: Path, taken: str, kind: str
) -> None:
    """No features name the encoder: the record says which weights it took over, and they were kept as they were."""
    stage_one = {"iterations": 15_000, "seconds": 60.0, "best_iteration": 12_500, "weights": "feed0001"}
    encoder(tmp_path, 0.9, training=stage_one)
    own = {"iterations": 3000, "seconds": 60.0, "weights": "feed0003"}
    add_record(tmp_path, HEAD, 0.5, number=5, training=own, start={"weights": taken})
    assert verdict(system(tmp_path, "Param_Predict")).kind == kind


@pytest.mark.parametrize(("best", "kind"), [(500, "not comparable"), (1000, "not comparable"), (1500, "within")])
def test_weights_kept_from_before_the_encoder_was_let_go_are_a_head_over_it(
    tmp_path: Path, best: int, kind: str
) -> None:
    """It waited for the head until step 1,000, where it had 60 % on validation classes."""
    name = "tadam/mini_5w1s_distilled"
    asked = replace(load_recipe("stage_one/mini_resnet12_film_distilled"), test=load_recipe(name).test)
    stage_one = {"iterations": 10_000, "seconds": 60.0, "best_iteration": 10_000, "weights": "feed0001"}
    add_record(tmp_path, asked, 0.9, number=1, training=stage_one, start={"teacher": "feed0000"})
    curves = {"iteration": [500, 1000, 1500], "validation_accuracy": [0.59, 0.60000001, 0.61]}
    own = {"iterations": 3000, "seconds": 60.0, "frozen_accuracy": 0.6, "best_iteration": best}
    add_record(tmp_path, name, 0.58, number=5, training=own, curves=curves, start={"weights": "feed0001"})
    assert verdict(system(tmp_path, "TADAM")).kind == kind


def test_a_run_that_alone_was_trained_as_published_is_set_beside_the_figure(tmp_path: Path) -> None:
    add_record(tmp_path, "relation_net/mini_5w1s_short", 0.2, number=1)
    assert verdict(system(tmp_path, "Relation Net")).kind == "not comparable"
    together = {"batch_norm": "task"}
    add_record(tmp_path, "relation_net/mini_5w1s_reference", 0.9, ask=together, number=2, training={"iterations": 9})
    cell = system(tmp_path, "Relation Net")
    assert cell.recipe is not None and cell.recipe.name == "relation_net/mini_5w1s_short"  # what other tables show
    like = like_paper(cell)
    assert like.recipe is not None and like.recipe.name == "relation_net/mini_5w1s_reference"
    assert like.clean == cell.clean and verdict(cell).kind == "above"
