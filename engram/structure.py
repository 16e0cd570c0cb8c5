"""From a table of TOML or JSON to a dataclass: unknown keys, missing keys and wrong types are told in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import cattrs
from cattrs.strategies import configure_union_passthrough

from engram.errors import EngramError, nearest

T = TypeVar("T")
LARGEST = 2**63
"""whole numbers beyond it fit no array"""


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    # Strict scalars first: cattrs would otherwise turn "5" into 5 and 1.5 into 1 without a word.
    for kind, accepted in ((int, (int,)), (float, (int, float)), (bool, (bool,)), (str, (str,))):

        def hook(value: Any, _: Any, kind: type = kind, accepted: tuple[type, ...] = accepted) -> Any:
            if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{value!r} is not of type {kind.__name__}")
            if isinstance(value, int) and kind is int and abs(value) > LARGEST:
                raise TypeError("it has more than 64 bits")
            return kind(value)

        converter.register_structure_hook(kind, hook)
    configure_union_passthrough(str | bool | int | float | None, converter)
    converter.register_structure_hook_func(lambda t: t is Any, lambda value, _: value)
    return converter


def structure(table: dict[str, Any], kind: type[T], where: str) -> T:
    """A table as a dataclass. Unknown keys, missing keys and wrong types get one sentence with ``where``."""
    assert is_dataclass(kind)
    if not isinstance(table, dict):
        raise EngramError(f"{where}: {_shown(table)} does not fit; it takes a table")
    known = {f.name for f in fields(kind)}
    for key in table:
        if key not in known:
            raise EngramError(f"{where}: unknown key '{key}'{nearest(key, known)}")
    values = _values(table, kind, where)
    try:
        return kind(**values)
    except TypeError as error:
        raise EngramError(f"{where}: {str(error).split('__init__() ')[-1]}") from error


def check_types(table: Mapping[str, Any], kind: type[Any], where: str) -> None:
    """Refuse a table with a known key of a wrong type; keys may lack, and others may stand beside them."""
    if not isinstance(table, Mapping):
        raise EngramError(f"{where}: {_shown(table)} does not fit; it takes a table")
    known = {f.name for f in fields(kind)}
    _values({key: value for key, value in table.items() if key in known}, kind, where)


def _values(table: Mapping[str, Any], kind: Any, where: str) -> dict[str, Any]:
    """The values of known keys as their types want them."""
    hints, values = _hints(kind), {}
    for key, value in table.items():
        try:
            if get_origin(hints[key]) in (tuple, list) and isinstance(value, str | dict):
                raise TypeError("a text is no list of its letters, and a table none of its keys")
            values[key] = _converter().structure(value, hints[key])
        except Exception as error:  # cattrs raises exception groups of many kinds; each means: the value does not fit
            told = f"{key} = {_shown(value)} does not fit; it takes {_describe(hints[key])}"
            raise EngramError(f"{where}: {told}") from error
    return values


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _shown(value: Any) -> str:
    """As written, cut short where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(a) for a in get_args(hint))
    if get_origin(hint) in (tuple, list):
        return f"a list of {_describe(get_args(hint)[0])}"
    if get_origin(hint) in (dict, Mapping):
        return "a table"
    if isinstance(hint, UnionType):
        return " or ".join(_describe(a) for a in get_args(hint))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(hint, str(hint))
