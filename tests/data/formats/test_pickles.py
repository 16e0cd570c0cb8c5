"""Pickled sets: miniImageNet in its published forms, and what the unpickler refuses."""

from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pickled import CHANNELS_FIRST, IMAGES, dump, found

from engram.data.formats.pickles import find_cache, find_class_dict, load_pickle
from engram.errors import EngramError


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_and_plain_containers_pass(tmp_path: Path, protocol: int) -> None:
    content = {
        "array": IMAGES[:2],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "words": np.array(["a", b"b", None], dtype=object),
        "scalar": np.float32(0.5),
        "plain": [1, (2.5, "text"), {3}, b"bytes", None, frozenset({4})],
        "ordered": collections.OrderedDict(a=1),
        "default": collections.defaultdict(list, a=[1]),
    }
    loaded = load_pickle(dump(tmp_path / "a.pkl", content, protocol))
    assert np.array_equal(loaded["array"], content["array"])
    assert np.array_equal(loaded["fortran"], content["fortran"])
    assert list(loaded["words"]) == ["a", b"b", None]
    assert loaded["scalar"] == 0.5
    assert {key: loaded[key] for key in ("plain", "ordered", "default")} == {
        key: content[key] for key in ("plain", "ordered", "default")
    }


def test_old_and_new_numpy_paths_pass(tmp_path: Path) -> None:
    content = pickle.dumps(IMAGES[0], protocol=2)
    module = b"numpy._core.multiarray" if b"numpy._core.multiarray" in content else b"numpy.core.multiarray"
    for name in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        (tmp_path / "a.pkl").write_bytes(content.replace(module, name))
        assert np.array_equal(load_pickle(tmp_path / "a.pkl"), IMAGES[0])


def test_a_python_2_pickle_passes(tmp_path: Path) -> None:
    """Python 2 wrote the bytes of an array as a string, which needs the latin1 encoding."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I3\nt"
    dtype = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
    (tmp_path / "a.pkl").write_bytes(array + dtype + b"I00\nS'\\x01\\xff\\x03'\ntb.")
    assert load_pickle(tmp_path / "a.pkl").tolist() == [1, 255, 3]


@pytest.mark.parametrize(
    ("function", "name"),
    [(os.system, f"{os.system.__module__}.system"), (eval, "builtins.eval"), (getattr, "builtins.getattr"),
     (np.load, "numpy.load"), (Path, "pathlib.*")],
)  # fmt: skip
def test_code_is_refused(tmp_path: Path, function: Any, name: str) -> None:
    marker = tmp_path / "ran"
    path = dump(tmp_path / "mini-imagenet-cache-train.pkl", {"image_data": Calls(function, f"touch {marker}")})
    with pytest.raises(EngramError, match=rf"mini-imagenet-cache-train\.pkl names '{name}', which is neither an array"):
        load_pickle(path)
    assert not marker.exists()


def test_a_pickle_cannot_alter_what_it_names(tmp_path: Path) -> None:
    """BUILD sets attributes on whatever lies on the stack, also on a function named by GLOBAL."""
    content = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}X\x01\x00\x00\x00aK\x01sb."
    (tmp_path / "a.pkl").write_bytes(content)
    load_pickle(tmp_path / "a.pkl")
    assert not hasattr(np.empty, "a")
    assert np.array_equal(load_pickle(dump(tmp_path / "b.pkl", IMAGES[0])), IMAGES[0])


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04\x95", pickle.dumps(IMAGES)[:500]])
def test_damaged_pickles_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(EngramError, match=r"a\.pkl cannot be read as a pickle \(.+\): fetch it again"):
        load_pickle(tmp_path / "a.pkl")


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
