"""Hours of use in one process: whether memory and open files stay as they were.

``python -m benchmarks.soak --minutes 10`` goes round: a saved classifier is opened, answers, remembers, forgets and is
saved again; a small model is trained, stopped and resumed. It prints a table and writes one JSON to
results/speed: resident memory and open files over time, and the slope of each after the warm-up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import LOAD, Measurement, name_of, synthetic_store
from engram.classifier import FewShotClassifier
from engram.errors import EngramError
from engram.recipes import load_recipe
from engram.training.loop import Limits, Running, train

CLASSES, PER_CLASS, SIDE = 5, 4, 84
WARM_UP = 0.2
"""share of the time that counts for no slope: caches fill and libraries load"""
MOST_SLOPE = 1.0
"""MiB a minute"""


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def slope(minutes: list[float], values: list[float]) -> float:
    """Least squares, of what came after the warm-up; 0 where that is a single moment."""
    kept = [(m, v) for m, v in zip(minutes, values, strict=True) if m >= WARM_UP * minutes[-1]]
    return float(np.polyfit(*zip(*kept, strict=True), 1)[0]) if len(kept) > 1 else 0.0


def own_pictures(folder: Path, number: int) -> None:
    """Open, ask, remember one class more, ask, forget it, save: what a day of `engram remember` and `predict` does."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (PER_CLASS * CLASSES, SIDE, SIDE, 3), dtype=np.uint8)
    names = [f"class {i % CLASSES}" for i in range(len(pixels))]
    if not (folder / "classifier.json").exists():
        FewShotClassifier(weights="photographs").fit(list(pixels), names).save(folder)
    classifier = FewShotClassifier.load(folder)
    before = classifier.predict_proba(list(pixels[:5]))
    classifier.partial_fit(list(pixels[:PER_CLASS]), ["another"] * PER_CLASS).save(folder)
    classifier = FewShotClassifier.load(folder)
    assert classifier.predict_proba(list(pixels[:5])).shape[1] == CLASSES + 1
    classifier.forget("another").save(folder)
    after = FewShotClassifier.load(folder).predict_proba(list(pixels[:5]))
    if not np.allclose(before, after, atol=1e-5):
        raise EngramError(f"answers differ by {np.abs(before - after).max():.2g} after remembering and forgetting")


def trained() -> Callable[[Path], None]:
    """A call that trains two steps into a folder, resumes for two more and deletes it."""
    recipe = load_recipe("proto_net/glyphs_drawings")
    recipe = replace(
        recipe,
        data=replace(recipe.data, n_way=5),
        train=replace(recipe.train, iterations=4, validate_every=2, validation_sequences=4),
    )
    stores = {split: synthetic_store("glyphs", split, 25) for split in ("train", "val")}

    def go(folder: Path) -> None:
        for stop, resume in ((2, False), (4, True)):
            limits, running = Limits(max_iterations=stop), Running(progress=False)
            train(recipe, stores, folder, device=torch.device("cpu"), resume=resume, limits=limits, running=running)
        shutil.rmtree(folder)

    return go


def soak(minutes: float, every: float) -> tuple[dict[str, list[float]], list[float]]:
    """Minutes, MiB and files at each look, and the seconds of every round."""
    looks: dict[str, list[float]] = {"minutes": [], "resident_mib": [], "open_files": []}
    seconds: list[float] = []
    go, started = trained(), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        while (elapsed := (time.monotonic() - started) / 60) < minutes or not looks["minutes"]:
            if not looks["minutes"] or elapsed - looks["minutes"][-1] >= every / 60:
                for name, value in zip(looks, (round(elapsed, 3), round(resident_mib(), 1), open_files()), strict=True):
                    looks[name].append(value)
            began = time.monotonic()
            with redirect_stderr(StringIO()):
                own_pictures(Path(temporary) / "model", len(seconds))
                go(Path(temporary) / "run")
            seconds.append(time.monotonic() - began)
    return looks, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two looks")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    looks, seconds = soak(arguments.minutes, arguments.every)
    slopes = {name: round(slope(looks["minutes"], looks[name]), 4) for name in ("resident_mib", "open_files")}
    table = Table("minutes", "resident memory, MiB", "open files", title=f"{len(seconds)} rounds")
    for row in list(zip(*looks.values(), strict=True))[:: max(1, len(looks["minutes"]) // 12)]:
        table.add_row(*(f"{value:g}" for value in row))
    table.add_row("a minute", *(f"{value:+.3f}" for value in slopes.values()))
    Console().print(table)
    print(f"load average before the start: {LOAD}")
    setting = {"minutes": arguments.minutes, "warm_up": WARM_UP * arguments.minutes}
    setting |= {"threads": torch.get_num_threads(), "rounds": len(seconds)}
    growth = {"time": {**looks, "slope_a_minute": slopes}}
    total = round(1000 * median(seconds), 1)
    measurement = Measurement("soak", name_of(torch.device("cpu")), setting, total, {}, growth=growth)
    print(f"wrote {measurement.write(arguments.out, 'soak.cpu')}")
    if slopes["resident_mib"] > MOST_SLOPE or slopes["open_files"] > MOST_SLOPE:
        sys.exit("engram: memory or open files grow")


if __name__ == "__main__":
    main()
