"""Each image through the encoder once: tasks share images, and most methods see them through the encoder alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from engram.data.episodes import TaskList
from engram.data.store import Store
from engram.errors import EngramError
from engram.models.features import looked
from engram.processes import ALL, Share, chained
from engram.protocol import Protocol
from engram.types import EmbeddingMethod, Method

LARGEST = 2**30
"""bytes that features may take"""


@contextmanager
def looking(method: Method, store: Store, protocol: Protocol) -> Iterator[None]:
    """The method's encoder sees each image's middle, or the image and its mirror image, as the protocol asks."""
    if (protocol.views, protocol.window) == (store.views, store.window):  # features may be so already
        yield
        return
    asked = f"views = {protocol.views}" if protocol.window == store.window else f"window = '{protocol.window}'"
    if not isinstance(method, EmbeddingMethod):
        raise EngramError(
            f"{asked} changes what the encoder sees but {method.card.title} does not see images through its backbone "
            f"alone: leave it out"
        )
    if not store.is_pixels:
        raise EngramError(
            f"{asked} is for images but {store.info.dataset} {store.info.split} holds features: leave it out, or write "
            f"features with engram features RUN FOLDER --views or --window"
        )
    encoder = method.backbone
    method.backbone = looked(encoder, store.image_shape, protocol.views, protocol.window)
    try:
        yield
    finally:
        method.backbone = encoder


@contextmanager
def encoded(
    method: Method, store: Store, tasks: TaskList, device: torch.device | str, at_once: int, share: Share = ALL
) -> Iterator[Store]:
    """The store to ask from: one of features, while ``method`` takes them as they are, where that is less work.

    Processes encode their ``share`` each, in the very batches of one alone, and all get the features of all.
    """
    rows = np.unique(np.concatenate([tasks.support_rows.ravel(), tasks.query_rows.ravel()]))
    if not _pays(method, store, tasks.support_rows.size + tasks.query_rows.size, len(rows)):
        yield store
        return
    encoder = method.backbone
    width: tuple[int, ...] = encoder.out_shape  # type: ignore[assignment]
    features = torch.zeros(len(store.images), *width, device=device)
    parts = torch.from_numpy(rows).split(at_once)
    own = [encoder(store.gather(part).to(device)) for part in parts[share.of(len(parts))]]
    all_seen = own if share.count == 1 else chained([seen.cpu() for seen in own], share)
    for part, seen in zip(parts, all_seen, strict=True):
        features[part.to(device)] = seen.to(device)
    method.backbone = Encoded(width)
    try:
        yield Store(features, store.offsets, store.info)
    finally:
        method.backbone = encoder


def _pays(method: Method, store: Store, n_asked: int, n_images: int) -> bool:
    """Features of an image must not depend on the images beside it, fit in memory, and be asked for more than once."""
    if not isinstance(method, EmbeddingMethod) or type(method).embed is not EmbeddingMethod.embed:
        return False
    size = 4 * len(store.images) * prod(getattr(method.backbone, "out_shape", (LARGEST,)))
    return (
        store.is_pixels and method.card.batch_norm in ("running", "none") and size <= LARGEST and n_asked > 2 * n_images
    )


class Encoded(nn.Module):
    """In the place of an encoder whose work is done."""

    def __init__(self, out_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_shape = out_shape

    def forward(self, features: Tensor) -> Tensor:
        return features.float()  # they may be stored in half precision, as for `Encoder`
