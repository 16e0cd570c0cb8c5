"""Whatever a person calls pictures, as bytes of one shape: paths, Pillow images, arrays and tensors of any size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.data.formats.images import decode_image, fit_array, fit_picture
from engram.errors import EngramError

Item = TypeVar("Item")
Read = TypeVar("Read")
Unreadable = Callable[[int, str], None]
"""told the place of a picture that cannot be read, and the sentence about it"""


def listed(X: Any) -> Sequence[Any]:
    """X as a sequence of single pictures; one picture alone, or rows of numbers, is refused."""
    if isinstance(X, str | Path | Image.Image):
        raise EngramError(f"X is one {type(X).__name__} where a list of pictures is needed: put it into a list")
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, np.ndarray) and X.dtype != object and X.dtype.kind not in "US" and X.ndim not in (3, 4):
        raise EngramError(
            f"X has the shape {X.shape} where pictures are (n, height, width), (n, height, width, 3) or "
            f"(n, 3, height, width): give a list of pictures"
        )
    if not hasattr(X, "__len__") or isinstance(X, dict):
        raise EngramError(f"X is a {type(X).__name__} where a list of pictures is needed")
    return cast(Sequence[Any], X if isinstance(X, list | tuple | np.ndarray) else list(X))


def batches(
    X: Sequence[Any],
    image_shape: tuple[int, ...],
    size: int = 256,
    unreadable: Unreadable | None = None,
    crop: float | None = None,
    places: Sequence[int] | None = None,
) -> Iterator[Tensor]:
    """uint8 (at most ``size``, C, H, W) in order, of all pictures or of those at ``places``. The first bad picture ends
    it; with ``unreadable`` they are told, and left out."""
    asked = range(len(X)) if places is None else places

    def read(place: int) -> np.ndarray | EngramError:
        try:
            return as_bytes(X[place], _name(X[place], place), image_shape, crop)
        except EngramError as error:
            if unreadable is None:
                raise
            return error

    for start in range(0, len(asked), size):
        ready = []
        together = asked[start : start + size]
        for place, found in zip(together, side_by_side(read, together), strict=True):
            if isinstance(found, np.ndarray):
                ready.append(found)
            elif unreadable is not None:
                unreadable(place, str(found))
        if ready:
            yield torch.from_numpy(np.stack(ready))


def side_by_side(read: Callable[[Item], Read], items: Iterable[Item]) -> list[Read]:
    """``read`` of every item, in order, on as many threads as torch has: Pillow decodes without Python's lock."""
    with warnings.catch_warnings(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        warnings.simplefilter("ignore")  # for all at once: a thread that puts its own filters back undoes another's
        return list(pool.map(read, items))


def as_bytes(item: Any, name: str, image_shape: tuple[int, ...], crop: float | None = None) -> np.ndarray:
    """One picture -> uint8 ``image_shape``. Floats are taken as 0..1 where none is above 1, else as 0..255."""
    if isinstance(item, str | Path):
        return decode_image(Path(item), name, image_shape, crop)
    if isinstance(item, Image.Image):
        return fit_picture(item, name, image_shape, crop)
    if isinstance(item, Tensor):
        item = item.detach().cpu().numpy()
    if not isinstance(item, np.ndarray):
        raise EngramError(f"{name} is a {type(item).__name__} where a path, a Pillow image or an array is needed")
    if item.dtype.kind == "f" and item.size and item.min() >= 0 and item.max() <= 1:
        item = item * 255
    return fit_array(item, name, image_shape, crop)


def _name(item: Any, place: int) -> str:
    return str(item) if isinstance(item, str | Path) else f"picture {place} of X"
