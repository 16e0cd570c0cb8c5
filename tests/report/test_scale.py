"""What larger data would cost, by hand for simple numbers, and tables of what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engram.report.scale import BATCH, BETWEEN, HOP, INSIDE, PASSES, Parts, cost, reduce_bound, scale_section

PARTS = Parts(images_per_s=1000 * BATCH, gradient_bytes=45e6, input_bytes_per_s=1e12)
"""a step of a millisecond"""


def test_one_gpu_waits_for_its_arithmetic_alone() -> None:
    one = cost(PARTS, BATCH * 3600, 84, 1)
    assert (one.step, one.reduce, one.input) == (pytest.approx(1e-3), 0.0, 0.0)
    assert one.hours == pytest.approx(PASSES * 1e-3) and one.limit == "step"
    assert cost(PARTS, BATCH * 3600, 168, 1).step == pytest.approx(4e-3), "four times the pixels"


def test_the_all_reduce_is_a_ring_over_the_slowest_link() -> None:
    inside, between = (cost(PARTS, BATCH * 3600, 84, gpus) for gpus in (8, 64))
    assert inside.reduce == pytest.approx(2 * 7 * (45e6 / (8 * INSIDE) + HOP))
    assert between.reduce == pytest.approx(2 * 63 * (45e6 / (64 * BETWEEN) + HOP))
    assert (inside.limit, between.limit) == ("step", "all-reduce")
    assert reduce_bound(PARTS) == 5, "from which 8 (9 MB / 450 GB/s + 10 us) is more than a fifth of a millisecond"
    assert inside.hours == pytest.approx(PASSES / 8 * (1e-3 + inside.reduce))


def test_images_that_do_not_fit_the_card_are_read_meanwhile() -> None:
    slow = Parts(PARTS.images_per_s, PARTS.gradient_bytes, 1e9)
    small, large = cost(slow, 1_000_000, 84, 1), cost(slow, 5_000_000, 84, 1)
    assert small.input == 0.0 and large.input == pytest.approx(BATCH * 3 * 84**2 / 1e9)
    assert large.limit == "input" and large.hours == pytest.approx(PASSES * 5_000_000 / BATCH * large.input / 3600)


def write(folder: Path, name: str, cases: list[dict[str, Any]], **changes: Any) -> None:
    content = {"device": "cpu, 1 threads", "measured": "2026-01-01T00:00:00Z", "load_average": 0.2, "cases": cases}
    content |= {"setting": {"runs": 4, "recipe": "maml/x", "iterations": 200}}
    (folder / name).write_text(json.dumps(content | changes))


def test_tables_of_measurements(tmp_path: Path) -> None:
    for name in ("equality", "processes", "packing", "estimate"):
        assert scale_section(name, [], "../results/runs", tmp_path) == "Not measured yet."
    equal = {"method": "maml", "norms": "of each task", "steps": 20, "difference": {"2": 1.9e-16, "4": 1.2e-16}}
    write(tmp_path, "equality.cpu.a.json", [equal])
    table = scale_section("equality", [], "../results/runs", tmp_path)
    assert "| `maml` | of each task | 20 | 1.9e-16 | 1.2e-16 |" in table
    assert table.endswith("cpu, 1 threads: [equality.cpu.a.json](../results/speed/equality.cpu.a.json)")
    same = {"recipe": "proto_net/x", "how": "eager", "captured": False}
    times = {"one_ms": 8.0, "half_ms": 4.0, "message_ms": 1.0, "expected_ms": 5.0, "two_ms": 5.5, "gradient_bytes": 4}
    write(tmp_path, "processes.cpu.a.json", [{**same, "norms": "frozen", "difference": 1e-12}, {**same, **times}])
    row = "| `proto_net/x` | eager | 1.0e-12 (frozen norms) | 8.00 | 4.00 | 1.00 | 5.00 | 5.50 |"
    assert row in scale_section("processes", [], "../results/runs", tmp_path)
    packed = {
        "way": "in turn",
        "seconds": 55.57,
        "times_sooner": 1.0,
        "loss_difference": 0.0,
        "accuracy_difference": 0.0,
    }
    write(tmp_path, "packing.cpu.a.json", [packed], load_average=4.0)
    table = scale_section("packing", [], "../results/runs", tmp_path)
    assert "| in turn | 55.6 | 1.00 | 0.0e+00 | 0.0e+00 |" in table and "load average 4.0" in table
    assert "\n4 trainings of `maml/x`, 200 steps, cpu, 1 threads" in table
