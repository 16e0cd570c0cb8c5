"""Milliseconds per training iteration, from end to end and by part, for recipes on a device.

``python -m benchmarks.train_step --recipe cml_bgnn/glyphs_5w1s`` prints a table, with the estimate of the least time
(`benchmarks.roofline`) and with ``--growth`` how the cost grows (`benchmarks.growth`), and writes one JSON to
results/speed. Several recipes are measured one after another, with ``--whole`` the whole step alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.growth import growth_table, measure_growth
from benchmarks.measure import (
    LOOKS,
    Clock,
    Measurement,
    measured,
    name_of,
    peak_memory_mib,
    synchronise,
    synthetic_store,
    tell_load,
    whole_steps,
)
from benchmarks.roofline import PUBLIC_LOOP_MS, beside_the_public_loop, roofline
from engram.data.datasets import open_split
from engram.machine.device import choose_device
from engram.recipes import load_recipe
from engram.training.optimise import clip_groups
from engram.training.running import Running, fast_arithmetic
from engram.training.trainer import Trainer


def parts_of_a_step(trainer: Trainer, repeats: int, warm_up: int) -> dict[str, float]:
    """The same step cut into pieces, each with an idle device before and after: medians in milliseconds."""
    clock, source, method = Clock(trainer.device), trainer.source, trainer.method
    augmented, encoder = source._augmented, EncoderClock(trainer.device)

    def timed_augmentation(episodes: Any) -> Any:
        with clock.part("augmentation"):
            return augmented(episodes)

    source._augmented = timed_augmentation  # type: ignore[method-assign]
    with encoder.watching(method.backbone):
        for _ in range(warm_up + repeats):
            encoder.seconds.append(0.0)
            with clock.part("draw"):
                batch = source.draw(0.0)
            with clock.part("loss"):
                totals = [objective.loss(batch).total for objective in trainer.update.objectives]
            method.zero_grad(set_to_none=True)
            with clock.part("backward"):
                torch.stack(totals).sum().backward()
            with clock.part("optimiser"):
                for optimiser in trainer.update.optimisers:
                    clip_groups(optimiser, trainer.settings.clip, trainer.settings.clip_value)
                    optimiser.step()
    source._augmented = augmented  # type: ignore[method-assign]
    got = {name: np.array(values[warm_up:]) for name, values in clock.seconds.items()}
    forward = np.array(encoder.seconds[warm_up:])
    parts = {
        "drawing": got["draw"] - got["augmentation"],
        "augmentation": got["augmentation"],
        "encoder forward": forward,
        "method and loss forward": got["loss"] - forward,
        "backward": got["backward"],
        "optimiser": got["optimiser"],
    }
    return {name: round(1000 * float(np.median(values)), 3) for name, values in parts.items()}


class EncoderClock:
    """Adds the seconds of every call of an encoder to the last entry of ``seconds``."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.started = device, 0.0
        self.seconds: list[float] = []

    @contextmanager
    def watching(self, encoder: nn.Module) -> Iterator[None]:
        handles = encoder.register_forward_pre_hook(self._before), encoder.register_forward_hook(self._after)
        yield
        for handle in handles:
            handle.remove()

    def _before(self, *_: object) -> None:
        synchronise(self.device)
        self.started = time.perf_counter()

    def _after(self, *_: object) -> None:
        synchronise(self.device)
        self.seconds[-1] += time.perf_counter() - self.started


def measure(arguments: argparse.Namespace, name: str) -> tuple[Measurement, torch.device]:
    asked, device = load_recipe(name), choose_device(arguments.device)
    opened = synthetic_store if arguments.synthetic else partial(open_split, data=arguments.data)
    stores = {split: opened(asked.data.dataset, split) for split in ("train", "val")}
    folder = Path("no-such-run")  # nothing is saved
    recipe = replace(asked, backbone_weights="") if arguments.synthetic else asked  # as long whatever it starts from
    how = Running(arguments.precision, arguments.plain, arguments.micro_batch)
    trainer = Trainer(recipe, stores, folder, device, how)
    trainer.begin(resume=False)
    with fast_arithmetic(device, arguments.plain):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        total = 1000 * whole_steps(trainer, arguments.repeats, arguments.warm_up, arguments.looks)
        peak = peak_memory_mib(device)
        whole = arguments.whole
        parts = {} if whole else parts_of_a_step(trainer, arguments.repeats, arguments.warm_up)
        least = {} if whole else roofline(trainer)
        setting = setting_of(trainer, arguments) | {"recipe_digest": asked.digest}
        rates = {"tasks_per_s": round(1000 * setting["tasks_per_step"] / total, 1), "peak_memory_mib": peak}
        if base := setting.get("base_images_per_step"):
            rates["base_images_per_s"] = round(1000 * base / total, 1)
        if least:
            rates |= {"roofline_ms": least["estimate_ms"], "ratio_to_roofline": round(total / least["estimate_ms"], 2)}
        faster = beside_the_public_loop(trainer, name_of(device), setting, total)
        if faster is not None:
            rates |= {"public_loop_ms": PUBLIC_LOOP_MS, "times_faster_than_public_loop": faster}
        side = stores["train"].image_shape[-1]
        del trainer, stores  # growth needs the memory
        growth = measure_growth(recipe, side, device, arguments) if arguments.growth else {}
    return Measurement("train_step", name_of(device), setting, round(total, 3), parts, rates, least, growth), device


def setting_of(trainer: Trainer, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was measured."""
    recipe, data = trainer.recipe, trainer.recipe.data
    tasks = recipe.train.sequences * data.stream_length
    return {
        "recipe": recipe.name,
        "synthetic": arguments.synthetic,
        "image_shape": trainer.source.store.image_shape,
        "stream_length": data.stream_length,
        "tasks_per_step": tasks,
        "images_per_step": tasks * data.n_way * (data.n_shot + data.n_query),
        **({"base_images_per_step": data.class_batch} if data.class_batch else {}),
        "precision": getattr(trainer.method.backbone, "precision", "fp32"),
        "plain": arguments.plain,
        "captured": trainer.stepper.graph is not None,
        "micro_batch": arguments.micro_batch,
        "threads": torch.get_num_threads(),
        "repeats": arguments.repeats,
    }


def show(measurement: Measurement) -> None:
    table = Table("part", "median, ms", title=f"{measurement.setting['recipe']} on {measurement.device}")
    for name, value in measurement.parts_ms.items():
        table.add_row(name, f"{value:.2f}")
    table.add_section()
    table.add_row("whole step", f"{measurement.step_total_ms:.2f}")
    console = Console()
    console.print(table)
    for facts in (measurement.rates, measurement.roofline):
        print("   ".join(f"{name} {value}" for name, value in facts.items()))
    if measurement.growth:
        console.print(growth_table(measurement.growth))
    tell_load()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", nargs="+", default=["cml_bgnn/glyphs_5w1s"], help="names of engram list, or files")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--data", type=Path, default=None, help="where the datasets lie; ENGRAM_DATA where not given")
    parser.add_argument("--synthetic", action="store_true", help="random images in the dataset's shape")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default=None, help="in place of the recipe's")
    parser.add_argument("--plain", action="store_true", help="no kernels but PyTorch's, no captured step")
    parser.add_argument("--micro-batch", type=int, default=0, help="sequences that go through the model at a time")
    parser.add_argument("--repeats", type=int, default=30, help="what each median is taken of; blocks on a GPU")
    parser.add_argument("--looks", type=int, default=LOOKS, help="at the losses in a block on a GPU, one in 20 steps")
    parser.add_argument("--warm-up", type=int, default=5, help="blocks before the first that counts")
    parser.add_argument("--whole", action="store_true", help="the whole step alone: no parts, no roofline")
    parser.add_argument("--growth", action="store_true", help="larger ways, shots, queries, T and images too")
    parser.add_argument("--growth-seconds", type=float, default=75.0, help="no size is begun after so many seconds")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    for name in arguments.recipe:
        measurement, device = measured(partial(measure, name=name), arguments)
        show(measurement)
        stem = f"train_step.{measurement.setting['recipe'].replace('/', '.')}.{device.type}"
        print(f"wrote {measurement.write(arguments.out, stem)}", flush=True)


if __name__ == "__main__":
    main()
