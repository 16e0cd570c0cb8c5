"""Seconds of evaluating 10,000 tasks of 5-way 1-shot, by the very function `engram bench` calls.

``python -m benchmarks.evaluation --recipe cml_bgnn/mini_5w1s --device cuda --synthetic`` asks a model with fresh
weights, which take as long as trained ones; ``--features`` asks it on features written before (`engram features`).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from math import ceil, prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Measurement, measured, name_of, synchronise, synthetic_store, tell_load
from engram.data.catalogue import spec_of
from engram.data.store import Store
from engram.evaluation.evaluate import evaluate
from engram.machine.device import choose_device
from engram.models.build import build_method
from engram.models.features import open_stores
from engram.protocol import Protocol
from engram.recipes import Recipe, load_recipe
from engram.recipes.protocols import protocols_of
from engram.types import Method

SYNTHETIC = "synthetic"


def images_per_class(dataset: str) -> int:
    """As published, for each image passes the encoder once; 40 where the set itself decides."""
    spec = spec_of(dataset)
    return spec.images["test"] // spec.classes["test"] if spec.images else 40


def open_test_store(recipe: Recipe, arguments: argparse.Namespace) -> Store:
    """Images or features of the test split, read or random in the same number and size."""
    dataset = recipe.data.dataset
    if arguments.features is None and arguments.synthetic:
        return synthetic_store(dataset, "test", images_per_class(dataset))
    if arguments.features != SYNTHETIC:
        folder = Path(arguments.features) if arguments.features else None
        return open_stores(dataset, ("test",), arguments.data, folder)["test"]
    spec, count = spec_of(dataset), images_per_class(dataset)
    encoder = build_method(recipe, spec.image_shape, torch.device("cpu")).backbone
    classes = spec.classes.get("test", 100)
    shape = (classes * count, prod(encoder.out_shape))  # type: ignore[arg-type]
    features = np.random.default_rng(0).standard_normal(shape, dtype=np.float32).astype(np.float16)
    return Store.from_arrays(features, [count] * classes, dataset, "test")


def questions(recipe: Recipe, method: Method, tasks: int) -> Protocol:
    """5-way 1-shot with one query of each class, in sequences as long as the recipe's."""
    own = protocols_of(recipe, "test", method.card.batch_norm)[0]
    sequences = ceil(tasks / own.stream_length)
    return replace(own, n_way=5, n_shot=1, n_query=1, labelled_fraction=1.0, n_sequences=sequences)


def seconds_of(
    method: Method, store: Store, protocol: Protocol, device: torch.device, repeats: int, warm_up: int
) -> float:
    """Median from the drawing of the tasks to the metrics."""
    seconds = []
    for call in range(-warm_up, repeats):
        synchronise(device)
        started = time.perf_counter()
        evaluate(method, store, protocol, device)
        synchronise(device)
        if call >= 0:
            seconds.append(time.perf_counter() - started)
    return median(seconds)


def measure(arguments: argparse.Namespace) -> tuple[Measurement, torch.device]:
    recipe, device = load_recipe(arguments.recipe), choose_device(arguments.device)
    store = open_test_store(recipe, arguments)
    # Built on the CPU, as a checkpoint is opened: in float32 also where training is not.
    method = build_method(recipe, store.image_shape, torch.device("cpu")).to(device)
    protocol = questions(recipe, method, arguments.tasks)
    placed = store.to(device) if device.type == "cuda" else store
    seconds = seconds_of(method, placed, protocol, device, arguments.repeats, arguments.warm_up)
    tasks = protocol.n_sequences * protocol.stream_length
    setting: dict[str, Any] = {
        "recipe": recipe.name,
        "recipe_digest": recipe.digest,
        "dataset": recipe.data.dataset,
        "device_kind": device.type,
        "asked": "images" if arguments.features is None else "features",
        "synthetic": arguments.synthetic or arguments.features == SYNTHETIC,
        "images": len(store.images),
        "image_shape": store.image_shape,
        "stream_length": protocol.stream_length,
        "tasks": tasks,
        "threads": torch.get_num_threads(),
        "repeats": arguments.repeats,
    }
    rates = {"seconds": round(seconds, 4), "tasks_per_s": round(tasks / seconds, 1)}
    return Measurement("evaluation", name_of(device), setting, None, {}, rates), device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="cml_bgnn/glyphs_5w1s", help="a name of engram list, or a TOML file")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--data", type=Path, default=None, help="where the datasets lie; ENGRAM_DATA where not given")
    parser.add_argument("--synthetic", action="store_true", help="random images in the dataset's shape and number")
    parser.add_argument(
        "--features",
        nargs="?",
        const=SYNTHETIC,
        default=None,
        help="folder of `engram features`, asked in place of images; without a folder, random ones",
    )
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3, help="calls the median is taken of")
    parser.add_argument("--warm-up", type=int, default=1, help="calls before the first that counts")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    measurement, device = measured(measure, arguments)
    setting, rates = measurement.setting, measurement.rates
    print(f"{setting['recipe']} from {setting['asked']} on {measurement.device}: {setting['tasks']} tasks")
    print(f"{rates['seconds']:.2f} s   {rates['tasks_per_s']:.0f} tasks/s")
    tell_load()
    stem = f"evaluation.{setting['recipe'].replace('/', '.')}.{setting['asked']}.{device.type}"
    print(f"wrote {measurement.write(arguments.out, stem)}")


if __name__ == "__main__":
    main()
