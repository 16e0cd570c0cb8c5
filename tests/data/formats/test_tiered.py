"""tieredImageNet in its published forms, and labels that do not fit."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pickled import CHANNELS_FIRST, IMAGES, dump, found
from PIL import Image

from engram.data.formats.tiered import _open_npz, find_npz, find_png
from engram.errors import EngramError


def write_tiered(root: Path, labels: dict[Any, Any], form: str) -> None:
    if form == "png":
        encoded = []
        for image in IMAGES:
            stream = io.BytesIO()
            Image.fromarray(image).save(stream, "PNG")
            encoded.append(np.frombuffer(stream.getvalue(), np.uint8)[:, None])
        dump(root / "val_images_png.pkl", encoded, 2)
    else:
        save = np.savez if form == "npz" else np.savez_compressed
        save(root / "val_images.npz", images=IMAGES[:, :, :, ::-1])  # as OpenCV unpacks the PNG files
    dump(root / "val_labels.pkl", labels, 2)


LABELS = {
    "label_specific": np.array([2, 0, 2, 0, 0, 2]),
    "label_general": np.zeros(6, int),
    "label_specific_str": ["a", "b", "c"],
}


@pytest.mark.parametrize("form", ["png", "npz", "compressed"])
@pytest.mark.parametrize("keys", ["text", "bytes"])
def test_all_tiered_forms_give_the_same(tmp_path: Path, form: str, keys: str) -> None:
    labels = {key.encode() if keys == "bytes" else key: value for key, value in LABELS.items()}
    write_tiered(tmp_path, labels, form)
    source = found((find_png if form == "png" else find_npz)(tmp_path)).read("val")
    assert (source.class_names, source.counts) == (("a", "c"), (3, 3))
    assert np.array_equal(list(source.read_class(0)), CHANNELS_FIRST[[1, 3, 4]])
    assert np.array_equal(list(source.read_class(1)), CHANNELS_FIRST[[0, 2, 5]])


def test_tiered_labels_without_names_and_with_twins(tmp_path: Path) -> None:
    write_tiered(tmp_path, {"labels": LABELS["label_specific"]}, "npz")
    assert found(find_npz(tmp_path)).read("val").class_names == ("class000", "class002")
    dump(tmp_path / "val_labels.pkl", {**LABELS, "label_specific_str": ["crane", "b", "crane"]})
    assert found(find_npz(tmp_path)).read("val").class_names == ("crane #0", "crane #2")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({"label": 1}, r"val_labels\.pkl has the keys \['label'\] where 'label_specific' is needed"),
        ({"labels": np.zeros((2, 2))}, r"'labels' of .*val_labels\.pkl is float64 \(2, 2\) where one class number"),
        ({"labels": np.zeros(5, int)}, r"val_images\.npz holds 6 images but .*val_labels\.pkl labels 5"),
    ],
)
def test_bad_tiered_labels(tmp_path: Path, labels: dict[Any, Any], sentence: str) -> None:
    write_tiered(tmp_path, labels, "npz")
    with pytest.raises(EngramError, match=sentence):
        list(found(find_npz(tmp_path)).read("val").read_class(0))


def test_tiered_files_that_are_missing_or_damaged(tmp_path: Path) -> None:
    assert find_png(tmp_path) is None
    write_tiered(tmp_path, LABELS, "npz")
    form = found(find_npz(tmp_path))
    (tmp_path / "val_images.npz").write_bytes(b"PK nothing")
    with pytest.raises(EngramError, match=r"val_images\.npz cannot be read as an npz with 'images'"):
        list(form.read("val").read_class(0))
    np.savez(tmp_path / "val_images.npz", images=IMAGES[:, :, :, 0])
    with pytest.raises(
        EngramError, match=r"'images' of .* has the shape \(6, 84, 84\) where \(n, 84, 84, 3\) is needed"
    ):
        list(form.read("val").read_class(0))
    (tmp_path / "val_labels.pkl").unlink()
    with pytest.raises(EngramError, match=r"val_images\.npz has no val_labels\.pkl beside it"):
        form.read("val")
    dump(tmp_path / "val_images_png.pkl", [np.frombuffer(b"not a png", np.uint8)] * 6)
    dump(tmp_path / "val_labels.pkl", LABELS)
    with pytest.raises(EngramError, match=r"number 1 of .*val_images_png\.pkl is not an image"):
        list(found(find_png(tmp_path)).read("val").read_class(0))


def npz_of(path: Path, header: dict[str, Any], data: bytes, compress: bool) -> Path:
    """An npz with one array, whatever its header announces."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        archive.writestr("images.npy", stream.getvalue() + data)
    return path


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize(
    ("descr", "shape", "says"),
    [
        ("|u1", (10**6, 84, 84, 3), r"an array of \(1000000, 84, 84, 3\) in \d+ bytes"),
        ("|u1", (-1, 84, 84, 3), r"an array of uint8 \(-1, 84, 84, 3\)"),
        ("|O", (1, 84, 84, 3), "an array of object"),
    ],
)
def test_an_npz_that_announces_more_than_it_holds(
    tmp_path: Path, compress: bool, descr: str, shape: tuple[int, ...], says: str
) -> None:
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    with pytest.raises(EngramError, match=f"cannot be read as an npz with 'images' .*{says}"):
        _open_npz(npz_of(tmp_path / "a.npz", header, b"\1" * 100, compress))


def test_an_npz_that_a_few_bytes_blow_up(tmp_path: Path) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (1000, 84, 84, 3)}
    with pytest.raises(EngramError, match=r"it announces \d+ bytes in a file of \d+"):
        _open_npz(npz_of(tmp_path / "a.npz", header, bytes(1000 * 84 * 84 * 3), True))
