"""Seconds of `FewShotClassifier` from a cold process and warm, and pictures per second from files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import name_of
from engram.classifier import FewShotClassifier
from engram.classifier.folders import ask

WAYS, SHOTS, QUERIES = 5, 5, 15
FILES, MANY = 1000, 10_000
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
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        for number in range(FILES):
            coarse = rng.integers(0, 256, (11, 11, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((84, 84)).save(Path(folder) / f"{number:04d}.jpg")
        cold = median(_cold(folder) for _ in range(3))
        files = sorted(Path(folder).glob("*.jpg"))
        warm = median(_warm(files) for _ in range(10))
        classifier = FewShotClassifier().fit(files[:25], [str(i % WAYS) for i in range(25)])
        started = time.perf_counter()
        ask(classifier, [files[i % FILES] for i in range(MANY)])
        rate = MANY / (time.perf_counter() - started)
    page = _page()
    return {
        "benchmark": "own_images",
        "device": name_of(torch.device("cpu")),
        "load_average": round(os.getloadavg()[0], 2),
        "cold_seconds": round(cold, 3),
        "warm_seconds": round(warm, 4),
        "pictures_per_second": round(rate, 1),
        **({"page_seconds": round(page, 2)} if page else {}),
        "setting": {"n_way": WAYS, "n_shot": SHOTS, "queries": WAYS * QUERIES, "pictures": MANY, "size": 84},
    }


def _cold(folder: str) -> float:
    """A new process: start Python, import, fit, predict, end."""
    code = COLD.format(support=WAYS * SHOTS, query=WAYS * QUERIES, ways=WAYS)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, folder], check=True)
    return time.perf_counter() - started


def _warm(files: list[Path]) -> float:
    support, query = files[: WAYS * SHOTS], files[WAYS * SHOTS : WAYS * (SHOTS + QUERIES)]
    labels = [str(i % WAYS) for i in range(len(support))]
    started = time.perf_counter()
    FewShotClassifier().fit(support, labels).predict(query)
    return time.perf_counter() - started


def _page() -> float | None:
    """From the command to a page in Chromium that can be used; None where Gradio, Playwright or Chromium is missing."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or find_spec("gradio") is None or find_spec("playwright") is None:
        return None
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as driver, socket.socket() as free:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        tab, started = browser.new_page(), time.perf_counter()
        command = [sys.executable, "-m", "engram.cli", "demo", "--no-browser", "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while time.perf_counter() - started < 120:
                try:
                    tab.goto(f"http://127.0.0.1:{port}")
                    tab.get_by_role("button", name="Classify").wait_for()
                    return time.perf_counter() - started
                except Error:
                    time.sleep(0.05)
        finally:
            server.terminate()
            browser.close()
    return None
