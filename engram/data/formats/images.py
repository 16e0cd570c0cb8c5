"""Decoding shared by all formats: any image file to uint8 (channels, height, width).

- The EXIF rotation is applied, an animation gives its first frame.
- Grey, palette, CMYK and 16-bit images become RGB, or one grey channel for one-channel datasets; transparent pixels
  are shown on white.
- An image of another size is resized to the target directly, without a crop and without keeping its proportions
  (bilinear with antialiasing); an image of the right size is not touched. With ``crop``, a share such as 0.875, its
  middle is cut out instead, that share of the largest piece that has the proportions of the target.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from engram.errors import EngramError
from engram.files import read_bytes

MAX_PIXELS = 80_000_000
"""More than any benchmark or common camera; a few kilobytes can announce billions of pixels and fill the memory."""


def decode_image(data: bytes | Path, name: str, image_shape: tuple[int, ...], crop: float | None = None) -> np.ndarray:
    """One encoded image -> uint8 (C, H, W) of ``image_shape``; ``name`` is what an error calls it."""
    with opened_image(data, name) as image:
        return fit_picture(image, name, image_shape, crop)


@contextmanager
def opened_image(data: bytes | Path, name: str) -> Iterator[Image.Image]:
    """One encoded image, decoded once however often `fit_picture` is asked for it."""
    content = _content(data, name)
    if not content:
        raise EngramError(f"the image {name} is empty (0 bytes): fetch it again, or remove it")
    with _explained(name), Image.open(io.BytesIO(content)) as image:
        yield image


def fit_picture(image: Image.Image, name: str, image_shape: tuple[int, ...], crop: float | None = None) -> np.ndarray:
    """One picture that Pillow has open -> uint8 (C, H, W) of ``image_shape``; of an animation, the frame at hand."""
    with _explained(name):
        _guard_size(image, name)
        return _to_array(ImageOps.exif_transpose(image), name, image_shape, crop)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Whatever a decoder raises, as one sentence about the image."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's size warning (there is a guard) and remarks on odd metadata
            yield
    except EngramError:
        raise
    except UnidentifiedImageError as error:
        raise EngramError(f"{name} is not an image, whatever its name says: replace it, or remove it") from error
    except Image.DecompressionBombError as error:
        raise EngramError(f"the image {name} is too large ({error}): make it smaller, or remove it") from error
    except Exception as error:  # decoders raise almost anything on damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngramError(f"the image {name} is damaged ({reason}): fetch it again, or remove it") from error


def fit_array(array: np.ndarray, name: str, image_shape: tuple[int, ...], crop: float | None = None) -> np.ndarray:
    """One image that is an array already, (H, W), (H, W, C) or (C, H, W), bytes or floats 0..255 -> uint8 (C, H, W)."""
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = np.moveaxis(array, 0, 2)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)) or array.size == 0:
        raise EngramError(f"{name} has the shape {array.shape} where an image (height, width, 3) is needed")
    if array.dtype != np.uint8:
        array = _to_bytes(array, name)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim == 3 and (3, *array.shape[:2]) == tuple(image_shape) and crop is None:
        return np.ascontiguousarray(np.moveaxis(array, 2, 0))
    return _to_array(Image.fromarray(np.ascontiguousarray(array)), name, image_shape, crop)


def _to_bytes(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or array.min() < 0 or array.max() > 255:
        raise EngramError(f"{name} holds {array.dtype} values that are not pixels of 0 to 255")
    if array.dtype.kind == "f" and 0 < array.max() <= 1:
        raise EngramError(
            f"{name} holds values of 0 to {array.max():.3g} where pixels of 0 to 255 are needed: scale it back"
        )
    return np.rint(array).astype(np.uint8)


def _content(data: bytes | Path, name: str) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return read_bytes(data)
    except OSError as error:
        raise EngramError(f"the image {name} cannot be read ({error.strerror or error}): check the file") from error


def _guard_size(image: Image.Image, name: str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise EngramError(
            f"the image {name} is too large ({width} x {height} = {width * height} pixels where {MAX_PIXELS} are "
            f"admitted): make it smaller, or remove it"
        )


def _to_array(image: Image.Image, name: str, image_shape: tuple[int, ...], crop: float | None) -> np.ndarray:
    channels, height, width = image_shape
    image = _flatten(image, name).convert("L" if channels == 1 else "RGB")
    if crop is not None:
        scale = crop * min(image.width / width, image.height / height)
        left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
        middle = (left, top, left + scale * width, top + scale * height)
        image = image.resize((width, height), Image.Resampling.BILINEAR, middle)
    elif image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if channels == 1 else np.ascontiguousarray(np.moveaxis(array, 2, 0))


def _flatten(image: Image.Image, name: str) -> Image.Image:
    """The same picture without transparency and with 8 bits, so that a plain conversion is right."""
    if image.mode.startswith("I"):  # 16-bit grey, which a plain conversion would clip at 255
        return Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    if image.mode == "F":
        raise EngramError(f"the image {name} holds floating-point pixels: save it as an 8-bit or 16-bit image")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return image
