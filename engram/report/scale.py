"""Several processes and several runs, as benchmarks measured them; and from measured parts what larger data would cost.

``<!-- scale:begin NAME -->`` takes equality, processes or packing (the newest of each device and recipe) or estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.ledger import RunRecord
from engram.report.measured import BUSY, NOT_MEASURED, files_of
from engram.report.table import Column, Table

SECTIONS = ("equality", "processes", "packing", "estimate")
RECIPE = "stage_one/mini_resnet12_wide"
"""whose steps and gradients the estimate is made of"""
BATCH, PASSES = 256, 100
"""images of a step on each GPU; passes over the data, as the recipe makes over miniImageNet"""
SIDE = 84
"""of the images that were measured"""
CARD_BYTES, MACHINE = 141e9, 8
"""memory of a GPU (H200); GPUs of a machine"""
INSIDE, BETWEEN, HOP = 450e9, 50e9, 10e-6
"""bytes a second of each GPU and direction, as published: NVLink of Hopper (900 GB/s both ways), InfiniBand at 400
Gbit/s; and seconds for each hop of a message, an assumption"""
DATA = (
    ("tieredImageNet, 84 x 84", 448_695, 84),
    ("ImageNet-1k, 84 x 84", 1_281_167, 84),
    ("ImageNet-1k, 224 x 224", 1_281_167, 224),
)
GPUS = (1, 8, 64)


@dataclass(frozen=True)
class Parts:
    """What was measured of one process."""

    images_per_s: float
    """of a whole step on one GPU, its images on the card"""
    gradient_bytes: float
    input_bytes_per_s: float
    """gathered by one process from a store in memory"""


@dataclass(frozen=True)
class Cost:
    """Of one step of all GPUs together, in seconds, and of the whole training."""

    step: float
    """arithmetic of a GPU"""
    reduce: float
    input: float
    hours: float
    limit: str
    """step, all-reduce or input"""


def cost(parts: Parts, images: int, side: int, gpus: int) -> Cost:
    """A step waits for its arithmetic and then for the all-reduce, while the next images are read:

        t = max(input, step + reduce),   reduce = 2 (N - 1) (gradients / (N bandwidth) + hop)

    a ring of N GPUs, at the speed of its slowest link. Arithmetic grows with the pixels. Images that fit the card come
    from there, at no cost but that of the measured step.
    """
    step = BATCH / parts.images_per_s * (side / SIDE) ** 2
    bandwidth = INSIDE if gpus <= MACHINE else BETWEEN
    reduce = 2 * (gpus - 1) * (parts.gradient_bytes / (gpus * bandwidth) + HOP)
    size = 3 * side**2
    fits = images * size < 0.5 * CARD_BYTES
    read = 0.0 if fits else BATCH * size / parts.input_bytes_per_s
    whole = max(read, step + reduce)
    limit = "input" if read > step + reduce else "all-reduce" if reduce > step else "step"
    return Cost(step, reduce, read, PASSES * images / (BATCH * gpus) * whole / 3600, limit)


def reduce_bound(parts: Parts) -> int:
    """From how many GPUs on the all-reduce takes longer than a GPU's part of one batch of `BATCH` images."""
    found = (gpus for gpus in range(2, BATCH + 1) if (c := cost(parts, 1, SIDE, gpus)).reduce > c.step / gpus)
    return next(found, BATCH)


def parts_of(records: Sequence[RunRecord], folder: Path) -> Parts | None:
    """From the newest fast step of the recipe on a GPU, a run's parameters, and how fast images are gathered."""
    steps = [c for c, _ in files_of(folder, f"train_step.{RECIPE.replace('/', '.')}.cuda.*.json")]
    fast = [c["rates"]["base_images_per_s"] for c in steps if not c["setting"]["plain"]]
    sizes = [r.training["parameters"] for r in records if r.recipe_name == RECIPE and r.training.get("parameters")]
    gathered = [c for c, _ in files_of(folder, "data.glyphs.*.json")]
    if not fast or not sizes or not gathered:
        return None
    seen = gathered[-1]["setting"]["tasks"] * gathered[-1]["setting"]["images_per_task"] * 28**2
    return Parts(fast[-1], 4.0 * sizes[-1], 1000 * seen / gathered[-1]["parts_ms"]["gathering"])


def scale_section(name: str, records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    if name == "estimate":
        parts = parts_of(records, folder)
        return estimate_table(parts).markdown() if parts else NOT_MEASURED
    newest = {}
    for content, file in files_of(folder, f"{name}.*.json"):
        recipes = sorted({case.get("recipe", "") for case in content["cases"]})
        newest[content["device"], -content["setting"].get("runs", 0), *recipes] = content, file
    table = {"equality": _equality, "processes": _processes, "packing": _packing}[name]
    written = []
    for (device, *_), (content, file) in sorted(newest.items()):
        load = content.get("load_average", 0.0)
        busy = f", load average {load:.1f}" if load > BUSY and name != "equality" else ""
        asked = "{runs} trainings of `{recipe}`, {iterations} steps, " if name == "packing" else ""
        source = f"[{file}]({runs.removesuffix('runs')}speed/{file})"
        told = f"{asked.format(**content['setting'])}{device}{busy}: {source}"
        written.append(f"{table(content['cases']).markdown()}\n\n{told}")
    return "\n\n".join(written) or NOT_MEASURED


def estimate_table(parts: Parts) -> Table[Any]:
    rows = [(data, gpus, cost(parts, images, side, gpus)) for data, images, side in DATA for gpus in GPUS]
    columns: tuple[Column[tuple[str, int, Cost]], ...] = (
        Column("Stage one on", lambda row: row[0]),
        Column("GPUs", lambda row: str(row[1]), right=True),
        Column("Step, ms", lambda row: f"{1000 * row[2].step:.1f}", right=True),
        Column("All-reduce, ms", lambda row: f"{1000 * row[2].reduce:.2f}", right=True),
        Column("Input, ms", lambda row: f"{1000 * row[2].input:.1f}" if row[2].input else "on the card", right=True),
        Column("Hours", lambda row: f"{row[2].hours:,.2f}", right=True),
        Column("GPU-hours", lambda row: f"{row[1] * row[2].hours:,.1f}", right=True),
        Column("Limit", lambda row: row[2].limit),
    )
    note = (
        f"`{RECIPE}`: {PASSES} passes, {BATCH} images of each GPU in a step. Measured: {parts.images_per_s:,.0f} "
        f"images a second on one H200, {parts.gradient_bytes / 1e6:.1f} MB of gradients, "
        f"{parts.input_bytes_per_s / 1e9:.1f} GB/s gathered by a process. Assumed, as published: {INSIDE / 1e9:.0f} "
        f"GB/s between GPUs of a machine, {BETWEEN / 1e9:.0f} GB/s between machines of {MACHINE}; {1e6 * HOP:.0f} "
        f"µs for a hop. With {BATCH} images for all GPUs together, as the recipe has it, the all-reduce is the limit "
        f"from {reduce_bound(parts)} GPUs on."
    )
    return Table(columns, rows, note=note)


Case = Mapping[str, Any]


def _equality(cases: Sequence[Case]) -> Table[Case]:
    def count(number: str) -> Column[Case]:
        return Column(f"{number} processes", lambda case: f"{case['difference'][number]:.1e}")

    columns: tuple[Column[Case], ...] = (
        Column("Method", lambda case: f"`{case['method']}`"),
        Column("Its norms", lambda case: case["norms"]),
        Column("Steps", lambda case: str(case["steps"]), right=True),
        *map(count, cases[0]["difference"]),
    )
    return Table(columns, cases)


def _processes(cases: Sequence[Case]) -> Table[Case]:
    """A row for each recipe and way to make steps: their times, and the differences under each kind of norms."""
    rows = [case for case in cases if "two_ms" in case]

    def differences(row: Case) -> str:
        same = [c for c in cases if "norms" in c and (c["recipe"], c["how"]) == (row["recipe"], row["how"])]
        return ", ".join(f"{c['difference']:.1e} ({c['norms']} norms)" for c in same)

    def milliseconds(name: str, key: str) -> Column[Case]:
        return Column(name, lambda row: f"{row[key]:,.2f}", right=True)

    columns: tuple[Column[Case], ...] = (
        Column("Recipe", lambda row: f"`{row['recipe']}`"),
        Column("Steps", lambda row: "captured" if row["captured"] else "eager"),
        Column("Largest difference of weights", differences),
        milliseconds("One process, ms", "one_ms"),
        milliseconds("One, half the batch, ms", "half_ms"),
        milliseconds("All-reduce, ms", "message_ms"),
        milliseconds("Expected of two, ms", "expected_ms"),
        milliseconds("Two processes, ms", "two_ms"),
    )
    return Table(columns, rows)


def _packing(cases: Sequence[Case]) -> Table[Case]:
    columns: tuple[Column[Case], ...] = (
        Column("Trainings", lambda case: case["way"]),
        Column("Seconds", lambda case: f"{case['seconds']:.1f}", right=True),
        Column("Times sooner", lambda case: f"{case['times_sooner']:.2f}", right=True),
        Column("Largest difference of a loss", lambda case: f"{case['loss_difference']:.1e}"),
        Column("Of an accuracy", lambda case: f"{case['accuracy_difference']:.1e}"),
    )
    return Table(columns, cases)
