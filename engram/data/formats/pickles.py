"""miniImageNet as pickles, and the restricted unpickler all pickled datasets are read with.

- ``mini-imagenet-cache-{train,val,test}.pkl``: a dict with ``image_data`` (n, 84, 84, 3) and ``class_dict``, which
  gives the rows of each class (Ren et al., 2018, and many since).
- ``mini_imagenet_{train,val,test}.pickle``, also below ``compacted_datasets/``: a dict from class to its images
  (Garcia & Bruna, 2018; Kim et al., 2019).

A pickle is a program. Only numpy arrays, numbers, strings and plain containers are admitted, whatever else it names is
refused before it is looked up. Classes are sorted by name.
"""

from __future__ import annotations

import collections
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.data.formats.form import Form, SplitReading, SplitSource, split_files
from engram.data.formats.images import fit_array
from engram.errors import EngramError

MINI_SHAPE = (3, 84, 84)
NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
PLAIN_TYPES = {kind.__name__: kind for kind in (dict, float, frozenset, int, list, set, tuple)}


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays and plain containers; any other global is an `EngramError` that names it."""

    def __init__(self, stream: Any, path: Path) -> None:
        super().__init__(stream, encoding="latin1")  # Python 2 wrote array bytes as strings
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        admitted = _admitted(module, name)
        if admitted is None:
            raise EngramError(
                f"{self.path} names '{module}.{name}', which is neither an array nor a plain container and could run "
                f"code: it was not loaded; get the file from its official source"
            )
        return admitted


def _admitted(module: str, name: str) -> Any:
    """What a global of a pickle stands for, or None. Functions are made anew, so that no pickle can alter numpy's."""
    if module in NUMPY_MODULES:
        return _array_functions().get(name)
    if (module, name) == ("numpy", "ndarray"):
        return type("ndarray", (), {})  # only ever handed on to _reconstruct, which ignores it
    if (module, name) == ("numpy", "dtype"):
        return np.dtype
    if module in ("builtins", "__builtin__"):
        return PLAIN_TYPES.get(name)
    if module == "collections" and name in ("OrderedDict", "defaultdict"):
        return getattr(collections, name)
    if (module, name) == ("_codecs", "encode"):
        return lambda text, encoding="latin1": text.encode("latin1")  # how Python 3 writes bytes for protocol 2
    return None


def _array_functions() -> dict[str, Callable[..., Any]]:
    """Stand-ins for the numpy functions that pickled arrays and scalars call."""

    def reconstruct(kind: object, shape: object, code: object) -> np.ndarray:
        return np.empty(0, dtype=np.int8)  # the state that follows in the pickle gives shape, type and data

    def from_buffer(buffer: bytes, dtype: np.dtype, shape: tuple[int, ...], order: Any) -> np.ndarray:
        return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)

    def scalar(dtype: np.dtype, data: bytes | str) -> Any:
        return np.frombuffer(data.encode("latin1") if isinstance(data, str) else data, dtype=dtype)[0]

    return {"_reconstruct": reconstruct, "_frombuffer": from_buffer, "scalar": scalar}


def load_pickle(path: Path) -> Any:
    """The arrays and containers of a pickle; keys that Python 2 or a bytes encoding left as bytes are the caller's."""
    try:
        with path.open("rb") as stream:
            return ArrayUnpickler(stream, path).load()
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


def find_cache(root: Path) -> Form | None:
    """``mini-imagenet-cache-{split}.pkl``, or None."""
    return _form(root, ("mini-imagenet-cache-{split}.pkl",), "pickled cache files", _read_cache)


def find_class_dict(root: Path) -> Form | None:
    """``mini_imagenet_{split}.pickle``, or None."""
    patterns = ("mini_imagenet_{split}.pickle", "compacted_datasets/mini_imagenet_{split}.pickle")
    return _form(root, patterns, "pickled class dictionaries", _read_class_dict)


def _form(root: Path, patterns: Sequence[str], name: str, read: Callable[[Path], SplitSource]) -> Form | None:
    files = next(filter(None, (split_files(root, pattern) for pattern in patterns)), None)
    if files is None:
        return None
    return Form(name, root, tuple(files.values()), tuple(files), lambda split: SplitReading(read(files[split])))


def _read_cache(path: Path) -> SplitSource:
    content = load_dict(path)
    if "image_data" not in content or "class_dict" not in content:
        raise EngramError(
            f"{path} has the keys {sorted(map(str, content))} where 'image_data' and 'class_dict' are needed"
        )
    images = np.asarray(content["image_data"])
    try:
        classes = content["class_dict"].items()
        rows = {_class_name(key): np.asarray(value, dtype=np.int64).ravel() for key, value in classes}
    except (AttributeError, TypeError, ValueError) as error:
        raise EngramError(
            f"'class_dict' of {path} does not give the image numbers of each class: fetch it again"
        ) from error
    largest = max((int(value.max()) for value in rows.values() if len(value)), default=-1)
    smallest = min((int(value.min()) for value in rows.values() if len(value)), default=0)
    if largest >= len(images) or smallest < 0:
        wrong = largest if largest >= len(images) else smallest
        raise EngramError(f"{path} names image {wrong} but holds {len(images)} images: fetch it again")
    return _source(path, {name: len(value) for name, value in rows.items()}, lambda name: images[rows[name]])


def _read_class_dict(path: Path) -> SplitSource:
    content = {_class_name(key): value for key, value in load_dict(path).items()}
    for name, images in content.items():
        if not isinstance(images, list | tuple | np.ndarray):
            raise EngramError(
                f"class '{name}' of {path} is a {type(images).__name__} where images are needed: fetch it again"
            )
    return _source(path, {name: len(images) for name, images in content.items()}, content.__getitem__)


def _class_name(key: Any) -> str:
    """Sortable text: class 9 comes before class 10."""
    if isinstance(key, bytes):
        return key.decode("latin1")
    return f"{int(key):04d}" if isinstance(key, int | np.integer) else str(key)


def _source(path: Path, counts: Mapping[str, int], images_of: Callable[[str], Iterable[Any]]) -> SplitSource:
    names = sorted(counts)

    def read_class(index: int) -> Iterator[np.ndarray]:
        for number, image in enumerate(images_of(names[index])):
            yield fit_array(image, f"image {number} of class '{names[index]}' in {path}", MINI_SHAPE)

    return SplitSource(tuple(names), tuple(counts[name] for name in names), read_class, MINI_SHAPE)
