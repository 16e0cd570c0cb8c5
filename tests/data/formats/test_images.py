"""Decoding: every mode becomes the store's shape, every damaged file becomes one sentence."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.data.formats import images
from engram.data.formats.images import decode_image, fit_array, fit_picture
from engram.errors import EngramError

SHAPE = (3, 8, 8)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_an_image_of_the_right_size_is_not_touched() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    decoded = decode_image(encode(Image.fromarray(pixels)), "a.png", SHAPE)
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_the_shape(mode: str, channels: int) -> None:
    image = Image.new("L", (10, 6), 255).convert(mode) if mode != "I;16" else Image.new("I;16", (10, 6), 65535)
    data = encode(image, "TIFF" if mode == "CMYK" else "PNG")
    decoded = decode_image(data, "a", (channels, 8, 8))
    assert decoded.shape == (channels, 8, 8)
    assert decoded.min() >= 254  # white stays white, 16-bit white too


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    data = encode(Image.fromarray(np.full((8, 8), 128 * 257, dtype=np.uint16)))
    assert (decode_image(data, "a", SHAPE) == 128).all()


def test_floating_point_pixels_are_refused() -> None:
    with pytest.raises(EngramError, match=r"the image a\.tif holds floating-point pixels"):
        decode_image(encode(Image.new("F", (4, 4), 0.5), "TIFF"), "a.tif", SHAPE)


def test_transparent_pixels_are_shown_on_white() -> None:
    assert (decode_image(encode(Image.new("RGBA", (8, 8), (255, 0, 0, 0))), "a", SHAPE) == 255).all()
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([255, 0, 0] + [0, 0, 0] * 255)
    assert (decode_image(encode(palette, transparency=0), "a", SHAPE) == 255).all()


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (8, 8), "black")
    image.paste((255, 255, 255), (0, 0, 8, 4))  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees clockwise
    decoded = decode_image(encode(image, exif=exif), "a", SHAPE)
    assert (decoded[:, :, 4:] == 255).all()
    assert (decoded[:, :, :4] == 0).all()


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("white", "black")]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode_image(data, "a.gif", SHAPE) == 255).all()


def test_a_path_is_read(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "white").save(tmp_path / "a.png")
    assert decode_image(tmp_path / "a.png", "a.png", SHAPE).shape == SHAPE
    with pytest.raises(EngramError, match=r"the image b\.png cannot be read \(No such file"):
        decode_image(tmp_path / "b.png", "b.png", SHAPE)


def test_a_truncated_jpeg_is_named() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), "JPEG")
    with pytest.raises(EngramError, match=r"the image cat\.jpg is damaged \(.*truncated.*\): fetch it again"):
        decode_image(data[: len(data) // 2], "cat.jpg", SHAPE)


def test_text_named_jpg_is_named() -> None:
    with pytest.raises(EngramError, match=r"cat\.jpg is not an image, whatever its name says"):
        decode_image(b"a long story about a cat", "cat.jpg", SHAPE)


def test_an_empty_file_is_named() -> None:
    with pytest.raises(EngramError, match=r"the image cat\.jpg is empty \(0 bytes\)"):
        decode_image(b"", "cat.jpg", SHAPE)


def test_huge_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 99)
    sentence = r"the image a is too large \(10 x 10 = 100 pixels where 99 are admitted\): make it smaller"
    with pytest.raises(EngramError, match=sentence):
        decode_image(encode(Image.new("L", (10, 10))), "a", SHAPE)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)  # Pillow's own guard raises beyond twice its limit
    with pytest.raises(EngramError, match=r"the image a is too large \(.*100 pixels.*\)"):
        decode_image(encode(Image.new("L", (10, 10))), "a", SHAPE)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_arrays_fit_in_both_layouts(layout: str, dtype: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    given = (pixels if layout == "HWC" else pixels.transpose(2, 0, 1)).astype(dtype)
    assert np.array_equal(fit_array(given, "a", SHAPE), pixels.transpose(2, 0, 1))


def test_grey_and_larger_arrays_fit() -> None:
    assert (fit_array(np.full((16, 12), 7, np.uint8), "a", SHAPE) == 7).all()
    assert (fit_array(np.full((16, 12, 1), 7, np.uint8), "a", SHAPE) == 7).all()


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((2, 2, 2, 2), np.uint8), r"img has the shape \(2, 2, 2, 2\) where an image"),
        (np.full((8, 8, 3), 300), "img holds int64 values that are not pixels"),
        (np.full((8, 8, 3), 0.5), r"img holds values of 0 to 0\.5 where pixels of 0 to 255 are needed"),
    ],
)
def test_arrays_that_are_no_images_are_refused(array: np.ndarray, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        fit_array(array, "img", SHAPE)


def test_only_regular_files_are_opened_as_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "endless.png"):
        with pytest.raises(EngramError, match=rf"{name} cannot be read \(it is not a regular file\)"):
            decode_image(tmp_path / name, name, (3, 84, 84))


def test_the_middle_of_a_picture_is_cut_out_where_asked() -> None:
    """40 x 20 pixels in four upright stripes: all of the short side, and half of it, seen at 10 x 10."""
    stripes = np.repeat(np.array([0, 80, 160, 240], np.uint8), 10)[None].repeat(20, 0)
    image = Image.fromarray(stripes)
    whole, half, squeezed = (fit_picture(image, "x", (1, 10, 10), crop)[0] for crop in (1.0, 0.5, None))
    assert whole[5, 1] == 80 and whole[5, 8] == 160 and squeezed[5, 0] == 0 and squeezed[5, 9] == 240
    assert half[5].tolist() == [80] * 5 + [160] * 5
    colours = np.stack([stripes] * 3, -1)
    assert (fit_array(colours, "x", (3, 10, 10), 1.0)[1] == whole).all()
