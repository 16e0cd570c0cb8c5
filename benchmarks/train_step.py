"""Milliseconds per training iteration, from end to end and by part, for a recipe on a device.

``python -m benchmarks.train_step --recipe cml_bgnn/glyphs_5w1s`` prints a table and writes one JSON to results/speed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Clock, Measurement, name_of, synchronise, tell_load
from engram.data.catalogue import DATASETS
from engram.data.datasets import open_split
from engram.data.store import Store
from engram.errors import EngramError
from engram.nn import fused
from engram.recipes import load_recipe
from engram.train.build import choose_device
from engram.train.loop import READ_EVERY, _fast_arithmetic
from engram.train.optimise import clip_groups
from engram.train.trainer import Trainer

IMAGES_PER_CLASS = 40
"""of synthetic data: more than any recipe draws of a class"""


def synthetic_store(dataset: str, split: str) -> Store:
    """Random pixels in the shape and with the classes of a dataset."""
    spec = DATASETS[dataset]
    classes = spec.classes.get(split, 100)
    shape = (classes * IMAGES_PER_CLASS, *spec.image_shape)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Store.from_arrays(images, [IMAGES_PER_CLASS] * classes, dataset, split)


def whole_steps(trainer: Trainer, blocks: int, warm_up: int) -> float:
    """Median seconds of a step as the loop makes it: on a GPU it looks at the loss every 20 steps, else at each."""
    length = READ_EVERY if trainer.device.type == "cuda" else 1
    seconds = []
    for block in range(-warm_up, blocks):
        synchronise(trainer.device)
        started = time.perf_counter()
        for _ in range(length):
            trainer.step(0.0)
        trainer.read_losses()
        synchronise(trainer.device)
        if block >= 0:
            seconds.append((time.perf_counter() - started) / length)
    return median(seconds)


def parts_of_a_step(trainer: Trainer, repeats: int, warm_up: int) -> dict[str, float]:
    """The same step cut into pieces, each with an idle device before and after: medians in seconds."""
    clock, source, method = Clock(trainer.device), trainer.source, trainer.method
    augmented, starts = source._augmented, []

    def timed_augmentation(episodes: Any) -> Any:
        with clock.part("augmentation"):
            return augmented(episodes)

    def before(*_: object) -> None:
        synchronise(trainer.device)
        starts.append(time.perf_counter())

    def after(*_: object) -> None:
        synchronise(trainer.device)
        encoder[-1] += time.perf_counter() - starts.pop()

    source._augmented = timed_augmentation  # type: ignore[method-assign]
    handles = [method.backbone.register_forward_pre_hook(before), method.backbone.register_forward_hook(after)]
    encoder: list[float] = []
    for _ in range(warm_up + repeats):
        encoder.append(0.0)
        with clock.part("draw"):
            batch = source.draw(0.0)
        with clock.part("loss"):
            terms = method.loss(batch)
        trainer.optimiser.zero_grad(set_to_none=True)
        with clock.part("backward"):
            terms.total.backward()
        with clock.part("optimiser"):
            clip_groups(trainer.optimiser, trainer.settings.clip, trainer.settings.clip_value)
            trainer.optimiser.step()
    for handle in handles:
        handle.remove()
    source._augmented = augmented  # type: ignore[method-assign]
    got = {name: np.array(values[warm_up:]) for name, values in clock.seconds.items()} | {
        "encoder": np.array(encoder[warm_up:])
    }
    parts = {
        "drawing": got["draw"] - got["augmentation"],
        "augmentation": got["augmentation"],
        "encoder forward": got["encoder"],
        "method and loss forward": got["loss"] - got["encoder"],
        "backward": got["backward"],
        "optimiser": got["optimiser"],
    }
    return {name: float(np.median(values)) for name, values in parts.items()}


def measure(arguments: argparse.Namespace) -> tuple[Measurement, torch.device]:
    recipe, device = load_recipe(arguments.recipe), choose_device(arguments.device)
    dataset = recipe.data.dataset
    if arguments.synthetic:
        stores = {split: synthetic_store(dataset, split) for split in ("train", "val")}
    else:
        stores = {split: open_split(dataset, split, arguments.data) for split in ("train", "val")}
    folder = Path("no-such-run")  # nothing is saved
    trainer = Trainer(recipe, stores, folder, device, arguments.precision, arguments.plain, arguments.micro_batch)
    trainer.begin(resume=False)
    with _fast_arithmetic(device), fused.plain(arguments.plain):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        total = whole_steps(trainer, arguments.repeats, arguments.warm_up)
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        parts = parts_of_a_step(trainer, arguments.repeats, arguments.warm_up)
    data, sequences = recipe.data, recipe.train.sequences
    tasks = sequences * data.stream_length
    setting = {
        "recipe": recipe.name,
        "recipe_digest": recipe.digest,
        "synthetic": arguments.synthetic,
        "image_shape": stores["train"].image_shape,
        "tasks_per_step": tasks,
        "images_per_step": tasks * data.n_way * (data.n_shot + data.n_query),
        "precision": getattr(trainer.method.backbone, "precision", "fp32"),
        "plain": arguments.plain,
        "captured": trainer.stepper.graph is not None,
        "micro_batch": arguments.micro_batch,
        "threads": torch.get_num_threads(),
        "repeats": arguments.repeats,
    }
    rates = {"tasks_per_s": round(tasks / total, 1)}
    if peak:
        rates["peak_memory_mib"] = round(peak / 2**20, 1)
    milliseconds = {name: round(1000 * value, 3) for name, value in parts.items()}
    return Measurement("train_step", name_of(device), setting, round(1000 * total, 3), milliseconds, rates), device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="cml_bgnn/glyphs_5w1s", help="a name of engram list, or a TOML file")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--data", type=Path, default=None, help="where the datasets lie; ENGRAM_DATA where not given")
    parser.add_argument("--synthetic", action="store_true", help="random images in the dataset's shape")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default=None, help="in place of the recipe's")
    parser.add_argument("--plain", action="store_true", help="no fused kernels, no captured step")
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences that go through the model at a time")
    parser.add_argument("--repeats", type=int, default=30, help="what each median is taken of; blocks of 20 on a GPU")
    parser.add_argument("--warm-up", type=int, default=5, help="blocks before the first that counts")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    try:
        measurement, device = measure(arguments)
    except EngramError as error:
        print(f"engram: {error}", file=sys.stderr)
        sys.exit(2)
    table = Table("part", "median, ms", title=f"{measurement.setting['recipe']} on {measurement.device}")
    for name, value in measurement.parts_ms.items():
        table.add_row(name, f"{value:.2f}")
    table.add_section()
    table.add_row("whole step", f"{measurement.step_total_ms:.2f}")
    Console().print(table)
    print("   ".join(f"{name} {value}" for name, value in measurement.rates.items()))
    tell_load()
    stem = f"train_step.{measurement.setting['recipe'].replace('/', '.')}.{device.type}"
    print(f"wrote {measurement.write(arguments.out, stem)}")


if __name__ == "__main__":
    main()
