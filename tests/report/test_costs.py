"""Cost of a step, and an audit lent by an alike recipe."""

from __future__ import annotations

from pathlib import Path

from study_ledger import add_record, cells_of

from engram.ledger import Ledger, trusted_records
from engram.report.audits import verdict_text
from engram.report.costs import alike_audit, cost_texts, costs_table
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
