"""One training by several processes, in float64: `python several.py RANK COUNT PORT FOLDER` for each of them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from toy_run import RECIPE, changed, go

from engram import processes
from engram.recipes.schema import Recipe

STEPS = 20
SGD = {"optimiser": "sgd", "learning_rate": 0.05, "iterations": STEPS, "validate_every": 10, "average": 0.9}
SYNCHRONISED = {**SGD, "sequences": 4, "batch_norm_sync": "synchronised"}


class Normed(nn.Sequential):
    """A backbone with BatchNorm and nothing drawn."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        convolution = nn.Conv2d(image_shape[0], 4, 3, stride=3)
        super().__init__(convolution, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.out_shape = (4 * ((image_shape[1] - 3) // 3 + 1) ** 2,)


def _recipe(method: str, train: dict[str, Any], data: dict[str, Any], settings: dict[str, Any]) -> Recipe:
    return changed(
        RECIPE,
        train,
        name=f"{method}/toy",
        method=method,
        backbone=f"{__name__ if __name__ != '__main__' else 'several'}:Normed",
        data=replace(RECIPE.data, **data),
        method_settings=settings,
    )


BASE = {"n_base_classes": 6}
RECIPES = {
    "proto_net": _recipe("proto_net", SYNCHRONISED, {}, {}),
    "cml_bgnn": _recipe("cml_bgnn", SYNCHRONISED, {}, {"width": 8, "n_layers": 2, "bayes": "none", "dropout": 0.0}),
    "maml": _recipe("maml", SYNCHRONISED, {"stream_length": 1}, {"n_way": 3, "inner_steps": 2}),
    "stage_one": _recipe(
        "stage_one", {**SYNCHRONISED, "sequences": 1}, {"class_batch": 8, "augmentation": "standard"}, BASE
    ),
    "lwof": _recipe(
        "lwof", {**SYNCHRONISED, "freeze_backbone": True}, {"class_batch": 7, "augmentation": "affine"}, BASE
    ),
}


def in_float64() -> None:
    """All that training computes, also what it asks to be float32."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]


def main(rank: int, count: int, port: int, folder: Path) -> None:
    in_float64()
    torch.set_num_threads(1)
    share, store = processes.Share(rank, count), dist.TCPStore("127.0.0.1", port, is_master=False)
    with processes.joined(share, "gloo", store=store) if count > 1 else nullcontext():
        for name, recipe in RECIPES.items():
            go(folder / name, recipe)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))  # type: ignore[misc]
