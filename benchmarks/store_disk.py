"""A store larger than memory: built in a stream, opened, and trained from, on disk against in memory.

``python -m benchmarks.store_disk --device cuda`` writes a store as large as the training images of tieredImageNet
(448,695 random pictures of 84x84, 9.5 GB) to ``--folder``, times steps of `proto_net` and `cml_bgnn` with it on the
device, from disk, and from disk with ``--near`` of it on the device, removes it, prints a table and writes one JSON to
results/speed. It stands for a store that no memory holds, so it is read past the system's cache of files, as such a
one would be, and whatever of it is there is dropped ten times a second (`posix_fadvise`): the disk is measured, and the
file says how many bytes came from it. Each part is a process of its own, with its own peak of resident memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Measurement, measured, name_of, synthetic_store, tell_load, whole_steps
from engram.data.formats.form import SplitSource
from engram.data.rows import Readers
from engram.data.store import Store
from engram.data.writing import build
from engram.machine.device import choose_device
from engram.recipes import load_recipe
from engram.training.running import Running, fast_arithmetic
from engram.training.trainer import Trainer

IMAGES, CLASSES, SHAPE = 448_695, 351, (3, 84, 84)
"""of the training split of tieredImageNet"""
DATASET, RECIPES = "tieredimagenet", ("proto_net/tiered_5w1s", "cml_bgnn/tiered_5w1s")
AT_ONCE = 256
"""pictures that are made at a time"""
READS, READ_ROWS, READ_SLOTS = 100, 500, 8
"""from the disk alone: how often, rows at random, how many at a time"""
FEWER = (1, 2, 4)
"""processes that read, before as many as a training has"""
LIMITS = {"build_resident_mib": 1500.0, "open_s": 1.0, "steps_resident_mib": 3000.0, "ratio": 1.3}


def pictures(count: int) -> SplitSource:
    """Random bytes, which no disk can pack; the classes as equal as can be."""
    counts = np.diff(np.linspace(0, count, CLASSES + 1).astype(int)).tolist()

    def read_class(c: int) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(c)
        for start in range(0, counts[c], AT_ONCE):
            size = min(AT_ONCE, counts[c] - start)
            yield from np.frombuffer(rng.bytes(size * int(np.prod(SHAPE))), np.uint8).reshape(size, *SHAPE)

    return SplitSource(tuple(f"class{c:03d}" for c in range(CLASSES)), tuple(counts), read_class, SHAPE)


def family() -> list[Path]:
    """This process and those it has started that are still there."""
    started = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return [Path("/proc/self"), *(Path("/proc") / number for number in started.split())]


def peak_resident_mib() -> float:
    """The most these processes ever held, memory they share counted once for each of them; pages of files that are
    mapped count too."""
    held = [(path / "status").read_text().split("VmHWM:")[1].split()[0] for path in family()]
    return round(sum(map(int, held)) / 2**10, 1)


def from_disk_bytes() -> int | None:
    """What the disks have given these processes so far; None where the system does not say."""
    try:
        return sum(int((path / "io").read_text().split("\nread_bytes:")[1].split()[0]) for path in family())
    except (OSError, IndexError):
        return None


def drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@contextmanager
def dropping(path: Path) -> Iterator[None]:
    """The pages of a file are dropped before and all the while."""
    done = Event()

    def go_on() -> None:
        while not done.wait(0.1):
            drop(path)

    drop(path)
    thread = Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def built(folder: Path, count: int) -> dict[str, float]:
    started = time.perf_counter()
    store = build(folder, DATASET, "train", pictures(count), "random bytes", quiet=not sys.stderr.isatty())
    seconds = time.perf_counter() - started
    os.sync()  # what is still to be written would share the disk with what is read next
    rate = store.n_bytes / seconds / 1e9
    return {"build_s": round(seconds, 1), "build_gb_per_s": round(rate, 2), "build_resident_mib": peak_resident_mib()}


def opened(folder: Path) -> dict[str, float]:
    """Seconds to open it with nothing of it in memory, and how fast the disk alone gives rows at random, through the
    system's cache of files and past it."""
    drop(folder / "images.npy")
    started = time.perf_counter()
    store = Store.open(folder)
    seconds = time.perf_counter() - started
    found = {"open_s": round(seconds, 4)}
    for name, way in (("disk_alone_gb_per_s", store.past_cache()), ("disk_alone_gb_per_s, through the cache", store)):
        for processes in (*FEWER, None):
            with dropping(folder / "images.npy"):
                rate = read_alone(way, processes)
            found[f"{name}{f', {processes} processes' if processes else ''}"] = round(rate, 2)
    return found


def read_alone(store: Store, processes: int | None) -> float:
    """GB a second of rows at random, by so many processes, or as many as a training has."""
    assert store.file is not None
    rows = np.random.default_rng(0).integers(0, len(store.images), (READS, READ_ROWS))
    readers = Readers(store.file, READ_SLOTS, READ_ROWS, processes)
    readers.ask(0, rows[0])  # they take a moment to start
    readers.wait()
    started = time.perf_counter()
    for turn, part in enumerate(rows):
        if turn >= READ_SLOTS:
            readers.wait()
        readers.ask(turn % READ_SLOTS, part)
    for _ in range(READ_SLOTS):
        readers.wait()
    return rows.size * int(np.prod(SHAPE)) / (time.perf_counter() - started) / 1e9


def stepped(folder: Path, arguments: argparse.Namespace, recipe: str, memory: str | None) -> dict[str, Any]:
    """Milliseconds of a step, with the store within so much memory (None: all on the device), and what was read."""
    device, train = choose_device(arguments.device), Store.open(folder).past_cache()
    stores = {"train": train if memory else train.to(device), "val": synthetic_store(DATASET, "val")}
    trainer = Trainer(load_recipe(recipe), stores, Path("no-such-run"), device, Running(store_memory=memory))
    trainer.begin(resume=False)
    with dropping(folder / "images.npy"), fast_arithmetic(device, False):
        started, before = time.perf_counter(), from_disk_bytes()
        ms = 1000 * whole_steps(trainer, arguments.repeats, arguments.warm_up, arguments.looks)
        seconds, after = time.perf_counter() - started, from_disk_bytes()
    return {
        "recipe": trainer.recipe.name,
        "step_ms": round(ms, 3),
        "images_per_step": sum(rows.size for key, rows in trainer.source.draw_lists().items() if "rows" in key),
        "from_disk": trainer.source.ahead is not None,
        "past_cache": bool(train.file and train.file.block),
        "captured": trainer.stepper.graph is not None,
        "steps": trainer.iteration,
        "seconds": round(seconds, 1),
        "read_gb": None if before is None or after is None else round((after - before) / 1e9, 2),
        "resident_mib": peak_resident_mib(),
        "device": name_of(device),
    }


def alone(call: Callable[..., Any], *given: Any) -> Any:
    """In a process of its own, which has CUDA to itself; what it gives is shown at once."""
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        found = pool.submit(call, *given).result()
    print(found, flush=True)
    return found


def measure(arguments: argparse.Namespace) -> Measurement:
    arguments.folder.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="store-", dir=arguments.folder))
    ways: dict[str, str | None] = {"disk": "0", "near": arguments.near}
    ways |= {} if arguments.disk_only else {"memory": None}
    recipes: dict[str, dict[str, Any]] = {}
    try:
        rates = alone(built, root / "train", arguments.n_images) | alone(opened, root / "train")
        size = (root / "train" / "images.npy").stat().st_size
        for asked in arguments.recipe:
            found = {way: alone(stepped, root / "train", arguments, asked, memory) for way, memory in ways.items()}
            recipes[found["disk"]["recipe"]] = found
    finally:
        shutil.rmtree(root)
    parts = {f"{name}, {way}": found["step_ms"] for name, both in recipes.items() for way, found in both.items()}
    for name, both in recipes.items():
        if "memory" in both:
            for way in ("disk", "near"):
                rates[f"{name}, {way} / memory"] = round(both[way]["step_ms"] / both["memory"]["step_ms"], 3)
    rates["resident_from_disk_mib"] = max(both["disk"]["resident_mib"] for both in recipes.values())
    setting = {"n_images": arguments.n_images, "store_gb": round(size / 1e9, 2), "near": arguments.near}
    setting |= {"recipes": recipes}
    setting |= {"threads": torch.get_num_threads(), "repeats": arguments.repeats, "limits": LIMITS}
    return Measurement("store_disk", next(iter(recipes.values()))["disk"]["device"], setting, None, parts, rates)


def show(measurement: Measurement) -> None:
    table = Table("what", "measured", title=f"{measurement.setting['store_gb']} GB of pictures, {measurement.device}")
    for name, value in {**measurement.rates, **{f"{k}, ms": v for k, v in measurement.parts_ms.items()}}.items():
        table.add_row(name, f"{value:,.2f}")
    Console().print(table)
    print(f"to be reached: {LIMITS}")
    tell_load()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to be measured")
    parser.add_argument("--n-images", type=int, default=IMAGES, help="pictures of the store")
    parser.add_argument("--recipe", nargs="+", default=list(RECIPES), help="for pictures of 84x84")
    parser.add_argument("--near", default="2GB", metavar="SIZE", help="of it on the device, where the rest is on disk")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--disk-only", action="store_true", help="no steps with the store in memory")
    parser.add_argument("--repeats", type=int, default=10, help="what each median is taken of; blocks on a GPU")
    parser.add_argument("--looks", type=int, default=5, help="at the losses in a block on a GPU, one in 20 steps")
    parser.add_argument("--warm-up", type=int, default=2, help="blocks before the first that counts")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    measurement = measured(measure, arguments)
    show(measurement)
    kind = arguments.device.partition(":")[0]
    print(f"wrote {measurement.write(arguments.out, f'store_disk.{kind}')}", flush=True)


if __name__ == "__main__":
    main()
