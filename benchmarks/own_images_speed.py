"""Seconds of `FewShotClassifier` from a cold process and warm, pictures per second from files, and the page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import name_of
from benchmarks.own_images_page import measure_page, missing
from engram.classifier import FewShotClassifier
from engram.classifier.folders import ask

WAYS, SHOTS, QUERIES = 5, 5, 15
FILES, SIDE = 1000, 256
LIMITS = {"cold_seconds": 6.0, "cached_seconds": 2.0, "page_seconds": 5.0, "slowest_action_seconds": 2.0}
LEAST = {"pictures_per_second": 40.0}
COLD = """
import sys, time
from pathlib import Path
from engram import FewShotClassifier
files = sorted(Path(sys.argv[1]).glob("*.jpg"))
support, query = files[:{support}], files[{support}:{support} + {query}]
labels = [str(i % {ways}) for i in range(len(support))]
assert len(FewShotClassifier().fit(support, labels).predict(query)) == {query}
"""


def speed() -> dict[str, Any]:
    """On as many threads as torch is given; random pictures, for the time does not depend on what they show."""
    load = os.getloadavg()[0]  # of others: at the end it would be that of the benchmark
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number:04d}.jpg" for number in range(FILES)]
        rng = np.random.default_rng(0)
        for file in files:
            Image.fromarray(rng.integers(0, 256, (11, 11, 3), dtype=np.uint8)).resize((SIDE, SIDE)).save(file)
        os.environ["ENGRAM_CACHE"] = f"{folder}/cache"  # nothing of an earlier run
        found: dict[str, Any] = {
            "cold_seconds": median(_cold(folder, f"{folder}/cold{n}") for n in range(3)),
            "pictures_per_second": _rate(files),
            "warm_seconds": median(_warm(files) for _ in range(10)),
            "cached_seconds": median(_cached(files) for _ in range(3)),
            **measure_page(files),
        }
    for line in verdicts(found):
        print(line)
    return {
        "benchmark": "own_images",
        "device": name_of(torch.device("cpu")),
        "load_average": round(load, 2),
        "setting": {"n_way": WAYS, "n_shot": SHOTS, "queries": WAYS * QUERIES, "pictures": FILES, "size": SIDE},
        **found,
    }


def verdicts(found: dict[str, Any]) -> list[str]:
    """One line for each bar: whether it holds, or why it was not measured."""
    lines = []
    for name, bar in {**LIMITS, **LEAST}.items():
        if name not in found:
            lines.append(f"{name}: not measured, {missing()}")
            continue
        holds = found[name] >= bar if name in LEAST else found[name] < bar
        lines.append(f"{name}: {found[name]:.2f}, {'holds' if holds else 'FAILS'} the bar of {bar:g}")
    return lines


def _cold(folder: str, cache: str) -> float:
    """A new process: start Python, import, fit, predict, end; nothing is cached."""
    code = COLD.format(support=WAYS * SHOTS, query=WAYS * QUERIES, ways=WAYS)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, folder], check=True, env={**os.environ, "ENGRAM_CACHE": cache})
    return time.perf_counter() - started


def _fitted(files: list[Path]) -> FewShotClassifier:
    return FewShotClassifier().fit(files[: WAYS * SHOTS], [str(i % WAYS) for i in range(WAYS * SHOTS)])


def _warm(files: list[Path]) -> float:
    started = time.perf_counter()
    _fitted(files).predict(files[WAYS * SHOTS : WAYS * (SHOTS + QUERIES)])
    return time.perf_counter() - started


def _rate(files: list[Path]) -> float:
    """From files to features, none of them cached but those of the support."""
    classifier, started = _fitted(files), time.perf_counter()
    classifier.see(files[WAYS * SHOTS :])
    return (FILES - WAYS * SHOTS) / (time.perf_counter() - started)


def _cached(files: list[Path]) -> float:
    """All files asked about once more."""
    classifier, started = _fitted(files), time.perf_counter()
    ask(classifier, files)
    return time.perf_counter() - started
