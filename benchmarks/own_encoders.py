"""Which encoder for which pictures: accuracy of `FewShotClassifier(weights=...)`, default settings, and how honest its
confidence is, on test classes.

Called by ``python -m benchmarks.own_images encoders`` and ``confidence``. Birds 181 to 200 of CUB-200-2011, drawings of
characters of Omniglot's evaluation alphabets and the test classes of miniImageNet, all in ENGRAM_DATA. Each picture is
encoded once.
"""

from __future__ import annotations

import io
import tarfile
from time import perf_counter
from typing import Any

from PIL import Image

from benchmarks.own_birds import BIRDS, QUERIES, TESTED_ON, figures, outcomes, pictures, seen, tasks
from engram.classifier import opening
from engram.classifier.calibration import calibrate
from engram.data.datasets import data_folder

ENCODERS = {
    "imagenet": "imagenet",
    "photographs": "photographs",
    "glyphs": "glyphs",
    "stage_one/mini_conv4_distilled": "weights/stage_one.mini_conv4_distilled",
    "stage_one/mini_resnet12_wide_full": "weights/stage_one.mini_resnet12_wide_full",
}
"""as a table calls them -> as `weights` takes them"""
TAUGHT = {"imagenet": ["miniImageNet"]}
"""encoder -> pictures whose classes it was trained on"""
WAYS, SHOTS = (5, 20), (1, 2, 5, 10, 20)
EVERY = 6
"""of the evaluation alphabets' characters, to save time"""
STATED = {
    "imagenet": ("Birds", "miniImageNet", "Omniglot"),
    "glyphs": ("Omniglot",),
    "photographs": ("miniImageNet", "Omniglot"),
}
"""encoder -> pictures on which its confidence is measured, of its own kind and of another"""
STATED_WAYS, STATED_SHOTS, FEWEST = (2, 5, 10, 20, 40, 100, 200), (1, 2, 5, 10, 20, 50), 4
"""and how many queries of a class there must be"""


def measure(count: int) -> dict[str, Any]:
    """Figures by encoder, kind of pictures and "WAYSxSHOTS"; no figure where a class has too few pictures."""
    kinds = {
        "Birds": pictures(BIRDS, TESTED_ON),
        "Omniglot": _drawings(),
        "miniImageNet": pictures("miniimagenet-test.zip"),
    }
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, weights in ENCODERS.items():
        engine = opening.open_engine(None, weights, None, False, "cpu")
        for kind, classes in kinds.items():
            given, fewest = seen(engine, classes), min(len(images) for images in classes.values())
            for n_way, shots in ((n, s) for n in WAYS for s in SHOTS if s < fewest):
                asked = list(tasks(given, n_way, shots, 5 * count // n_way, min(QUERIES, fewest - shots)))
                cells = found.setdefault(name, {}).setdefault(kind, {})
                cells[f"{n_way}x{shots}"] = figures(outcomes(engine, asked))
            print(name, kind, {key: round(100 * cell["accuracy"], 1) for key, cell in cells.items()}, flush=True)
    sizes = {kind: [len(classes), min(map(len, classes.values()))] for kind, classes in kinds.items()}
    return {"tasks": count, "queries": QUERIES, "sizes": sizes, "taught": TAUGHT, "encoders": found}


def confidence(count: int) -> dict[str, Any]:
    """Figures by encoder, kind of pictures and "WAYSxSHOTS", where there are enough, and the seconds of a fit."""
    kinds = {
        "Birds": pictures(BIRDS, TESTED_ON),
        "miniImageNet": pictures("miniimagenet-test.zip"),
        "Omniglot": _drawings(EVERY // 2),
    }
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, asked_on in STATED.items():
        engine = opening.open_engine(None, name, None, False, "cpu")
        for kind in asked_on:
            given, fewest = seen(engine, kinds[kind]), min(map(len, kinds[kind].values()))
            cells = found.setdefault(name, {}).setdefault(kind, {})
            for n_way, shots in ((n, s) for n in STATED_WAYS for s in STATED_SHOTS):
                if n_way <= len(given.classes) and shots + FEWEST <= fewest:
                    tried = max(3, 5 * count // n_way)
                    asked = list(tasks(given, n_way, shots, tried, min(QUERIES, fewest - shots)))
                    start = perf_counter()
                    calibrate(engine, asked[0].support, asked[0].labels, n_way)
                    seconds = perf_counter() - start
                    cells[f"{n_way}x{shots}"] = {**figures(outcomes(engine, asked)), "tasks": tried, "fit_s": seconds}
            print(name, kind, {key: round(100 * cell["ece"], 1) for key, cell in cells.items()}, flush=True)
    return {"tasks": count, "queries": QUERIES, "stated": found}


def _drawings(every: int = EVERY) -> dict[str, list[Image.Image]]:
    """Character -> its 20 drawings, 105x105."""
    found: dict[str, list[Image.Image]] = {}
    with tarfile.open(f"{data_folder()}/omniglot.tar.xz") as opened:
        for member in opened:
            if "images_evaluation/" in member.name and member.name.endswith(".png"):
                content = opened.extractfile(member)
                assert content is not None
                image = Image.open(io.BytesIO(content.read())).convert("L")
                found.setdefault(member.name.rpartition("/")[0], []).append(image)
    return {name: found[name] for name in sorted(found)[::every]}
