"""How fast tasks come: opening a built store, 80 glyph tasks ready for a network, and a frozen list of 10,000 tasks.

``python -m benchmarks.data_speed`` prints a table and writes one JSON to results/speed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Measurement, median_ms, name_of, tell_load
from engram.data.datasets import open_split
from engram.data.episodes import draw_tasks, episodes_at, frozen_tasks
from engram.nn.encoder import Encoder
from engram.protocol import Protocol

TRAINING = Protocol("glyphs", "train", n_way=5, n_shot=1, n_query=1, stream_length=8, n_sequences=10)
"""80 tasks of 10 images"""
FROZEN = Protocol("glyphs", "test", n_way=5, n_shot=1, n_query=1, n_sequences=10_000)
TARGETS = {"open a built store": 50.0, "80 tasks of 10 glyphs, ready": 20.0}


class Pixels(torch.nn.Module):
    """A backbone that gives back the normalised pixels, so that only their preparation is measured."""

    out_shape = (1, 28, 28)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


def measure(repeats: int) -> dict[str, float]:
    store = open_split("glyphs", "train").to("cpu")
    test = open_split("glyphs", "test")
    rng, prepare = np.random.default_rng(0), Encoder(Pixels(), (0.0,), (1.0,))
    tasks = draw_tasks(store, TRAINING, rng)

    def gather() -> torch.Tensor:
        episodes, _ = episodes_at(store, tasks, TRAINING.n_way)
        return torch.cat([part.flatten(0, 1) for e in episodes for part in (e.support, e.query)])

    def whole() -> torch.Tensor:
        episodes, _ = episodes_at(store, draw_tasks(store, TRAINING, rng), TRAINING.n_way)
        images = torch.cat([part.flatten(0, 1) for e in episodes for part in (e.support, e.query)])
        features: torch.Tensor = prepare(images)
        return features

    images = gather()
    assert images.shape[0] == 800 and whole().dtype == torch.float32
    return {
        "open a built store": median_ms(lambda: open_split("glyphs", "train"), repeats),
        "80 tasks of 10 glyphs, ready": median_ms(whole, repeats),
        "  drawing": median_ms(lambda: draw_tasks(store, TRAINING, rng), repeats),
        "  gathering": median_ms(gather, repeats),
        "  normalising": median_ms(lambda: prepare(images), repeats),
        "frozen list of 10,000 tasks": median_ms(lambda: frozen_tasks(test, FROZEN), max(5, repeats // 10)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200, help="calls each median is taken of")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    device = torch.device("cpu")
    figures = measure(arguments.repeats)
    table = Table("what", "median, ms", "target, ms")
    for name, value in figures.items():
        table.add_row(name, f"{value:.2f}", f"< {TARGETS[name]:.0f}" if name in TARGETS else "")
    Console().print(table)
    tell_load()
    setting = {"dataset": "glyphs", "tasks": 80, "images_per_task": 10, "frozen_tasks": 10_000}
    setting |= {"repeats": arguments.repeats, "threads": torch.get_num_threads()}
    total = figures["80 tasks of 10 glyphs, ready"]
    parts = {name.strip(): value for name, value in figures.items()}
    measurement = Measurement("data", name_of(device), setting, total, parts, {"tasks_per_s": round(80_000 / total, 1)})
    print(f"wrote {measurement.write(arguments.out, 'data.glyphs.cpu')}")


if __name__ == "__main__":
    main()
