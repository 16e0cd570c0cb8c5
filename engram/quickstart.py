"""From nothing to a trained, honestly measured model: embedded letters, a few minutes on two cores, no network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from engram.bench.evaluate import Result, evaluate
from engram.bench.run import bench
from engram.data.datasets import open_split
from engram.data.episodes import episodes_at, frozen_tasks
from engram.data.protocol import Protocol
from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import current_commit, new_run_id
from engram.report.console import positions_table, quickstart_table
from engram.report.contents import EpisodePicture, PositionCurve, QuickstartData, QuickstartRow, ReliabilityCurve
from engram.report.page import quickstart_page
from engram.train.build import choose_device
from engram.train.run import TrainedRun, describe_device, train
from engram.types import Method

RECIPES = {
    "ProtoNet": "proto_net/glyphs_quick",
    "CML-BGNN, no history": "cml_bgnn/glyphs_quick_no_history",
    "CML-BGNN, the paper's history": "cml_bgnn/glyphs_quick",
}
FLOORS = {"chance": "chance", "pixel nearest centroid": "pixel_centroid"}
SETTINGS = {"5-way 1-shot": (5, 2000), "20-way 1-shot": (20, 300)}
"""name -> (ways, tasks)"""
HOW_TO_READ = (
    "Test letters come from alphabets no model has seen; every task shows one picture per class and asks for one more, "
    "in shuffled order. A difference is real only if it is larger than the intervals; ECE is how far stated confidence "
    "lies from actual accuracy. The paper's history is carried by slot, so with slots shuffled it has nothing to "
    "remember and its line does not rise along the stream."
)


def quickstart(out: Path = Path("quickstart"), seconds: float = 50.0, device: str = "cpu", seed: int = 111) -> Path:
    """Train three models for ``seconds`` each, test on unseen alphabets, write ``report.html``; its path comes back."""
    console, clock = Console(), time.monotonic()
    where = choose_device(device)
    if seconds <= 0:
        raise EngramError(f"seconds = {seconds} but training needs more than 0")
    stores = {split: open_split("glyphs", split) for split in ("train", "val", "test")}
    counts = ", ".join(f"{s.n_classes} {name}" for name, s in stores.items())
    console.print(f"glyphs: {counts} classes; three models train for {seconds:.0f} s each")
    rows, positions, reliability, pictures = _floors(stores["test"], out), [], [], []
    folder = out / "runs" / new_run_id()
    for system, recipe in RECIPES.items():
        run = train(
            recipe, out=folder / recipe.replace("/", "."), results=out / "results", device=device, seed=seed,
            max_minutes=seconds / 60, test=False, stores=stores,
        )  # fmt: skip
        results = _measure(run, stores["test"], where)
        for setting, result in results.items():
            rows.append(_row(system, setting, result, float(run.record.training["seconds"])))
        stream = evaluate(run.method, stores["test"], _protocol(5, 2000, 8), where)
        positions.append(_positions(system, stream))
        reliability.append(_reliability(system, results["5-way 1-shot"]))
        if "edges" in (picture := _picture(system, run.method, stores["test"], where))[1]:
            pictures.append(picture[0])
        console.print(f"  {system}: {100 * results['5-way 1-shot'].metrics['accuracy']:.1f} % (5-way 1-shot)")
    rows.sort(key=lambda r: list(SETTINGS).index(r.setting))
    page = QuickstartData(
        rows,
        time.monotonic() - clock,
        describe_device(where),
        current_commit(),
        HOW_TO_READ,
        pictures,
        positions,
        reliability,
    )
    file = out / "report.html"
    file.write_text(quickstart_page(page), encoding="utf-8")
    console.print(quickstart_table(rows), positions_table(positions), HOW_TO_READ)
    console.print(f"report: {file}   checkpoints: {folder}   records: {out / 'results'}   ({page.seconds_total:.0f} s)")
    return file


def _protocol(n_way: int, tasks: int, stream_length: int = 1) -> Protocol:
    return Protocol("glyphs", n_way=n_way, n_query=1, stream_length=stream_length, n_sequences=tasks // stream_length)


def _floors(store: Store, out: Path) -> list[QuickstartRow]:
    rows = []
    for system, method in FLOORS.items():
        for setting, (n_way, tasks) in SETTINGS.items():
            _, (result,) = bench(
                method, recipe=RECIPES["ProtoNet"], results=out / "results", progress=False, store=store,
                n_way=n_way, n_query=1, n_sequences=tasks, device="cpu",
            )  # fmt: skip
            rows.append(_row(system, setting, result, None))
    return rows


def _measure(run: TrainedRun, store: Store, device: torch.device) -> Mapping[str, Result]:
    """Each setting under the protocol a single task has; slot memory starts empty there."""
    return {
        setting: evaluate(run.method, store, _protocol(n_way, tasks), device)
        for setting, (n_way, tasks) in SETTINGS.items()
    }


def _row(system: str, setting: str, result: Result, seconds: float | None) -> QuickstartRow:
    metrics = result.metrics
    return QuickstartRow(system, setting, metrics["accuracy"], metrics["interval"], metrics["ece"], seconds)


def _positions(system: str, result: Result) -> PositionCurve:
    return PositionCurve(system, result.metrics["accuracy_by_position"], result.metrics["interval_by_position"])


def _reliability(system: str, result: Result) -> ReliabilityCurve:
    bins = result.metrics["reliability"]
    return ReliabilityCurve(system, bins["confidence"], bins["accuracy"], bins["weight"], result.metrics["ece"])


@torch.no_grad()
def _picture(
    system: str, method: Method, store: Store, device: torch.device
) -> tuple[EpisodePicture, Mapping[str, torch.Tensor]]:
    """One test task as a person sees it, with the model's adjacency and answer."""
    protocol = replace(_protocol(5, 1), n_query=2, seed=7)
    tasks = frozen_tasks(store, protocol)
    (episode,), (answers,) = episodes_at(store, tasks, 5, device)
    prediction = method.eval().predict(episode)
    edges = prediction.details.get("edges")
    names = [store.info.class_names[i] for i in tasks.class_ids[0, 0]]
    picture = EpisodePicture(
        episode.support[0, :, 0].cpu().numpy(),
        episode.support_labels[0].cpu().numpy(),
        episode.query[0, :, 0].cpu().numpy(),
        answers.query_labels[0].cpu().numpy(),
        None if edges is None else np.asarray(edges[0].cpu()),
        prediction.log_probs[0].exp().cpu().numpy(),
        names,
        system,
    )
    return picture, prediction.details
