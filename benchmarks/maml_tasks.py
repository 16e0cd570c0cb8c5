"""Tasks per second of second-order MAML: all tasks side by side under vmap, against a Python loop over tasks.

``python -m benchmarks.maml_tasks --device cuda`` prints both and their ratio and writes one JSON to results/speed. The
loop is what one writes without vmap: ordinary autograd with ``create_graph``, task by task. Both give one gradient,
which is checked before anything is timed: in float64, for five steps on noise double rounding errors until float32
shows nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import Clock, Measurement, measured, name_of, tell_load
from engram.errors import EngramError
from engram.machine.device import choose_device
from engram.methods.maml import Maml, MamlConfig
from engram.nn import adapt
from engram.nn.backbones import build_backbone
from engram.nn.encoder import Encoder
from engram.nn.task_norm import names_of_norms
from engram.training.running import fast_arithmetic
from engram.types import Answers, Episode, TrainBatch

ADMITTED = 1e-6
"""relative difference of two gradients in float64"""
TARGET = 5.0
"""times the loop, on a GPU with 32 tasks of 84x84 images"""


def synthetic_batch(arguments: argparse.Namespace, device: torch.device) -> TrainBatch:
    """Random pixels and labels: B tasks of one step."""
    ways, tasks, size = arguments.n_way, arguments.tasks, arguments.image_size
    generator = torch.Generator().manual_seed(0)

    def images(per_class: int) -> tuple[Tensor, Tensor]:
        count = ways * per_class
        pixels = torch.randint(0, 256, (tasks, count, 3, size, size), dtype=torch.uint8, generator=generator)
        return pixels.to(device), (torch.arange(count) % ways).expand(tasks, -1).to(device)

    support, support_labels = images(arguments.n_shot)
    query, query_labels = images(arguments.n_query)
    answers = Answers(query_labels, torch.zeros(tasks, ways, dtype=torch.int64, device=device))
    return TrainBatch((Episode(support, support_labels, query, ways),), (answers,))


def side_by_side(method: Maml, batch: TrainBatch) -> None:
    """Gradients of all tasks as the training loop gets them."""
    method.zero_grad(set_to_none=True)
    method.loss(batch).total.backward()


def one_by_one(method: Maml, batch: TrainBatch) -> None:
    """The same gradients task by task."""
    method.zero_grad(set_to_none=True)
    theta, norms, tasks = dict(method.named_parameters()), names_of_norms(method), batch.tasks()
    network = adapt.network(method.backbone, method.head, batch.episodes[0].n_way)

    def loss_of(weights: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(network(weights, images), labels)

    for support, labels, query, query_labels in zip(*tasks, strict=True):
        phi = dict(theta)
        adapted = [name for name in phi if name not in norms]
        for _ in range(method.config.inner_steps):
            weights = [phi[name] for name in adapted]
            gradients = torch.autograd.grad(loss_of(phi, support, labels), weights, create_graph=True)
            steps = {n: phi[n] - method.config.inner_rate * g for n, g in zip(adapted, gradients, strict=True)}
            phi = phi | steps
        (loss_of(phi, query, query_labels) / len(tasks[0])).backward()


def seconds(call: Callable[[], None], device: torch.device, repeats: int, warm_up: int) -> float:
    clock = Clock(device)
    for index in range(warm_up + repeats):
        with clock.part("warm up" if index < warm_up else "timed"):
            call()
    return median(clock.seconds["timed"])


def captured(call: Callable[[], None]) -> Callable[[], None]:
    """The same as one CUDA graph, as the training loop makes its steps where it can."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def gradients(method: Maml) -> Tensor:
    return torch.cat([p.grad.flatten() for p in method.parameters() if p.grad is not None])


def difference_of_gradients(config: MamlConfig, shape: tuple[int, ...], batch: TrainBatch) -> float:
    """|side by side - one by one| / |one by one| of the first two tasks in float64; refused where it is not tiny."""
    (episode,), (answers,) = batch.episodes, batch.answers
    pixels = {name: getattr(episode, name)[:2].double() / 255 for name in ("support", "query")}
    labels = {name: getattr(answers, name)[:2] for name in ("query_labels", "class_ids")}
    two = replace(episode, support_labels=episode.support_labels[:2], **pixels)
    few = TrainBatch((two,), (replace(answers, **labels),))
    method = Maml(build_backbone("conv32", shape, {}), config).to(episode.support.device, torch.float64)
    found = []
    for call in (side_by_side, one_by_one):
        call(method, few)
        found.append(gradients(method))
    difference = float((found[0] - found[1]).norm() / found[1].norm())
    if not difference < ADMITTED:
        raise EngramError(f"gradients of vmap and loop differ by {difference:.1e} where {ADMITTED:.0e} is admitted")
    return difference


def measure(arguments: argparse.Namespace) -> tuple[Measurement, torch.device]:
    device = choose_device(arguments.device)
    shape = (3, arguments.image_size, arguments.image_size)
    torch.manual_seed(0)
    config = MamlConfig(n_way=arguments.n_way, inner_steps=arguments.inner_steps, tasks_at_once=arguments.tasks_at_once)
    encoder = Encoder(build_backbone("conv32", shape, {}), (0.0,), (1.0,), arguments.precision)
    method = Maml(encoder, config).to(device)
    batch = synthetic_batch(arguments, device)
    difference = difference_of_gradients(config, shape, batch)
    with fast_arithmetic(device):
        many = seconds(lambda: side_by_side(method, batch), device, arguments.repeats, arguments.warm_up)
        single = seconds(lambda: one_by_one(method, batch), device, max(1, arguments.repeats // 3), 1)
        parts = {"vmap": many, "loop": single}
        if device.type == "cuda":
            replay = captured(lambda: side_by_side(method, batch))
            parts["vmap, captured"] = seconds(replay, device, arguments.repeats, arguments.warm_up)
    tasks = arguments.tasks
    rates = {f"tasks_per_s, {name}": round(tasks / value, 2) for name, value in parts.items()}
    rates |= {"ratio": round(single / many, 2), "relative_difference_of_gradients": difference}
    if device.type == "cuda":
        rates["peak_memory_mib"] = round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    setting = {key: value for key, value in vars(arguments).items() if key not in ("out", "device")}
    setting |= {"backbone": "conv32", "threads": torch.get_num_threads(), "target_ratio": TARGET}
    milliseconds = {name: round(1000 * value, 3) for name, value in parts.items()}
    return Measurement("maml_tasks", name_of(device), setting, milliseconds["vmap"], milliseconds, rates), device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    for name, default in (("tasks", 32), ("n-way", 5), ("n-shot", 1), ("n-query", 15), ("inner-steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--image-size", type=int, default=84)
    parser.add_argument("--tasks-at-once", type=int, default=0, help="of the vmap; 0 = all (on a CPU singly)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--repeats", type=int, default=9, help="what the median is taken of; a third for the loop")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/speed"), help="folder the JSON is written to")
    arguments = parser.parse_args()
    measurement, device = measured(measure, arguments)
    table = Table("how", "ms per step", "tasks per s", title=f"{arguments.tasks} tasks on {measurement.device}")
    for name, value in measurement.parts_ms.items():
        table.add_row(name, f"{value:.1f}", f"{measurement.rates[f'tasks_per_s, {name}']:.1f}")
    Console().print(table)
    print(f"vmap is {measurement.rates['ratio']} times the loop (target on a GPU: {TARGET:.0f})")
    tell_load()
    print(f"wrote {measurement.write(arguments.out, f'maml_tasks.{device.type}')}")


if __name__ == "__main__":
    main()
