"""What benchmarks measured: files of results/speed, and pairs of runs, as tables.

``<!-- speed:begin NAME -->`` takes steps, growth, evaluation, store (the newest file of a recipe on a device counts),
memory, or paths: the fast and the plain path of training, one minus the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engram.errors import EngramWarning
from engram.files import read_json
from engram.ledger import RunRecord
from engram.report.table import Column, Table
from engram.report.trials import paths_table

SPEED = {
    "steps": ("train_step", "step_total_ms"),
    "growth": ("train_step", "growth"),
    "evaluation": ("evaluation", "rates"),
    "store": ("store_disk", "rates"),
    "memory": ("memory_size", "rates"),
    "paths": ("", ""),
}
"""section -> its benchmark, and what a file must hold"""
NOT_MEASURED = "Not measured yet."
BUSY = 1.5
"""load average above which a table says so"""
PARTS = ("drawing", "augmentation", "encoder forward", "method and loss forward", "backward", "optimiser")
AXES = ("ways", "shots", "queries", "T", "image size")
MEMORIES = ("proto_memory", "knn_memory")
"""one engine for each way to read a large memory: class means, nearest entries"""


def files_of(folder: Path, pattern: str) -> list[tuple[dict[str, Any], str]]:
    """Contents and names, the last measured last; a file that is no measurement is named and left out."""
    files = []
    for path in folder.glob(pattern):
        try:
            content = read_json(path)
            if not isinstance(content, dict) or not isinstance(content.get("measured"), str):
                raise ValueError("it does not say when it was measured")
            files.append((content, path.name))
        except (OSError, ValueError) as error:
            warnings.warn(f"not in the tables: {path} is no measurement ({error})", EngramWarning, stacklevel=1)
    return sorted(files, key=lambda pair: (pair[0]["measured"], pair[1]))


def newest_section(folder: Path, pattern: str, link: str, table: Callable[[dict[str, Any]], Table[Any]]) -> str:
    """The newest measurement as a table, with a link to its file."""
    if not (files := files_of(folder, pattern)):
        return NOT_MEASURED
    content, file = files[-1]
    return f"{table(content).markdown()}\n\nMeasured {content['measured'][:10]}: [{file}]({link}/{file})"


@dataclass(frozen=True)
class Measured:
    """One file of results/speed, or one row of it."""

    link: str
    """to the file, with the day as its text"""
    content: Mapping[str, Any]
    row: str = ""
    """where a file has several: what grows, or whose steps"""

    @property
    def setting(self) -> Mapping[str, Any]:
        return self.content["setting"]

    @property
    def recipe(self) -> str:
        return f"`{self.setting.get('recipe', self.row)}`{', plain' if self.setting.get('plain') is True else ''}"

    @property
    def device(self) -> str:
        load = self.content.get("load_average", 0.0)
        return f"{self.content['device']}{f', load average {load:.1f}' if load > BUSY else ''}"

    @property
    def near(self) -> str:
        """How much of a store was on the device, where the rest was on disk; "" where that was not tried."""
        return str(self.setting.get("near", ""))

    @property
    def grown(self) -> Mapping[str, Any]:
        return self.content["growth"][self.row]

    def rate(self, name: str, digits: int) -> str:
        return _number(self.content["rates"].get(name), digits)

    def stored(self, where: str, name: str, digits: int) -> str:
        """With the store on ``disk``, a part of it ``near``, or in ``memory``."""
        return _number(self.setting["recipes"][self.row].get(where, {}).get(name), digits)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _part(name: str) -> Column[Measured]:
    return Column(name.capitalize(), lambda m: f"{m.content['parts_ms'][name]:,.2f}", right=True, places=("parts",))


STEPS, GROWTH, EVALUATION, DIVIDED = ("steps",), ("growth",), ("evaluation",), ("parts",)
SPEED_COLUMNS: tuple[Column[Measured], ...] = (
    Column("Parts, ms", lambda m: m.recipe, places=DIVIDED),
    Column("Recipe", lambda m: m.recipe, places=(*STEPS, *GROWTH, *EVALUATION)),
    Column("Device", lambda m: m.device),
    Column("Whole step, ms", lambda m: f"{m.content['step_total_ms']:,.2f}", right=True, places=STEPS),
    Column("Tasks/s", lambda m: m.rate("tasks_per_s", 0), right=True, places=STEPS),
    Column("Peak memory, MiB", lambda m: m.rate("peak_memory_mib", 0), right=True, places=STEPS),
    Column("Roofline, ms", lambda m: m.rate("roofline_ms", 2), right=True, places=STEPS),
    Column("Step / roofline", lambda m: m.rate("ratio_to_roofline", 2), right=True, places=STEPS),
    Column("Public loop / step", lambda m: m.rate("times_faster_than_public_loop", 1), right=True, places=STEPS),
    *map(_part, PARTS),
    Column("What grows", lambda m: m.row, places=GROWTH),
    Column("Sizes", lambda m: ", ".join(map(str, m.grown["sizes"])), places=GROWTH),
    Column("Whole step, ms", lambda m: ", ".join(f"{c:,.1f}" for c in m.grown["step_total_ms"]), places=GROWTH),
    Column("Slope", lambda m: _number(m.grown["slope"], 2), places=GROWTH),
    Column("From", lambda m: m.setting["asked"], places=EVALUATION),
    Column("Tasks", lambda m: f"{m.setting['tasks']:,}", places=EVALUATION),
    Column("Seconds", lambda m: m.rate("seconds", 2), places=EVALUATION),
    Column("Tasks/s", lambda m: m.rate("tasks_per_s", 0), places=EVALUATION),
    Column("Measured", lambda m: m.link, places=(*STEPS, *GROWTH, *EVALUATION)),
)


STORE_COLUMNS: tuple[Column[Measured], ...] = (
    Column("Recipe", lambda m: m.recipe),
    Column("Device", lambda m: m.content["device"]),
    Column("Step in memory, ms", lambda m: m.stored("memory", "step_ms", 2), right=True),
    Column("From disk, ms", lambda m: m.stored("disk", "step_ms", 2), right=True),
    Column("Disk / memory", lambda m: m.rate(f"{m.row}, disk / memory", 2), right=True),
    Column("Near", lambda m: m.near, right=True),
    Column("Partly near, ms", lambda m: m.stored("near", "step_ms", 2), right=True),
    Column("Partly near / memory", lambda m: m.rate(f"{m.row}, near / memory", 2), right=True),
    Column("Images of a step", lambda m: m.stored("disk", "images_per_step", 0), right=True),
    Column("Steps", lambda m: m.stored("disk", "steps", 0), right=True),
    Column("Read from disk, GB", lambda m: m.stored("disk", "read_gb", 2), right=True),
    Column("Read, partly near, GB", lambda m: m.stored("near", "read_gb", 2), right=True),
    Column("Resident, MiB", lambda m: m.stored("disk", "resident_mib", 0), right=True),
    Column("Measured", lambda m: m.link),
)


def speed_section(name: str, records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """The newest measurements as a table, each with a link to its file; whole steps are followed by their parts."""
    link = f"{runs.removesuffix('runs')}speed"
    if name == "paths":
        return paths_table(records, runs, folder.parent / "runs").markdown() or NOT_MEASURED
    if name == "memory":
        return newest_section(folder, "memory_size.*.json", link, memory_table)
    found = _newest(folder, link, *SPEED[name])
    if name == "store":
        found = _stores(found)
        rows = [replace(m, row=recipe) for m in found for recipe in m.setting["recipes"]]
        return "\n\n".join((Table(STORE_COLUMNS, rows, empty=NOT_MEASURED).markdown(), *map(_of_store, found)))
    rows = [replace(m, row=axis) for m in found for axis in AXES] if name == "growth" else found
    tables = [Table(SPEED_COLUMNS, rows, name, empty=NOT_MEASURED)]
    if name == "steps":
        tables.append(Table(SPEED_COLUMNS, [m for m in found if set(PARTS) <= set(m.content["parts_ms"])], "parts"))
    return "\n\n".join(filter(None, (table.markdown() for table in tables)))


def step_times(folder: Path) -> dict[tuple[str, str], float]:
    """Milliseconds of a step with the device to itself, by digest of the recipe and device: the last measured."""
    found = _newest(folder, "", *SPEED["steps"])
    ours = [m for m in found if not m.setting.get("plain") and "recipe_digest" in m.setting]
    return {(m.setting["recipe_digest"], m.content["device"]): m.content["step_total_ms"] for m in ours}


def _newest(folder: Path, link: str, benchmark: str, needed: str) -> list[Measured]:
    """The last measurement of each recipe on each device; plain steps, features, and each size of what was kept near
    are rows of their own."""
    kept: dict[tuple[str, ...], Measured] = {}
    for content, name in files_of(folder, "*.json"):
        if content.get("benchmark") == benchmark and needed in content:
            measured = Measured(f"[{content['measured'][:10]}]({link}/{name})", content)
            told = (measured.setting.get(key, "") for key in ("asked", "near"))
            kept[(measured.recipe, content["device"], *told)] = measured
    return [kept[key] for key in sorted(kept)]


def _stores(found: Sequence[Measured]) -> list[Measured]:
    """A file for each size that was kept near; one from before there was such, only where no later one replaces it."""
    later = {m.content["device"] for m in found if m.near}
    return [m for m in found if m.near or m.content["device"] not in later]


def _of_store(measured: Measured) -> str:
    rates, setting = measured.content["rates"], measured.setting
    return (
        f"{measured.content['device']}: {setting['n_images']:,} pictures, {setting['store_gb']:.2f} GB, were built in "
        f"{rates['build_s']:.0f} s with {rates['build_resident_mib']:,.0f} MiB resident and opened in "
        f"{rates['open_s']:.3f} s. The disk alone gave {rates['disk_alone_gb_per_s']:.2f} GB/s of single pictures. "
        f"{f'Near: {measured.near} of the store on the device, the rest on disk. ' if measured.near else ''}"
        f"Load average before: {measured.content['load_average']:.1f}."
    )


def memory_table(content: dict[str, Any]) -> Table[Any]:
    """A memory by the number of its pictures: what it costs and, beside looking at all of them, how well it answers."""
    rates, setting = content["rates"], content["setting"]
    sizes = sorted({int(key.split(", ")[-1].split()[0]) for key in rates})

    def measured(name: str, key: str, digits: int) -> Column[int]:
        return Column(name, lambda size: f"{rates[f'{key}, {size} pictures']:,.{digits}f}")

    columns = (
        Column[int]("Pictures", lambda size: f"{size:,}"),
        measured("Open, s", "open_s", 2),
        measured("Answer by class means, ms", "answer_ms, proto_memory", 0),
        measured("Answer by nearest, ms", "answer_ms, knn_memory", 0),
        measured("Add 1,000, s", "add_1000_s", 2),
        measured("Build the index, s", "index_s", 1),
        measured("Resident memory, MiB", "resident_mib", 0),
    )

    def right(engine: str) -> str:
        exact, read = (rates[f"{how}, {engine}, 10000 pictures"] for how in ("exact", "read"))
        return f"`{engine}` {exact:.1f} % and {read:.1f} %"

    note = (
        f"Simulated pictures of {setting['width']:,} numbers in {setting['classes']} classes; {content['device']}, one "
        f"query, without its encoding. Right answers at 10,000, with all of them looked at and as above that number: "
        f"{', '.join(map(right, MEMORIES))}."
    )
    return Table(columns, sizes, note=note)
