"""From nothing to a trained, honestly measured model: embedded letters, a few minutes on two cores, no network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from engram.data.datasets import open_split
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.bench import bench
from engram.evaluation.evaluate import Result
from engram.evaluation.picture import episode_arrays
from engram.files import check_overwritable
from engram.ledger import current_commit, new_run_id
from engram.machine.device import choose_device, describe_device
from engram.report.episode import EpisodePicture
from engram.report.figures import PositionCurve, ReliabilityCurve
from engram.report.quickstart import (
    FLOORS,
    RECIPES,
    SETTINGS,
    TITLE,
    QuickstartData,
    QuickstartRow,
    positions_table,
    quickstart_page,
    quickstart_table,
)
from engram.training.experiment import train
from engram.types import Method

REMEMBERS = "Content memory"
NAMED: dict[str, Any] = {"n_way": 20, "n_sequences": 30, "stream_length": 8, "pool_classes": 40, "names": "named"}
STREAM: dict[str, Any] = {"n_way": 5, "n_sequences": 150, "stream_length": 8, "names": "anonymous"}
HOW_TO_READ = (
    "Test letters come from alphabets no model has seen; every task shows one picture per class and asks for one more, "
    "in shuffled order. A difference is real only if it is larger than the intervals; ECE is how far stated confidence "
    "lies from actual accuracy. The paper's history is carried from one place of the list to the same place "
    "in the next task; with queries shuffled it has nothing to remember, and its line does not rise along the stream."
)


def quickstart(out: Path = Path("quickstart"), seconds: float = 45.0, device: str = "cpu", seed: int = 111) -> Path:
    """Train four models for ``seconds`` each, test on unseen alphabets, write ``report.html``; its path comes back."""
    console, clock = Console(), time.monotonic()
    where = choose_device(device)
    if not seconds > 0:  # nan is refused too
        raise EngramError(f"seconds = {seconds} but training needs more than 0")
    file = out / "report.html"
    check_overwritable(file, ".html", f"<title>{TITLE}")
    stores = {split: open_split("glyphs", split) for split in ("train", "val", "test")}
    counts = ", ".join(f"{s.n_classes} {name}" for name, s in stores.items())
    console.print(f"glyphs: {counts} classes; {len(RECIPES)} models train for {seconds:.0f} s each")
    ledger, folder = out / "results", out / "runs" / new_run_id()
    rows, positions, reliability, pictures, named = [], [], [], [], []
    for system, floor in FLOORS.items():
        for setting, result in _measure(floor, stores["test"], ledger, "cpu").items():
            rows.append(_row(system, setting, result, None))
    for system, recipe in RECIPES.items():
        run = train(
            recipe, out=folder / recipe.replace("/", "."), results=ledger, device=device, seed=seed,
            max_minutes=seconds / 60, test=False, stores=stores,
        )  # fmt: skip
        results = _measure(str(run.folder), stores["test"], ledger, device)
        for setting, result in results.items():
            rows.append(_row(system, setting, result, float(run.record.training["seconds"])))
        stream = bench(run.folder, results=ledger, device=device, store=stores["test"], progress=False, **STREAM)[1][0]
        positions.append(PositionCurve.of(system, stream.metrics))
        reliability.append(ReliabilityCurve.of(system, results["5-way 1-shot"].metrics))
        pictures += _picture(system, run.method, stores["test"], where)
        if system == REMEMBERS:
            named = _named_stream(str(run.folder), stores["test"], ledger, device)
        console.print(f"  {system}: {100 * results['5-way 1-shot'].metrics['accuracy']:.1f} % (5-way 1-shot)")
    rows.sort(key=lambda r: list(SETTINGS).index(r.setting))
    took, device_name = time.monotonic() - clock, describe_device(where)
    page = QuickstartData(
        rows, took, device_name, current_commit(), HOW_TO_READ, pictures, positions, reliability, named
    )
    file.write_text(quickstart_page(page), encoding="utf-8")
    console.print(quickstart_table(rows, "terminal").terminal(), positions_table(positions).terminal(), HOW_TO_READ)
    title = "Accuracy, %, along a named 20-way stream: classes keep their names"
    console.print(positions_table(named, title).terminal())
    console.print(f"report: {file}   checkpoints: {folder}   records: {ledger}   ({took:.0f} s)")
    return file


def _measure(model: str, store: Store, ledger: Path, device: str) -> Mapping[str, Result]:
    """Each setting as single tasks, where slot memory starts empty; every answer leaves a run record."""
    recipe = RECIPES["ProtoNet"] if model in FLOORS.values() else None
    asked: dict[str, Any] = {"results": ledger, "device": device, "store": store, "progress": False}
    asked |= {"recipe": recipe, "stream_length": 1, "names": "anonymous"}
    return {setting: bench(model, **asked, **change)[1][0] for setting, change in SETTINGS.items()}


def _named_stream(model: str, store: Store, ledger: Path, device: str) -> list[PositionCurve]:
    """The same model and tasks with its memory and without."""
    asked: dict[str, Any] = {"results": ledger, "device": device, "store": store, "progress": False, **NAMED}
    kept, erased = (bench(model, erase_history=erase, **asked)[1][0] for erase in (False, True))
    asked_twice = (("with memory", kept), ("each task afresh", erased))
    return [PositionCurve.of(label, result.metrics) for label, result in asked_twice]


def _row(system: str, setting: str, result: Result, seconds: float | None) -> QuickstartRow:
    metrics = result.metrics
    return QuickstartRow(system, setting, metrics["accuracy"], metrics["interval"], metrics["ece"], seconds)


def _picture(system: str, method: Method, store: Store, device: torch.device) -> list[EpisodePicture]:
    """One test task as a person sees it, with the model's adjacency and answer; nothing for a model without a graph."""
    arrays = episode_arrays(method, store, device)
    return [] if arrays["edges"] is None else [EpisodePicture(**arrays, title=system)]
