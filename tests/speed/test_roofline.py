"""The roofline counts what a step does: against counts made by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.measure import synthetic_store
from benchmarks.roofline import (
    PUBLIC_LOOP_MS,
    PUBLIC_SETTING,
    Machine,
    Pass,
    PassCounter,
    beside_the_public_loop,
    measure_machine,
    passes_of_a_step,
)
from engram.recipes import load_recipe
from engram.training.trainer import Trainer

FLOAT = 4


def counted(module: nn.Module, inputs: torch.Tensor) -> list[Pass]:
    with PassCounter() as counter:
        module(inputs).sum().backward()
    return counter.passes


def test_a_convolution_forward_and_backward() -> None:
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    forward, backward = counted(nn.Conv2d(3, 5, 3, padding=1, bias=False), x)
    product = 2 * (2 * 8 * 8) * 5 * (3 * 3 * 3)
    inputs, outputs, weights = 2 * 3 * 64, 2 * 5 * 64, 5 * 27
    assert (forward.flops, forward.traffic) == (product, FLOAT * (inputs + outputs + weights))
    assert backward.flops == 2 * product
    # for the inputs: gradient and weights in, their gradient out; for the weights: gradient and inputs in, theirs out
    assert backward.traffic == FLOAT * ((outputs + weights + inputs) + (outputs + inputs + weights))


def test_the_first_layer_has_no_input_gradient() -> None:
    forward, backward = counted(nn.Conv2d(3, 5, 3, padding=1, bias=False), torch.randn(2, 3, 8, 8))
    assert backward.flops == forward.flops


def test_a_normalisation_passes_five_times_over_its_map() -> None:
    passes = counted(nn.BatchNorm2d(3), torch.randn(2, 3, 8, 8, requires_grad=True))
    assert [p.flops for p in passes] == [0, 0]
    assert sum(p.traffic for p in passes) == 5 * FLOAT * 2 * 3 * 64


def test_each_pass_takes_the_longer_of_arithmetic_and_traffic() -> None:
    machine = Machine(100.0, {torch.float32: 10.0})
    assert machine.seconds([Pass(50, 100, torch.float32), Pass(10, 300, torch.float32)]) == 5 + 3


def test_speeds_of_this_machine_are_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(measure_machine.__globals__["COPIED_BYTES"], "cpu", 2**12)
    monkeypatch.setitem(measure_machine.__globals__["MATRIX_SIZE"], "cpu", 8)
    machine = measure_machine(torch.device("cpu"), {torch.float32})
    assert machine.bytes_per_second > 0 and machine.flops_per_second[torch.float32] > 0


@pytest.mark.parametrize("name", ["proto_net/glyphs_5w1s", "maml/glyphs_quick"])
def test_the_encoder_of_a_whole_step_is_counted_also_inside_vmap(name: str) -> None:
    """MAML's tasks go side by side through vmap, which hides their number from a module; the counter sees it."""
    recipe = load_recipe(name)
    stores = {split: synthetic_store(recipe.data.dataset, split, 20) for split in ("train", "val")}
    trainer = Trainer(recipe, stores, Path("no-such-run"), torch.device("cpu"))
    trainer.begin(resume=False)
    data = recipe.data
    images = recipe.train.sequences * data.stream_length * data.n_way * (data.n_shot + data.n_query)
    method = trainer.method.eval()
    with torch.no_grad(), PassCounter() as counter:
        method.backbone(torch.zeros(1, *stores["train"].image_shape, dtype=torch.uint8))
    method.train()
    forward = images * sum(p.flops for p in counter.passes)
    step = sum(p.flops for p in passes_of_a_step(trainer))
    assert 2 * forward < step, "at least forward and the gradient of the weights"


def test_only_the_same_work_on_the_same_gpu_stands_beside_the_public_loop() -> None:
    learner = SimpleNamespace(config=SimpleNamespace(n_layers=3))
    trainer: Any = SimpleNamespace(method=learner, recipe=SimpleNamespace(method="cml_bgnn"))
    assert beside_the_public_loop(trainer, "NVIDIA H200", PUBLIC_SETTING, PUBLIC_LOOP_MS / 50) == 50
    assert beside_the_public_loop(trainer, "NVIDIA A100", PUBLIC_SETTING, 7.66) is None
    assert beside_the_public_loop(trainer, "NVIDIA H200", {**PUBLIC_SETTING, "stream_length": 4}, 7.66) is None
    learner.config.n_layers = 1
    assert beside_the_public_loop(trainer, "NVIDIA H200", PUBLIC_SETTING, 7.66) is None
