"""The restricted unpickler all pickled datasets are read with.

A pickle is a program. Only numbers, strings, plain containers and descriptions of arrays are admitted; whatever else it
names is refused before it is looked up. No object of numpy is built by the pickle: it gives shapes, names of plain
types and bytes, and the arrays are made here, once their sizes agree.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engram.data.formats.lazy_arrays import LazyArray, OpenFile, Span
from engram.errors import EngramError
from engram.files import open_regular

NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
LAZY_BYTES = 512
"""of a string or of bytes that are left where they are"""
PLAIN_TYPES = {kind.__name__: kind for kind in (dict, float, frozenset, int, list, set, tuple)}
ADMITTED_TYPES = re.compile(r"b1|[iu][1248]|f[248]|[SU]\d{1,6}|O[48]?")
"""names of array types: truth values, numbers, texts, and objects, which are those of the pickle itself"""


class _Type:
    """What a pickle says of an array's type: never handed to numpy before its name is one of `ADMITTED_TYPES`."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name, self.order = name.decode("latin1") if isinstance(name, bytes) else str(name), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]

    def plain(self) -> np.dtype[Any]:
        if not ADMITTED_TYPES.fullmatch(self.name) or self.order not in ("<", ">", "|", "="):
            raise ValueError(f"it has an array of type {self.order}{self.name}, which is no number or text")
        return np.dtype("O" if self.name.startswith("O") else self.order + self.name)


class _Array:
    """What a pickle says of an array; `made` by us."""

    def __init__(self, *_: Any) -> None:
        self.made: np.ndarray | LazyArray = np.empty(0, np.int8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, is_fortran, data = state
        self.made = _array(data, kind, shape, "F" if is_fortran else "C")


def _array(data: Any, kind: _Type, shape: Any, order: str) -> np.ndarray | LazyArray:
    """The array of a description; ValueError or TypeError where its parts do not agree."""
    if not isinstance(kind, _Type) or not isinstance(shape, tuple) or order not in ("C", "F"):
        raise TypeError("it describes an array by things that are none")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"it has an array of the shape {shape}")
    dtype, count = kind.plain(), math.prod(shape)
    if dtype.kind == "O":
        if not isinstance(data, list) or len(data) != count:
            raise ValueError(f"it has an array of {count} objects without as many")
        array = np.empty(count, object)
        array[:] = data
        return array.reshape(shape, order="F" if order == "F" else "C")
    if isinstance(data, Span):
        if order == "C" and shape and dtype.kind in "biuf" and data.size == count * dtype.itemsize:
            return LazyArray(data.file, data.start, shape, dtype)
        data = data.read()
    content = data.encode("latin1") if isinstance(data, str) else data  # Python 2 wrote bytes as strings
    if not isinstance(content, bytes | bytearray) or len(content) != count * dtype.itemsize:
        raise ValueError(f"it has an array of {count} x {dtype.itemsize} bytes without as many")
    array = np.frombuffer(content, dtype) if content else np.empty(count, dtype)
    if dtype.kind == "U":
        array.tolist()  # some numbers are no letters: told now, not when the text is used
    return array.reshape(shape, order="F" if order == "F" else "C")


def _scalar(kind: _Type, data: Any = b"") -> Any:
    if isinstance(kind, _Type) and kind.name.startswith("O"):
        raise ValueError("it has a single number of type object")
    return _array(data, kind, (1,), "C")[0]


class ArrayUnpickler(pickle._Unpickler):
    """Descriptions of arrays and plain containers are unpickled; any other global is an `EngramError` that names it.

    Long bytes are passed over: what comes out knows where in the file they are. It is Python's own unpickler in Python,
    as that in C says nothing of places.
    """

    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    _unframer: Any

    def __init__(self, stream: Any, path: Path) -> None:
        super().__init__(stream, encoding="latin1")  # Python 2 wrote array bytes as strings
        self.path, self.stream, self.file = path, stream, OpenFile(stream)

    def find_class(self, module: str, name: str) -> Any:
        admitted = _admitted(module, name)
        if admitted is None:
            raise EngramError(
                f"{self.path} names '{module}.{name}', which is neither an array nor a plain container and could run "
                f"code: it was not loaded; get the file from its official source"
            )
        return admitted

    def load_long(self, head: str, is_text: bool = False) -> None:
        """Bytes, or a string of Python 2, behind their length."""
        (size,) = struct.unpack(head, self.read(struct.calcsize(head)))
        if size < LAZY_BYTES:
            self.append(self.read(size).decode("latin1") if is_text else self.read(size))
            return
        frame = self._unframer.current_frame  # a part of the file that is in memory already
        left = frame.getbuffer().nbytes - frame.tell() if frame is not None else 0
        if 0 < left < size:
            raise ValueError("bytes go beyond their frame")
        self.append(Span(self.file, self.stream.tell() - left, size))
        if left:
            frame.seek(size, 1)
        else:
            self._unframer.current_frame = None
            self.stream.seek(size, 1)

    dispatch = pickle._Unpickler.dispatch | {
        pickle.BINSTRING[0]: lambda self: self.load_long("<I", is_text=True),
        pickle.BINBYTES[0]: lambda self: self.load_long("<I"),
        pickle.BINBYTES8[0]: lambda self: self.load_long("<Q"),
        pickle.BYTEARRAY8[0]: lambda self: self.load_long("<Q"),
    }


def _admitted(module: str, name: str) -> Any:
    """What a global of a pickle stands for, or None. Functions are made anew, so that no pickle can alter them."""
    if module in NUMPY_MODULES:
        stand_ins = {
            "_reconstruct": lambda *given: _Array(*given),  # the state that follows gives shape, type and data
            "_frombuffer": lambda data, kind, shape, order: _array(data, kind, shape, order),
            "scalar": lambda *given: _scalar(*given),
        }
        return stand_ins.get(name)
    if module == "numpy" and name in ("ndarray", "dtype"):
        return type("ndarray", (), {}) if name == "ndarray" else lambda *given: _Type(*given)
    if module in ("builtins", "__builtin__"):
        return PLAIN_TYPES.get(name)
    if module == "collections" and name in ("OrderedDict", "defaultdict"):
        return dict if name == "OrderedDict" else lambda *_: {}
    if (module, name) == ("_codecs", "encode"):
        return lambda text, encoding="latin1": text.encode("latin1")  # how Python 3 writes bytes for protocol 2
    return None


def _with_arrays(value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    """The same containers with arrays in place of descriptions; ``known`` holds what was met, by its identity."""
    if isinstance(value, _Array):
        return value.made
    if type(value) not in (list, tuple, dict):
        return value
    if id(value) in known:
        return known[id(value)][1]
    known[id(value)] = value, value  # first, as a list may hold itself
    if type(value) is tuple:
        known[id(value)] = value, tuple(_with_arrays(item, known) for item in value)
    elif type(value) is list:
        value[:] = [_with_arrays(item, known) for item in value]
    else:
        value.update({key: _with_arrays(item, known) for key, item in value.items()})
    return known[id(value)][1]


def load_pickle(path: Path) -> Any:
    """The arrays and containers of a pickle; keys that Python 2 or a bytes encoding left as bytes are the caller's.

    Large ones stay in the file: a `LazyArray` for an array, a `Span` for bytes.
    """
    try:
        with open_regular(path) as stream:
            return _with_arrays(ArrayUnpickler(stream, path).load(), {})
    except EngramError:
        raise
    except MemoryError as error:
        raise EngramError(f"{path} needs more memory than there is: use another form of the dataset") from error
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngramError(f"{path} cannot be read as a pickle ({reason}): fetch it again") from error


def load_dict(path: Path) -> dict[Any, Any]:
    """A pickle that must be a dict, with bytes keys as text."""
    content = load_pickle(path)
    if not isinstance(content, Mapping):
        raise EngramError(
            f"{path} holds a {type(content).__name__} where a dict is needed: fetch it from its official source"
        )
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
