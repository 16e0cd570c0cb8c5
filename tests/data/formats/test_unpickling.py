"""The unpickler of datasets: arrays and plain containers pass, code and forged arrays do not."""

from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pickled import IMAGES, dump

from engram.data.formats.lazy_arrays import LazyArray, Span
from engram.data.formats.unpickling import load_pickle
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
    assert np.asarray(load_pickle(tmp_path / "a.pkl")).tolist() == [1, 255, 3]


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


class Described:
    """Pickles as an array of our choosing: type with its state, shape and data."""

    def __init__(self, kind: str, shape: Any, data: Any, type_state: tuple[Any, ...] = ()) -> None:
        self.state = (1, shape, _Kind(kind, type_state), False, data)

    def __reduce__(self) -> Any:
        return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), self.state


class _Kind:
    def __init__(self, name: str, state: tuple[Any, ...]) -> None:
        self.name, self.state = name, state or (3, "<", None, None, None, -1, -1, 0)

    def __reduce__(self) -> Any:
        return np.dtype, (self.name, False, True), self.state


class Number:
    """Pickles as a single number of any type."""

    def __init__(self, kind: str, state: tuple[Any, ...], data: Any) -> None:
        self.arguments = (_Kind(kind, state), data)

    def __reduce__(self) -> Any:
        return np._core.multiarray.scalar, self.arguments


NO_OBJECT = (3, "|", None, None, None, -1, -1, 0)
"""the state of a type that says "no object inside", whatever the type is"""


@pytest.mark.parametrize(
    "forged",
    [
        Number("O8", NO_OBJECT, b"A" * 8),  # bytes as a pointer
        Number("V8", (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0), b"A" * 8),
        Described("O8", (2,), b"A" * 16, NO_OBJECT),
        Described("V8", (1,), b"A" * 8),
        Described("u1", (3,), b"12"),
        Described("u1", (1,), b"12"),
        Described("u1", (-1,), b"12"),
        Described("u1", (2**40, 2**40), b"12"),
        Described("u1", (2.0,), b"12"),
        Described("u1", [2], b"12"),
        Described("f8", (1,), b"12"),
        Described("M8", (1,), b"A" * 8),
        Described("U1", (1,), b"\xff\xff\xff\xff"),
        Described("O8", (2,), [1]),
        Described("u1,O8", (1,), b"A" * 9),
        Described("u1", (2,), 12),
    ],
    ids=[f"forged-{n}" for n in range(16)],
)
def test_forged_arrays_are_refused(tmp_path: Path, forged: Any) -> None:
    for protocol in (2, 5):
        with pytest.raises(EngramError, match=r"a\.pkl (cannot be read as a pickle|names )"):
            load_pickle(dump(tmp_path / "a.pkl", {"image_data": forged}, protocol))


def test_an_array_met_twice_is_one_and_doubled_tuples_take_no_time(tmp_path: Path) -> None:
    doubled: Any = (IMAGES[0],)
    for _ in range(60):
        doubled = (doubled, doubled)
    endless: list[Any] = [IMAGES[1]]
    endless.append(endless)
    loaded = load_pickle(dump(tmp_path / "a.pkl", {"doubled": doubled, "endless": endless}))
    assert loaded["doubled"][0] is loaded["doubled"][1]
    assert loaded["endless"][1] is loaded["endless"] and np.array_equal(loaded["endless"][0], IMAGES[1])


def test_nothing_of_numpy_is_within_reach_of_a_pickle(tmp_path: Path) -> None:
    class Names:
        def __init__(self, thing: Any) -> None:
            self.thing = thing

        def __reduce__(self) -> Any:
            return list, ((self.thing,),)

    (thing,) = load_pickle(dump(tmp_path / "a.pkl", Names(np.dtype)))
    assert thing is not np.dtype and not isinstance(thing("u1", False, True), np.dtype)


@pytest.mark.parametrize("protocol", range(6))
def test_images_are_left_in_their_file(tmp_path: Path, protocol: int) -> None:
    """One large array, and many small ones in a frame; protocols below 3 write bytes as texts, which are read."""
    many = [np.ascontiguousarray(image[:20]) for image in IMAGES]
    path = dump(tmp_path / "a.pkl", {"one": IMAGES, "many": many, "png": [b"x" * 600], "name": "y" * 600}, protocol)
    lazy = load_pickle(path)
    for a, b in zip(many, lazy["many"], strict=True):
        assert np.array_equal(a, np.asarray(b))
    assert np.array_equal(IMAGES, np.asarray(lazy["one"])) and np.array_equal(IMAGES[3], lazy["one"][3])
    assert lazy["name"] == "y" * 600
    if protocol > 2:
        assert all(isinstance(a, LazyArray) for a in (lazy["one"], *lazy["many"]))
        assert isinstance(lazy["png"][0], Span) and lazy["png"][0].read() == b"x" * 600


def test_long_strings_of_python_2_are_bytes_in_the_file(tmp_path: Path) -> None:
    head = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I600\nt"
    dtype = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
    (tmp_path / "a.pkl").write_bytes(head + dtype + b"I00\nT" + (600).to_bytes(4, "little") + b"\xff" * 600 + b"tb.")
    array = load_pickle(tmp_path / "a.pkl")
    assert isinstance(array, LazyArray) and np.array_equal(np.asarray(array), np.full(600, 255))
