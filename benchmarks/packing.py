"""Four short trainings of one grid in turn and side by side: seconds of each way, their ratio, and how results differ.

``python -m benchmarks.packing --device cuda --synthetic`` on a GPU, with CUDA MPS where it can be started;
``python -m benchmarks.packing`` on the cores of this machine, with tiny recipes. Writes one JSON to results/speed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Measurement, measured, name_of, tell_load
from engram.data.datasets import open_split
from engram.errors import EngramError
from engram.ledger import RunRecord, read_ledger
from engram.machine.device import choose_device
from engram.recipes import load_recipe
from engram.recipes.loading import recipe_text
from engram.reproduction.carry_out import reproduce
from engram.reproduction.process import run_commands

RUNS = 4
SETTINGS = {
    "cpu": ("proto_net/glyphs_quick", 6, {"sequences": 1, "validation_sequences": 8, "n_sequences": 16}),
    "cuda": ("maml/mini_5w1s_short", 800, {"validation_sequences": 100, "n_sequences": 200}),
}
"""recipe, steps, and what is less than the recipe has: all but the training itself"""
CLASSES = {"train": 64, "val": 16, "test": 20}
PICTURES = 40


def write_pictures(folder: Path) -> Path:
    """Random pictures in the sizes of miniImageNet, fewer of each class."""
    rng = np.random.default_rng(0)
    for split, classes in CLASSES.items():
        for number in range(classes):
            target = folder / split / f"{split}{number:02d}"
            target.mkdir(parents=True)
            mean = rng.integers(0, 256, 3)
            for picture in range(PICTURES):
                pixels = (mean + rng.integers(-60, 60, (84, 84, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(target / f"{picture}.bmp")
    return folder


def write_study(folder: Path, arguments: argparse.Namespace, kind: str) -> tuple[Path, dict[str, Any]]:
    """One recipe, shortened, with a seed for each run; without a time box, as that would cut runs that share a card."""
    name, steps, less = SETTINGS[kind]
    name, steps = arguments.recipe or name, arguments.iterations or steps
    changes = {"iterations": steps, "validate_every": steps, **less}
    if arguments.synthetic:
        os.environ["ENGRAM_CACHE"] = str(folder / "cache")
        changes["dataset"] = f"folder:{write_pictures(folder / 'pictures')}"
    lines = []
    for line in recipe_text(name).splitlines():
        key = line.partition(" = ")[0]
        value = changes.get(key)
        lines.append(line if value is None else f"{key} = {value!r}")
    (folder / "short.toml").write_text("\n".join(lines))
    row = f'[[row]]\nlabel = "short"\nshort = "{folder}/short.toml"\ncells = [{{ column = "test" }}]\n'
    (folder / "study.toml").write_text(f'title = "packing"\ncolumns = ["test"]\n{row}')
    # Before the clock runs: stores are built, and kernels compiled for all runs alike.
    for split in CLASSES:
        open_split(load_recipe(str(folder / "short.toml")).data.dataset, split)
    where = (
        "--out",
        str(folder / "warm-up"),
        "--results",
        str(folder / "warm-up/results"),
        "--device",
        arguments.device,
    )
    ended = run_commands([("train", str(folder / "short.toml"), "--iterations", "6", *where)], folder / "warm-up.txt")
    if ended.status != "finished":
        raise EngramError(f"the warm-up {ended.status}: {ended.sentence}")
    return folder / "study.toml", {
        "recipe": name,
        "iterations": steps,
        "runs": arguments.runs,
        "synthetic": arguments.synthetic,
    }


def made(study: Path, per_gpu: str, folder: Path, device: str, runs: int) -> tuple[float, list[RunRecord]]:
    """Seconds of the whole grid, and its records in the order of seeds."""
    place = {"results": folder / "results/runs", "runs": folder / "runs", "report": folder / "report.html"}
    started = time.monotonic()
    outcome = reproduce([str(study)], seeds=range(1, runs + 1), per_gpu=per_gpu, device=device, **place)  # type: ignore[arg-type]
    seconds = time.monotonic() - started
    if len(outcome.finished) != runs:
        raise EngramError(f"{len(outcome.finished)} of {runs} runs finished: {'; '.join(outcome.failed.values())}")
    return seconds, sorted(read_ledger(folder / "results/runs")[0], key=lambda record: record.seed)


def difference(first: list[RunRecord], second: list[RunRecord]) -> dict[str, float]:
    """The largest over the runs: of the mean training loss, and of test accuracy."""
    losses = [abs(a.curves["loss"][-1] - b.curves["loss"][-1]) for a, b in zip(first, second, strict=True)]
    tests = [[[e.metrics["accuracy"] for e in record.evaluations] for record in way] for way in (first, second)]
    pairs = zip(*tests, strict=True)
    return {"loss": max(losses), "accuracy": max(abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True))}


def measure(arguments: argparse.Namespace) -> Measurement:
    device = choose_device(arguments.device)
    if device.type == "cpu":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many for a run in turn as for one of several
    ways = [("in turn", "1"), ("side by side", arguments.per_gpu)] + [("in turn again", "1")] * arguments.again
    with tempfile.TemporaryDirectory(prefix="engram_") as folder:
        study, setting = write_study(Path(folder), arguments, device.type)
        how = arguments.device, arguments.runs
        found = {way: made(study, count, Path(folder) / way.replace(" ", "_"), *how) for way, count in ways}
    first, records = found["in turn"]
    cases = [
        {"way": way, "seconds": round(seconds, 2), "times_sooner": round(first / seconds, 3)}
        | {f"{key}_difference": value for key, value in difference(records, others).items()}
        for way, (seconds, others) in found.items()
    ]
    setting |= {"per_gpu": arguments.per_gpu, "captured": all(r.training["captured"] for r in records)}
    setting |= {"peak_memory_mib": max(r.training["device_use"]["peak_memory_mib"] for r in records)}
    return Measurement("packing", name_of(device), setting, None, {}, cases=cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="", help="in place of a small one of the study grid")
    parser.add_argument("--iterations", type=int, default=0, help="steps of each training")
    parser.add_argument("--runs", type=int, default=RUNS, help="trainings of the grid, one for each seed")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--per-gpu", default=str(RUNS), help="runs at a time, or auto")
    parser.add_argument("--synthetic", action="store_true", help="random pictures in the sizes of miniImageNet")
    parser.add_argument("--again", action="store_true", help="in turn a second time: how far a run repeats itself")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args(namespace=argparse.Namespace(repeats=1))
    measurement = measured(measure, arguments)
    table = Table(*measurement.cases[0], title=f"{measurement.setting['recipe']} on {measurement.device}")
    for case in measurement.cases:
        table.add_row(*map(str, case.values()))
    Console().print(table)
    tell_load()
    print(f"wrote {measurement.write(arguments.out, f'packing.{choose_device(arguments.device).type}')}", flush=True)


if __name__ == "__main__":
    main()
