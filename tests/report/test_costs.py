"""Cost of a step, an audit lent by an alike recipe, and the figure whose labels cover nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study_ledger import add_record, cells_of
from svg_words import texts

from engram.ledger import Ledger, trusted_records
from engram.report.audits import verdict_text
from engram.report.costs import (
    POINT,
    CostPoint,
    alike_audit,
    cost_figure,
    cost_points,
    cost_texts,
    costs_table,
    place_labels,
)
from engram.studies import load_study


def test_a_step_measured_alone_stands_for_that_of_the_run(tmp_path: Path) -> None:
    training = {"iterations": 1000, "seconds": 60.0, "validation_seconds": 10.0}
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, training=training)
    record = trusted_records(tmp_path)[0][0]
    alone = {(record.recipe_digest, record.device): 6.92}
    for steps, told in (({}, "| ~50.0 |"), (alone, "| 6.9 |"), ({("another", record.device): 1.0}, "| ~50.0 |")):
        cells = cells_of(tmp_path, "table1")
        assert told in costs_table(load_study("table1"), cells, Ledger([record]), steps)


def test_milliseconds_of_a_cpu_are_marked() -> None:
    trained = {"iterations": 100, "seconds": 30.0, "validation_seconds": 10.0}
    assert cost_texts(trained, None, "cpu, 1 threads") == ("~200.0 (cpu)", "0.5")
    assert cost_texts(trained, 20.0, "NVIDIA H200") == ("20.0", "0.5")
    assert cost_texts({}, None, "cpu, 1 threads") == ("", "")


def test_an_audit_is_lent_within_one_regime_only(tmp_path: Path) -> None:
    add_record(tmp_path, "relation_net/mini_5w1s", 0.5, number=1)
    found = [{"probe": "company", "verdict": "declared"}, {"probe": "repeat", "verdict": "clean"}]
    reference = add_record(tmp_path, "relation_net/glyphs_reference", kind="audit", number=2, audit=found)
    recipe = cells_of(tmp_path, "table1")["Relation Net", "1-shot"].recipe
    assert recipe is not None
    assert verdict_text(reference) == "clean, declared: company"
    assert alike_audit(recipe, Ledger([reference])) is None  # its queries are normalised together
    own = add_record(tmp_path, "relation_net/glyphs_quick", kind="audit", number=3, audit=found[1:])
    assert alike_audit(recipe, Ledger([reference, own])) == own and verdict_text(own) == "clean"


def test_costs_are_ordered_by_minutes_and_mark_class_order(tmp_path: Path) -> None:
    ordered = "cml_bgnn/mini_5w1s_public_class_order"
    add_record(tmp_path, ordered, 0.9, number=1, training={"iterations": 70000, "seconds": 600.0})
    add_record(tmp_path, "egnn/mini_5w1s", 0.5, number=2, training={"iterations": 100000, "seconds": 120.0})
    cells = cells_of(tmp_path, "table1")
    points = cost_points([cells[row, "1-shot"] for row in ("CML-BGNN, class order", "EGNN†")])
    assert [(p.label, p.minutes, p.marked) for p in points] == [
        ("EGNN†", 2.0, False),
        ("CML-BGNN, class order", 10.0, True),
    ]


def test_the_cost_figure_numbers_its_points_and_ticks_minutes() -> None:
    points = [
        CostPoint(f"system {n}", minutes, 0.5 + 0.1 * n, 0.01, n == 2) for n, minutes in enumerate((2.0, 9.0, 40.0))
    ]
    drawing = cost_figure(points)
    assert texts(drawing)[-3:] == ["1", "2", "3"] and {"2", "5", "10", "20", "50"} <= set(texts(drawing))
    assert "--series-2" in drawing and "--series-2" not in cost_figure(points[:2])


@pytest.mark.parametrize("seed", range(6))
def test_no_label_covers_another_or_a_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.uniform(0, 350, (12, 2)), 175 + rng.normal(0, 25, (12, 2))])
    sizes = [(15.0, 10.0)] * len(points)
    centres = place_labels(points, sizes)
    boxes = [(c, (7.5, 5.0)) for c in centres] + [(p, (POINT, POINT)) for p in points]
    for n, (centre, half) in enumerate(boxes[: len(points)]):
        for m, (other, other_half) in enumerate(boxes):
            if n != m:
                apart = np.abs(centre - other) >= np.add(half, other_half) - 1e-9
                assert apart.any(), (seed, n, m)
    assert np.abs(centres - points).max() < 70
