"""Pickled sets: miniImageNet in its published forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pickled import CHANNELS_FIRST, IMAGES, dump, found

from engram.data.formats.pickles import find_cache, find_class_dict
from engram.errors import EngramError


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_cache_form(tmp_path: Path, protocol: int) -> None:
    content = {"image_data": IMAGES, "class_dict": {"n02": [3, 4, 5], "n01": np.array([2, 0, 1])}}
    dump(tmp_path / "mini-imagenet-cache-val.pkl", content, protocol)
    form = found(find_cache(tmp_path))
    assert form.splits == ("val",)
    source = form.read("val").source
    assert (source.class_names, source.counts) == (("n01", "n02"), (3, 3))
    assert np.array_equal(list(source.read_class(0)), CHANNELS_FIRST[[2, 0, 1]])
    assert find_class_dict(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1], "holds a list where a dict is needed"),
        ({"data": 1}, r"has the keys \['data'\] where 'image_data' and 'class_dict' are needed"),
        ({"image_data": IMAGES, "class_dict": {"a": [0, 6]}}, "names image 6 but holds 6 images"),
        ({"image_data": IMAGES, "class_dict": {"a": [-1]}}, "names image -1 but holds 6 images"),
        ({"image_data": IMAGES, "class_dict": [1]}, "'class_dict' of .* does not give the image numbers of each class"),
    ],
)
def test_bad_caches(tmp_path: Path, content: object, sentence: str) -> None:
    dump(tmp_path / "mini-imagenet-cache-val.pkl", content)
    with pytest.raises(EngramError, match=sentence):
        found(find_cache(tmp_path)).read("val")


@pytest.mark.parametrize("below", ["", "compacted_datasets"])
def test_the_class_dictionary_form(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(exist_ok=True)
    content = {10: list(IMAGES[:2].astype("float32")), 9: IMAGES[2:]}
    dump(tmp_path / below / "mini_imagenet_test.pickle", content, 2)
    source = found(find_class_dict(tmp_path)).read("test").source
    assert (source.class_names, source.counts) == (("0009", "0010"), (4, 2))
    assert np.array_equal(list(source.read_class(1)), CHANNELS_FIRST[:2])


def test_a_class_dictionary_without_images(tmp_path: Path) -> None:
    dump(tmp_path / "mini_imagenet_test.pickle", {"n01": 5})
    with pytest.raises(
        EngramError, match=r"class 'n01' of .*mini_imagenet_test\.pickle is a int where images are needed"
    ):
        found(find_class_dict(tmp_path)).read("test")
