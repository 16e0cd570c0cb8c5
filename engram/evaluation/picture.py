"""One test task as a person sees it: images, answers and the graph of every layer, as plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from engram.data.episodes import episodes_at, frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.source import resolve_model
from engram.files import check_overwritable, model_folder
from engram.machine.device import choose_device
from engram.models.features import open_stores
from engram.protocol import Protocol
from engram.types import Method

SEED = 7
"""of the task: the same one for every model"""


@torch.no_grad()
def episode_arrays(
    method: Method, store: Store, device: torch.device, n_way: int = 5, n_query: int = 2
) -> dict[str, Any]:
    """Supports, queries, labels, probabilities, class names, and edges (L, V, V) where the method has a graph.

    Shapes: images (S or Q, H, W) or (S or Q, H, W, 3) uint8, probabilities (Q, N)
    """
    protocol = Protocol(store.info.dataset, n_way=n_way, n_query=n_query, n_sequences=1, seed=SEED)
    tasks = frozen_tasks(store, protocol)
    (episode,), (answers,) = episodes_at(store, tasks, n_way, device)
    prediction = method.eval().predict(episode)
    edges = prediction.details.get("edges")
    return {
        "images_support": _pixels(episode.support[0]),
        "support_labels": episode.support_labels[0].cpu().numpy(),
        "images_query": _pixels(episode.query[0]),
        "query_labels": answers.query_labels[0].cpu().numpy(),
        "edges": None if edges is None else edges[0].float().cpu().numpy(),
        "probabilities": prediction.log_probs[0].exp().cpu().numpy(),
        "class_names": [store.info.class_names[i] for i in tasks.class_ids[0, 0]],
    }


def _pixels(images: torch.Tensor) -> np.ndarray:
    """(n, C, H, W) -> (n, H, W) for one channel, (n, H, W, C) for three."""
    array = images.cpu().numpy()
    return array[:, 0] if array.shape[1] == 1 else array.transpose(0, 2, 3, 1)


def _check_place(out: Path) -> None:
    """Only a file of its own kind is written over; numpy would add the ending by itself, also to a folder's name."""
    if out.suffix != ".npz" or out.is_dir():
        raise EngramError(f"{out} is no name of a picture: name a file, such as results/pictures/NAME.npz")
    check_overwritable(out, ".npz", "images_support.npy")  # its first array


def write_picture(model: str, out: Path, data: Path | None = None, device: str = "auto") -> Path:
    """Answer one frozen test task of a model's own dataset and keep it for the report."""
    where = choose_device(device)
    _check_place(out)
    source = resolve_model(str(model_folder(model)), None)
    store = open_stores(source.asked.data, ("test",), data, None)["test"]
    arrays = episode_arrays(source.build(store).to(where), store, where)
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in arrays.items() if value is not None}
    np.savez_compressed(out, **kept, title=np.array(source.recipe.name))
    return out
