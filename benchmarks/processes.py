"""One training by two processes against one process with the same global batch: weights, and milliseconds of a step.

``python -m benchmarks.processes`` compares on the CPU; with ``--device cuda:0 --synthetic`` two processes share a GPU
over gloo, also with captured steps. ``--equality`` takes the five methods of ``make test-slow``, by two and four
processes. Writes one JSON to results/speed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Measurement, measured, name_of, synthetic_store, tell_load, whole_steps
from engram import processes
from engram.data.datasets import open_split
from engram.errors import EngramError
from engram.machine.device import choose_device
from engram.machine.together import Call, together
from engram.models.checkpoint import load
from engram.recipes import load_recipe
from engram.recipes.schema import Recipe
from engram.training.running import Running, fast_arithmetic
from engram.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
RECIPES = {
    "cpu": ("proto_net/glyphs_quick", "stage_one/glyphs_conv4"),
    "cuda": ("proto_net/mini_5w1s_short", "stage_one/mini_resnet12_wide"),
}
LARGEST_BATCH = 64
"""images of base classes whose steps in float64 are compared: a GPU has little arithmetic for it"""
COUNTS = (2, 4)
"""of processes, for the equality of five methods"""
CASES = {"cpu": (("eager", "synchronised"), ("eager", "frozen"))}
CASES["cuda"] = (*CASES["cpu"], ("captured", "frozen"))
"""how steps are made, and the norms: captured ones can hold no message in the midst of a step over gloo"""


def equality(folder: Path) -> list[dict[str, Any]]:
    """The largest difference of any weight after 20 steps of SGD in float64: ``tests/several.py``, over gloo."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    script = str(ROOT / "tests" / "several.py")
    for count in (1, *COUNTS):
        runs = [(rank, count, store.port, folder / str(count)) for rank in range(count)]
        started = [subprocess.Popen([sys.executable, script, *map(str, run)], cwd=ROOT / "tests") for run in runs]
        if any([process.wait() for process in started]):
            raise SystemExit(f"{script} failed with {count} processes: see above")
    rows = []
    sys.path.insert(0, str(ROOT / "tests"))  # its backbone is a class of the tests
    import_module("several")
    for name in sorted(path.name for path in (folder / "1").iterdir()):
        one = load(folder / "1" / name, "last")
        train = one.recipe.train
        norms = "frozen" if train.freeze_backbone else "of each task" if name == "maml" else train.batch_norm_sync
        others = {count: load(folder / str(count) / name, "last").tensors("weights", "last") for count in COUNTS}
        differences = {str(c): largest(one.tensors("weights", "last"), other) for c, other in others.items()}
        rows.append({"method": name, "norms": norms, "steps": one.state.iteration, "difference": differences})
    return rows


def largest(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    return max(float((first[key].double() - second[key].double()).abs().max()) for key in first)


@contextmanager
def in_float64() -> Iterator[None]:
    """All that training computes, also what it asks to be float32."""
    narrow = torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = narrow  # type: ignore[method-assign]


def recipe_of(name: str, norms: str, share: int = 1) -> Recipe:
    """With a batch that two processes can share, or one ``share``-th of it."""
    asked = load_recipe(name)
    train = replace(asked.train, batch_norm_sync="local" if norms == "frozen" else norms)
    sequences = 1 if asked.data.class_batch else max(2, asked.train.sequences)
    train = replace(train, sequences=max(1, sequences // share))
    return replace(asked, train=train, data=replace(asked.data, class_batch=asked.data.class_batch // share))


def trainer_of(
    recipe: Recipe, arguments: argparse.Namespace, device: torch.device, plain: bool, precision: str
) -> Trainer:
    opened = synthetic_store if arguments.synthetic else open_split
    stores = {split: opened(recipe.data.dataset, split) for split in ("train", "val")}
    torch.manual_seed(0)
    trainer = Trainer(recipe, stores, Path("no-such-run"), device, Running(precision, plain))  # nothing is saved
    trainer.begin(resume=False)
    return trainer


def weights_after(name: str, how: str, norms: str, arguments: argparse.Namespace, device: torch.device) -> Any:
    """Weights after a few steps in float64 by PyTorch's own kernels; whether they were captured, and if not, why."""
    recipe = recipe_of(name, norms)
    recipe = replace(recipe, data=replace(recipe.data, class_batch=min(recipe.data.class_batch, LARGEST_BATCH)))
    settings = replace(recipe.train, optimiser="sgd", learning_rate=1e-3, schedule="constant")
    with in_float64(), fast_arithmetic(device, plain=True):
        trainer = trainer_of(replace(recipe, train=settings), arguments, device, how == "eager", "fp32")
        for part in trainer.method.modules():  # what is dropped differs from process to process
            if type(part).__name__.startswith("Drop") or (norms == "frozen" and isinstance(part, _BatchNorm)):
                part.eval()
        for _ in range(arguments.steps):
            trainer.step(0.0)
        trainer.read_losses()
        values = {key: value.cpu() for key, value in trainer.method.state_dict().items() if value.is_floating_point()}
    return values, trainer.stepper.graph is not None, trainer.stepper.fallback


def step_of(name: str, how: str, share: int, arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Milliseconds of a step of the recipe as it is, and of one message as large as its gradients."""
    with fast_arithmetic(device, how == "eager"):
        precision = load_recipe(name).train.precision
        trainer = trainer_of(recipe_of(name, "local", share), arguments, device, how == "eager", precision)
        seconds = whole_steps(trainer, arguments.repeats, arguments.warm_up, looks=1)
    size = sum(p.numel() for p in trainer.update.parameters)
    message, spent = torch.zeros(size, device=device), []
    for _ in range(arguments.repeats if processes.mine().count > 1 else 0):
        started = time.perf_counter()
        processes.add_up(message)
        float(message[0])  # waits for the device
        spent.append(time.perf_counter() - started)
    captured = trainer.stepper.graph is not None
    told = {"step_ms": round(1000 * seconds, 3), "gradient_bytes": 4 * size, "captured": captured}
    return told | {"message_ms": round(1000 * median(spent), 3) if spent else 0.0}


def work(arguments: argparse.Namespace, devices: int) -> dict[tuple[str, ...], Any]:
    """All cases by so many processes; every process makes this call."""
    call = Call("benchmarks.processes", "work", arguments, {"devices": devices})
    with together(devices, arguments.device, call) as device:
        found: dict[tuple[str, ...], Any] = {}
        for name in arguments.recipe or RECIPES[device.type]:
            for how, norms in CASES[device.type]:
                found[name, how, norms] = tried(weights_after, name, how, norms, arguments, device)
            for how in dict.fromkeys(how for how, _ in CASES[device.type]):
                found[name, how] = tried(step_of, name, how, 1, arguments, device)
                if devices == 1:
                    found[name, how, "half"] = tried(step_of, name, how, 2, arguments, device)
    return found


def tried(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives, or why it cannot: one case must not cost the others."""
    try:
        return function(*arguments)
    except (RuntimeError, EngramError) as error:
        return str(error).splitlines()[0]


def compared(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    one, two = (work(arguments, devices) for devices in (1, 2))
    rows: list[dict[str, Any]] = []
    for name, how, *norms in one:
        if norms == ["half"]:
            continue
        got = one[name, how, *norms], two[name, how, *norms], one[name, how, "half"]
        if why := next((each for each in got if isinstance(each, str)), ""):
            rows.append({"recipe": load_recipe(name).name, "how": how, "error": why})
        elif norms:
            (weights, _, _), (others, captured, why) = one[name, how, *norms], two[name, how, *norms]
            row = {"norms": norms[0], "captured": captured, "why_not": why, "difference": largest(weights, others)}
            rows.append({"recipe": load_recipe(name).name, "how": how, "steps": arguments.steps, **row})
        else:
            half = one[name, how, "half"]["step_ms"]
            row = {"one_ms": one[name, how]["step_ms"], "half_ms": half, "two_ms": two[name, how]["step_ms"]}
            expected = round(half + two[name, how]["message_ms"], 3)
            told = {key: two[name, how][key] for key in ("message_ms", "gradient_bytes", "captured")}
            rows.append({"recipe": load_recipe(name).name, "how": how, **row, **told, "expected_ms": expected})
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*keys)
    for row in rows:
        table.add_row(*(f"{value:.2e}" if (value := row.get(key)) and key == "difference" and isinstance(value, float)
                        else str(row.get(key, "")) for key in keys))  # fmt: skip
    Console(width=200).print(table)
    tell_load()


def measure(arguments: argparse.Namespace) -> Measurement:
    device = choose_device(arguments.device)
    if arguments.equality:
        with TemporaryDirectory() as folder:
            rows = equality(Path(folder))
        return Measurement("equality", name_of(device), {"backend": "gloo", "dtype": "float64"}, None, {}, cases=rows)
    setting = {"backend": "gloo", "processes": 2, "synthetic": arguments.synthetic, "repeats": arguments.repeats}
    return Measurement("processes", name_of(device), setting, None, {}, cases=compared(arguments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--equality", action="store_true", help="five small methods in float64, by 2 and 4 processes")
    parser.add_argument("--recipe", nargs="+", default=[], help="in place of a ProtoNet and a stage one")
    parser.add_argument("--device", default="cpu", help="cpu, or a numbered GPU that both share, such as cuda:0")
    parser.add_argument("--synthetic", action="store_true", help="random images in the dataset's shape")
    parser.add_argument("--steps", type=int, default=20, help="after which weights are compared")
    parser.add_argument("--repeats", type=int, default=10, help="what each median is taken of; blocks on a GPU")
    parser.add_argument("--warm-up", type=int, default=2, help="before the first that counts")
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    measurement = measured(measure, arguments)
    show(measurement.cases)
    stem = f"{measurement.benchmark}.{'cuda' if 'cuda' in arguments.device else 'cpu'}"
    print(f"wrote {measurement.write(arguments.out, stem)}", flush=True)


if __name__ == "__main__":
    main()
