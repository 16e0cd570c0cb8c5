"""Probes that count: noise, order and balance in accuracy, with intervals that hold their level."""

from __future__ import annotations

import numpy as np
import pytest
from planted import STORE, Balanced, BySlot

from engram.probes.asking import ALPHA
from engram.probes.audit import audit
from engram.probes.statistical import half_width


def test_noise_in_class_order_catches_a_guess_by_slot_from_the_first_task_on() -> None:
    report = audit(BySlot(), STORE, stream_length=2, n_sequences=40)
    assert report["noise, class order"].verdict == report["class order minus shuffled"].verdict == "leak"
    assert report["noise, shuffled"].verdict == "clean"


def test_a_prior_of_balance_shows_in_accuracy() -> None:
    report = audit(Balanced(transductive=True), STORE, stream_length=1, n_query=3)
    assert report["class balance"].verdict == "declared" and report["class balance"].effect < 0  # type: ignore[operator]


def test_half_widths_are_students() -> None:
    values = np.random.default_rng(0).normal(size=20)
    standard_error = values.std(ddof=1) / np.sqrt(20)
    assert half_width(values) / standard_error == pytest.approx(3.883, abs=0.01)  # t(0.9995; 19), from a table
    many = np.random.default_rng(0).normal(size=(4000, 30))
    alarms = np.mean([abs(row.mean()) > half_width(row) for row in many])
    assert alarms < 4 * ALPHA
