"""A training by several processes: each draws the tasks of a whole step and learns from its share of them.

`engram.machine.together` brings them together; `engram.processes` is how they tell each other.
"""

from __future__ import annotations

import torch

from engram import processes
from engram.errors import EngramError
from engram.nn.synchronised import synchronise
from engram.processes import Share
from engram.recipes.schema import Recipe
from engram.types import Method


def share_out(recipe: Recipe, method: Method) -> tuple[Share, Share]:
    """What this process takes of a step's sequences and of its base-class images; refused where they do not divide.

    Where the recipe asks for it, the method's BatchNorm goes by all of them from now on.
    """
    mine, whole = processes.mine(), method.goes_whole
    for table, key, size in (
        ("train", "sequences", recipe.train.sequences),
        ("data", "class_batch", recipe.data.class_batch),
    ):
        if size % mine.count and key != whole:
            near = max(mine.count, round(size / mine.count) * mine.count)
            raise EngramError(
                f"{recipe.name} [{table}]: {key} = {size} does not divide among {mine.count} processes: set it to "
                f"{near}, or use another number of devices"
            )
    if mine.count > 1 and recipe.train.batch_norm_sync == "synchronised":
        synchronise(method)
    return (processes.ALL if whole == "sequences" else mine), (processes.ALL if whole == "class_batch" else mine)


def seed_step(seed: int, iteration: int) -> None:
    """What a method draws by itself in a step differs from process to process: the first goes on as if it were alone,
    and the others begin anew, so that they have no state to be saved."""
    if rank := processes.mine().rank:
        torch.manual_seed(hash((seed, iteration, rank)) % 2**63)
