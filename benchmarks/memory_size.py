"""What a memory of a thousand to a million pictures costs: opening, answering, adding, room; and what it answers.

Features are simulated, 1,280 numbers of each picture in half precision: a class is a point in 96 directions, and its
pictures lie around it. Below 10,000 pictures the engine looks at all of them, above at class means
(`proto_memory`) or the nearest entries (`knn_memory`). At 10,000 both ways are compared, and above entries found by the
index with those found by looking at all. Each size is opened by a process of its own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Measurement, name_of, peak_memory_mib, tell_load
from engram.classifier import index as indices
from engram.classifier import memory as memories
from engram.classifier import reading
from engram.classifier.engine import Engine
from engram.classifier.index import Rows
from engram.classifier.memory import Memory, nothing
from engram.classifier.store import create, open_store
from engram.models.build import resolve_method
from engram.recipes import load_recipe

SIZES = (1_000, 10_000, 100_000, 1_000_000)
WIDTH, DIRECTIONS, CLASSES, NOISE = 1280, 96, 200, 1.35
QUERIES, MORE, BATCH = 200, 1000, 20_000
ENGINES: dict[str, dict[str, Any]] = {
    "proto_memory": {"distance": "cosine", "temperature": 0.1},
    "knn_memory": {"distance": "cosine", "temperature": 0.1, "capacity": 20_000},
}
LIMITS = {"open_s": 2.0, "answer_ms": 100.0, "add_1000_s": 1.0, "resident_mib": 4096.0}


class Seen(nn.Module):
    """An encoder whose work is done."""

    out_shape = (WIDTH,)


def engine_of(name: str) -> Engine:
    kind = resolve_method(name)
    return Engine(
        kind(Seen(), kind.Config(**ENGINES[name])).eval(), load_recipe(f"{name}/mini_5w1s_frozen"), (3, 84, 84), Seen()
    )


def simulated(count: int, seed: int) -> tuple[Tensor, list[str]]:
    """Features (count, WIDTH) and their classes; the classes are the same for every seed."""
    fixed, drawn = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    mean = torch.randn(WIDTH, generator=fixed).abs() / 2
    spread = torch.arange(1, DIRECTIONS + 1).rsqrt()[:, None] / WIDTH**0.5
    directions = torch.randn(DIRECTIONS, WIDTH, generator=fixed) * spread
    centres = torch.randn(CLASSES, DIRECTIONS, generator=fixed)
    labels = torch.arange(count) % CLASSES
    codes = centres[labels] + NOISE * torch.randn(count, DIRECTIONS, generator=drawn)
    return mean + codes @ directions, [f"{number:03d}" for number in labels.tolist()]


def build(folder: Path, size: int) -> dict[str, float]:
    """A store of ``size`` pictures, batch by batch, then its index."""
    started = time.perf_counter()
    first = min(size, BATCH)
    store = create(folder, nothing().add(*simulated(first, 1), None))
    for number, start in enumerate(range(first, size, BATCH), 2):
        store = store.append(store.memory().add(*simulated(min(BATCH, size - start), number), None))
    found, written = store.memory(), time.perf_counter()
    if not found.exact:
        store.write_index(indices.build(found.rows, found.labels, len(found.classes)))
    return {"write_s": written - started, "index_s": time.perf_counter() - written}


def answered(engine: Engine, memory: Memory, query: Tensor) -> Tensor:
    """As `FewShotClassifier.answer` does."""
    if isinstance(memory.items, Rows):
        return reading.answer(engine, memory, query, 0).log_probs
    return engine.answer(memory.items, memory.labels, query, len(memory.classes)).log_probs


def accuracy(memory: Memory, log_probs: Tensor, labels: list[str]) -> float:
    chosen = [memory.classes[number] for number in log_probs.argmax(1).tolist()]
    return 100 * float(np.mean([a == b for a, b in zip(chosen, labels, strict=True)]))


def use(folder: Path) -> dict[str, float]:
    """In a process of its own: open, answer, add."""
    query, labels = simulated(QUERIES, 0)
    started = time.perf_counter()
    memory = open_store(folder).memory()
    memory.check()
    found = {"open_s": time.perf_counter() - started}
    for name in ENGINES:
        engine = engine_of(name)
        answers, seconds = [], []
        for one in query.split(1):
            started = time.perf_counter()
            answers.append(answered(engine, memory, one))
            seconds.append(time.perf_counter() - started)
        found[f"accuracy, {name}"] = accuracy(memory, torch.cat(answers), labels)
        found[f"answer_ms, {name}"] = 1000 * float(np.median(seconds))
        found[f"first_answer_ms, {name}"] = 1000 * seconds[0]
    found["answer_ms"] = max(found[f"answer_ms, {name}"] for name in ENGINES)
    found["resident_mib"] = peak_memory_mib(torch.device("cpu"))
    if not memory.exact:
        found["recall_at_10"] = recall(memory, query[:50])
    more = simulated(MORE, 99)
    started = time.perf_counter()
    grown = memory.add(*more, None)
    store = open_store(folder).append(grown)
    if not grown.exact:
        whole = store.memory()
        store.write_index(indices.current(whole.indexed, whole.rows, whole.labels, len(whole.classes)))
    return {**found, "add_1000_s": time.perf_counter() - started}


def recall(memory: Memory, query: Tensor) -> float:
    """Share of the ten nearest entries that the index finds."""
    units = F.normalize(query, dim=1)
    cosines = torch.cat(
        [
            units @ F.normalize(memory.rows[slice(start, start + BATCH)].float(), dim=1).T
            for start in range(0, len(memory.labels), BATCH)
        ],
        1,
    )
    nearest = cosines.topk(10, 1).indices.tolist()
    found = [memory.index.nearest(memory.rows, one, 10).tolist() for one in query]
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(nearest, found, strict=True)]))


def both_ways(folder: Path) -> dict[str, float]:
    """Accuracy of the largest memory that is looked at whole, and of the same memory read as larger ones are."""
    query, labels = simulated(QUERIES, 0)
    memory = open_store(folder).memory()
    assert isinstance(memory.items, Tensor)
    half = Memory(memory.classes, Rows((memory.items.half(),)), memory.labels, memory.tasks)
    found = {}
    for name in ENGINES:
        engine = engine_of(name)
        found[f"exact, {name}"] = accuracy(
            memory, torch.cat([answered(engine, memory, q) for q in query.split(20)]), labels
        )
        found[f"read, {name}"] = accuracy(half, answered(engine, half, query), labels)
    return found


def in_a_process(function: str, folder: Path) -> dict[str, float]:
    code = "import json, pathlib, sys; from benchmarks import memory_size as m; "
    code += f"print(json.dumps(m.{function}(pathlib.Path(sys.argv[1]))))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", type=Path, default=None, help="for the stores, 2.6 GB in all; they are removed")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    by_size: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for size in arguments.sizes:
            place = Path(folder) / str(size)
            built = build(place, size)
            compared = in_a_process("both_ways", place) if size == memories.MOST_EXACT else {}
            by_size[size] = {
                name: round(value, 4) for name, value in {**built, **compared, **in_a_process("use", place)}.items()
            }
            shutil.rmtree(place)
            print(size, by_size[size], flush=True)
    table = Table("", *(f"{size:,}" for size in by_size), title=f"{WIDTH} numbers a picture, {CLASSES} classes")
    for name in dict.fromkeys(name for found in by_size.values() for name in found):
        table.add_row(name, *(f"{found[name]:,.3f}" if name in found else "" for found in by_size.values()))
    Console().print(table)
    largest = by_size[max(by_size)]
    for name, bar in LIMITS.items():
        print(f"{name}: {largest[name]:.2f}, {'holds' if largest[name] <= bar else 'FAILS'} the bar of {bar:g}")
    setting = {
        "width": WIDTH,
        "classes": CLASSES,
        "queries": QUERIES,
        "threads": torch.get_num_threads(),
        "noise": NOISE,
    }
    rates = {f"{name}, {size} pictures": value for size, found in by_size.items() for name, value in found.items()}
    measurement = Measurement("memory_size", name_of(torch.device("cpu")), setting, None, {}, rates)
    tell_load()
    print(f"wrote {measurement.write(arguments.out, 'memory_size.cpu')}")


if __name__ == "__main__":
    main()
