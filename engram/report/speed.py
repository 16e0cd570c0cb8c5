"""Speed: what `benchmarks/train_step.py` and `benchmarks/evaluation.py` measured, as tables.

``<!-- speed:begin NAME -->`` takes steps, growth, evaluation or paths. The newest file of results/speed counts for
a recipe on a device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.errors import EngramError, nearest
from engram.ledger import RunRecord
from engram.report.columns import markdown_table
from engram.report.paths import paths_table

NAMES = ("steps", "growth", "evaluation", "paths")
NOT_MEASURED = "Not measured yet."
BUSY = 1.5
"""load average above which a table says so"""
PARTS = ("drawing", "augmentation", "encoder forward", "method and loss forward", "backward", "optimiser")
AXES = ("ways", "shots", "queries", "T", "image size")
STEP_HEADER = (
    "Recipe",
    "Device",
    "Whole step, ms",
    "Tasks/s",
    "Peak memory, MiB",
    "Roofline, ms",
    "Step / roofline",
    "Public loop / step",
    "Measured",
)


@dataclass(frozen=True)
class Measured:
    """One file of results/speed."""

    link: str
    """to the file, with the day as its text"""
    content: Mapping[str, Any]

    @property
    def setting(self) -> Mapping[str, Any]:
        return self.content["setting"]

    @property
    def labels(self) -> list[str]:
        """Recipe and device as a table names them."""
        plain = ", plain" if self.setting.get("plain") is True else ""
        load = self.content.get("load_average", 0.0)
        busy = f", load average {load:.1f}" if load > BUSY else ""
        return [f"`{self.setting['recipe']}`{plain}", f"{self.content['device']}{busy}"]

    def rate(self, name: str, digits: int) -> str:
        value = self.content["rates"].get(name)
        return "" if value is None else f"{value:,.{digits}f}"


def check_speed_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    if name not in NAMES:
        raise EngramError(f"{where}: there is no section of speed '{name}'{nearest(name, NAMES)}")


def speed_section(name: str, records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """The newest measurements as a table, each with a link to its file."""
    if name == "paths":
        return paths_table(records, runs, folder.parent / "runs") or NOT_MEASURED
    write, benchmark, needed = {
        "steps": (_steps, "train_step", "step_total_ms"),
        "growth": (_growth, "train_step", "growth"),
        "evaluation": (_evaluation, "evaluation", "rates"),
    }[name]
    found = _newest(folder, f"{runs.removesuffix('runs')}speed", benchmark, needed)
    return write(found) if found else NOT_MEASURED


def step_times(folder: Path) -> dict[tuple[str, str], float]:
    """Milliseconds of a step with the device to itself, by digest of the recipe and device: the last measured."""
    found = _newest(folder, "", "train_step", "step_total_ms")
    ours = [m for m in found if not m.setting.get("plain") and "recipe_digest" in m.setting]
    return {(m.setting["recipe_digest"], m.content["device"]): m.content["step_total_ms"] for m in ours}


def _newest(folder: Path, link: str, benchmark: str, needed: str) -> list[Measured]:
    """The last measurement of each recipe on each device; plain steps and features are rows of their own."""
    files = [(json.loads(path.read_text()), path.name) for path in folder.glob("*.json")]
    kept: dict[tuple[str, ...], Measured] = {}
    for content, name in sorted(files, key=lambda pair: (pair[0]["measured"], pair[1])):
        if content["benchmark"] == benchmark and needed in content:
            measured = Measured(f"[{content['measured'][:10]}]({link}/{name})", content)
            kept[(measured.labels[0], content["device"], measured.setting.get("asked", ""))] = measured
    return [kept[key] for key in sorted(kept)]


def _steps(found: Sequence[Measured]) -> str:
    """Whole steps, then their parts."""
    rows = [
        [
            *m.labels,
            f"{m.content['step_total_ms']:,.2f}",
            m.rate("tasks_per_s", 0),
            m.rate("peak_memory_mib", 0),
            m.rate("roofline_ms", 2),
            m.rate("ratio_to_roofline", 2),
            m.rate("times_faster_than_public_loop", 1),
            m.link,
        ]
        for m in found
    ]
    whole = markdown_table(STEP_HEADER, rows, right=range(2, 8))
    divided = [m for m in found if set(PARTS) <= set(m.content["parts_ms"])]
    if not divided:
        return whole
    cells = [[*m.labels, *(f"{m.content['parts_ms'][name]:,.2f}" for name in PARTS)] for m in divided]
    header = ["Parts, ms", "Device", *(name.capitalize() for name in PARTS)]
    return f"{whole}\n\n{markdown_table(header, cells, right=range(2, len(header)))}"


def _growth(found: Sequence[Measured]) -> str:
    rows = []
    for m in found:
        for axis in AXES:
            grown = m.content["growth"][axis]
            sizes = ", ".join(str(size) for size in grown["sizes"])
            costs = ", ".join(f"{cost:,.1f}" for cost in grown["step_total_ms"])
            told = "" if grown["slope"] is None else f"{grown['slope']:.2f}"
            rows.append([*m.labels, axis, sizes, costs, told, m.link])
    return markdown_table(["Recipe", "Device", "What grows", "Sizes", "Whole step, ms", "Slope", "Measured"], rows)


def _evaluation(found: Sequence[Measured]) -> str:
    rows = [
        [
            *m.labels,
            m.setting["asked"],
            f"{m.setting['tasks']:,}",
            m.rate("seconds", 2),
            m.rate("tasks_per_s", 0),
            m.link,
        ]
        for m in found
    ]
    return markdown_table(["Recipe", "Device", "From", "Tasks", "Seconds", "Tasks/s", "Measured"], rows)
