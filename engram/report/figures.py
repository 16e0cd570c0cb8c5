"""Figures as SVG strings: accuracy along a stream, validation over training, reliability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from engram.errors import EngramError
from engram.report.lines import draw_line, in_percent, name_lines, panels
from engram.report.svg import INK, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg

PANEL = 195
"""height of a panel's axes, about, in pixels"""


@dataclass(frozen=True)
class PositionCurve:
    """Accuracy at each position of a stream, or over training, with the half-width of its interval."""

    label: str
    accuracy: Sequence[float]
    interval: Sequence[float]
    at: Sequence[float] = ()
    """iterations of training; () = positions 1, 2, ... of a stream"""


@dataclass(frozen=True)
class ReliabilityCurve:
    """Mean confidence and accuracy of each bin; None or NaN where a bin is empty. ``weight`` is a count or a share."""

    label: str
    confidence: Sequence[float | None]
    accuracy: Sequence[float | None]
    weight: Sequence[float | None]
    ece: float


def accuracy_by_position(curves: Sequence[PositionCurve]) -> str:
    """Accuracy of the first, second, ... task of a stream, a band for each 95 % interval."""
    return _curves(curves, "task in the stream", "accuracy", "Accuracy by position in the stream")


def validation_curves(curves: Sequence[PositionCurve], y_label: str = "validation accuracy") -> str:
    """Validation accuracy over training, of nodes or of edges."""
    return _curves(curves, "training iteration", y_label, f"{y_label.capitalize()} over training")


def _curves(curves: Sequence[PositionCurve], x_label: str, y_label: str, what: str) -> str:
    if not curves:
        raise EngramError(f"{what.lower()}: there is no curve to draw; give at least one")
    groups = panels(curves)
    figure = new_figure(620, 60 + 210 * len(groups))
    for axes, group in zip(figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0], groups, strict=True):
        style_axes(axes, x_label if group is groups[-1] else "", y_label)
        for curve in group:
            x = np.array(curve.at, float) if len(curve.at) else np.arange(1, len(curve.accuracy) + 1)
            accuracy, interval = np.asarray(curve.accuracy, float), np.asarray(curve.interval, float)
            if not len(x) == len(accuracy) == len(interval):
                raise EngramError(
                    f"{what.lower()}, '{curve.label}': {len(x)} positions, {len(accuracy)} accuracies and "
                    f"{len(interval)} intervals; they must be as many"
                )
            draw_line(axes, curve.label, x, accuracy, interval)
        in_percent(axes)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axes.margins(x=0.03)
    for axes in figure.axes:  # when the axes that are shared know their ends
        name_lines(axes, PANEL)
    return to_svg(figure, f"{what}: {', '.join(c.label for c in curves)}")


def reliability_diagram(curve: ReliabilityCurve) -> str:
    """Accuracy against confidence, and below it how many answers had that confidence."""
    confidence, accuracy, weight = (
        np.array([np.nan if v is None else v for v in values], float)
        for values in (curve.confidence, curve.accuracy, curve.weight)
    )
    if not len(confidence) == len(accuracy) == len(weight) > 0:
        raise EngramError(
            f"reliability of '{curve.label}': {len(confidence)} confidences, {len(accuracy)} accuracies and "
            f"{len(weight)} weights; they must be as many and at least 1"
        )
    weight = np.nan_to_num(weight)
    filled = (weight > 0) & np.isfinite(confidence) & np.isfinite(accuracy)
    share = weight / max(float(weight.sum()), 1e-12)
    figure = new_figure(290, 330)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    style_axes(upper, "", "accuracy")
    style_axes(lower, "confidence", "answers")
    upper.plot([0, 1], [0, 1], color=INK, alpha=0.55, linewidth=1.0, linestyle=(0, (4, 3)))
    upper.vlines(confidence[filled], confidence[filled], accuracy[filled], color=SERIES[1], linewidth=2.2, alpha=0.8)
    upper.plot(confidence[filled], accuracy[filled], color=SERIES[0], linewidth=1.6, marker="o", markersize=4.5)
    upper.text(0.02, 0.98, f"ECE {curve.ece:.3f}", color=INK, va="top", weight="bold", fontsize=TEXT_SIZE)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.03, 1.03))
    width = 1 / len(weight)
    lower.bar((np.arange(len(weight)) + 0.5) * width, share, width=width * 0.86, color=SERIES[0], alpha=0.75)
    lower.yaxis.set_major_locator(MaxNLocator(2))
    for axis in (upper.xaxis, upper.yaxis, lower.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
    figure.suptitle(curve.label, color=INK, fontsize=TEXT_SIZE)
    return to_svg(figure, f"Reliability of {curve.label}: expected calibration error {curve.ece:.3f}")
