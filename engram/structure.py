"""From a TOML table to a dataclass: unknown keys, missing keys and wrong types are told in one sentence."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import cattrs
from cattrs.strategies import configure_union_passthrough

from engram.errors import EngramError, nearest

T = TypeVar("T")


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    # Strict scalars first: cattrs would otherwise turn "5" into 5 and 1.5 into 1 without a word.
    for kind, accepted in ((int, (int,)), (float, (int, float)), (bool, (bool,)), (str, (str,))):

        def hook(value: Any, _: Any, kind: type = kind, accepted: tuple[type, ...] = accepted) -> Any:
            if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{value!r} is not of type {kind.__name__}")
            return kind(value)

        converter.register_structure_hook(kind, hook)
    configure_union_passthrough(str | bool | int | float | None, converter)
    converter.register_structure_hook_func(lambda t: t is Any, lambda value, _: value)
    return converter


def structure(table: dict[str, Any], kind: type[T], where: str) -> T:
    """A TOML table as a dataclass. Unknown keys, missing keys and wrong types get one sentence with ``where``."""
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}
    for key in table:
        if key not in known:
            raise EngramError(f"{where}: unknown key '{key}'{nearest(key, known)}")
    values = {}
    for key, value in table.items():
        try:
            if get_origin(hints[key]) is tuple and isinstance(value, str):
                raise TypeError("a text is no list of its letters")
            values[key] = _converter().structure(value, hints[key])
        except Exception as error:  # cattrs raises exception groups of many kinds; each means: the value does not fit
            raise EngramError(f"{where}: {key} = {value!r} does not fit; it takes {_describe(hints[key])}") from error
    try:
        return kind(**values)
    except TypeError as error:
        raise EngramError(f"{where}: {str(error).split('__init__() ')[-1]}") from error


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(a) for a in get_args(hint))
    if get_origin(hint) in (tuple, list):
        return f"a list of {_describe(get_args(hint)[0])}"
    if isinstance(hint, UnionType):
        return " or ".join(_describe(a) for a in get_args(hint))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(hint, str(hint))
