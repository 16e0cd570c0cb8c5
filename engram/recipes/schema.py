"""A recipe is flat TOML, readable alone; this file says which keys it may have and what they mean."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import cattrs
from cattrs.strategies import configure_union_passthrough

from engram.errors import EngramError, nearest

T = TypeVar("T")
RECIPES_FOLDER = Path(__file__).parent
LATER = {"backbone_weights", "class_batch", "freeze_backbone"}
"""keys that came after the first runs: left out of a digest where they are not used, so that it stays the same"""


@dataclass(frozen=True)
class DataSettings:
    """The training tasks. Test tasks have the ways and shots of [test]."""

    dataset: str
    """glyphs, miniimagenet, tieredimagenet, omniglot, omniglot-alphabets, or folder:PATH"""
    n_way: int = 5
    n_shot: int = 1
    n_query: int = 1
    """queries per class"""
    labelled_fraction: float = 1.0
    slot_order: Literal["shuffled", "class-order"] = "shuffled"
    stream_length: int = 1
    """tasks of a sequence, T"""
    pool_classes: int = 0
    """classes a sequence draws from; 0 = all of the split"""
    names: Literal["anonymous", "named"] = "anonymous"
    normalisation: Literal["unit", "centred", "egnn", "imagenet", "none"] = "unit"
    augmentation: Literal["none", "crop", "crop_flip", "affine", "standard"] = "none"
    class_batch: int = 0
    """images of base classes per step, drawn evenly over all images of the training split, beside the tasks"""


@dataclass(frozen=True)
class TrainSettings:
    iterations: int
    sequences: int
    """sequences per step, so a step sees sequences * stream_length tasks"""
    seed: int = 111
    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    """for sgd"""
    schedule: Literal["constant", "step", "cosine"] = "constant"
    schedule_step: int = 0
    """iterations between drops, for step"""
    schedule_factor: float = 0.5
    clip: Literal["none", "global", "per-tensor", "value"] = "none"
    clip_value: float = 0.0
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 applies where the device has it; on the CPU training stays fp32"""
    validate_every: int = 1000
    validation_sequences: int = 100
    freeze_backbone: bool = False
    """the backbone stays as it is, in evaluation mode; the rest is trained"""


@dataclass(frozen=True)
class TestSettings:
    """The tasks a trained model answers; one evaluation for each entry of n_query."""

    __test__ = False  # the name is no test to pytest

    n_way: int = 5
    n_shot: int = 1
    n_query: tuple[int, ...] = (1,)
    n_sequences: int = 1000
    stream_length: int = 1
    pool_classes: int = 0
    names: Literal["anonymous", "named"] = "anonymous"
    labelled_fraction: float = 1.0
    slot_order: Literal["shuffled", "class-order"] = "shuffled"


@dataclass(frozen=True)
class PaperRow:
    """The published figure this recipe is set beside."""

    table: str
    row: str
    accuracy: float
    interval: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Recipe:
    name: str
    """the file's path below recipes/, without the ending: cml_bgnn/mini_5w1s"""
    method: str
    data: DataSettings
    train: TrainSettings
    test: TestSettings = field(default_factory=TestSettings)
    description: str = ""
    backbone: str = "conv4"
    backbone_settings: dict[str, Any] = field(default_factory=dict)
    backbone_weights: str = ""
    """run or checkpoint folder, of any method, whose backbone this one starts from; "" = from the seed"""
    method_settings: dict[str, Any] = field(default_factory=dict)
    """[method] keywords, checked against the method's Config"""
    paper: PaperRow | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def digest(self) -> str:
        """Of all that decides the result: name, description and paper figure do not."""
        used = asdict(self, dict_factory=lambda pairs: {k: v for k, v in pairs if v or k not in LATER})
        decisive = {k: v for k, v in used.items() if k not in ("name", "description", "paper")}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


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


def recipe_from_dict(raw: dict[str, Any], name: str, where: str) -> Recipe:
    """A recipe from parsed TOML; sub-tables ``data``, ``train``, ``test``, ``backbone``, ``method``, ``paper``."""
    raw = dict(raw)
    method, backbone = raw.pop("method", None), raw.pop("backbone", {"name": "conv4"})
    if not isinstance(method, dict) or not isinstance(method.get("name"), str):
        raise EngramError(f'{where}: a [method] table with a name is needed, such as [method] name = "proto_net"')
    if not isinstance(backbone, dict) or not isinstance(backbone.get("name"), str):
        raise EngramError(f'{where}: the [backbone] table needs a name, such as name = "conv4"')
    if not isinstance(backbone.get("weights", ""), str):
        raise EngramError(f"{where} [backbone]: weights = {backbone['weights']!r} does not fit; it takes a text")
    tables = {"data": DataSettings, "train": TrainSettings, "test": TestSettings, "paper": PaperRow}
    for key in raw:
        if key not in (*tables, "description"):
            raise EngramError(f"{where}: unknown key '{key}'{nearest(key, [*tables, 'method', 'backbone'])}")
    for key in ("data", "train"):
        if key not in raw:
            raise EngramError(f"{where}: the [{key}] table is missing")
    parts: dict[str, Any] = {k: structure(raw[k], t, f"{where} [{k}]") for k, t in tables.items() if k in raw}
    recipe = Recipe(
        name=name,
        method=method["name"],
        backbone=backbone["name"],
        description=str(raw.get("description", "")),
        method_settings={k: v for k, v in method.items() if k != "name"},
        backbone_settings={k: v for k, v in backbone.items() if k not in ("name", "weights")},
        backbone_weights=backbone.get("weights", ""),
        **parts,
    )
    _check(recipe, where)
    return recipe


def _check(recipe: Recipe, where: str) -> None:
    """Numbers that cannot work, found before anything is built."""
    data, train, test = recipe.data, recipe.train, recipe.test
    for table, settings, least, keys in (
        ("data", data, 1, ("n_way", "n_shot", "n_query", "stream_length")),
        ("data", data, 0, ("class_batch",)),
        ("train", train, 1, ("iterations", "sequences", "validate_every", "validation_sequences")),
        ("test", test, 1, ("n_way", "n_shot", "n_sequences", "stream_length")),
    ):
        for key in keys:
            if (value := getattr(settings, key)) < least:
                raise EngramError(f"{where} [{table}]: {key} = {value} but at least {least} is needed")
    if train.schedule == "step" and train.schedule_step < 1:
        raise EngramError(
            f"{where} [train]: schedule 'step' needs schedule_step of at least 1, not {train.schedule_step}"
        )
    for table, fraction in (("data", data.labelled_fraction), ("test", test.labelled_fraction)):
        if not 0 < fraction <= 1:
            raise EngramError(f"{where} [{table}]: labelled_fraction = {fraction} but it lies above 0 and up to 1")


def load_recipe(name_or_path: str) -> Recipe:
    """A recipe by its short name (``cml_bgnn/mini_5w1s``) or by the path of a TOML file."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = RECIPES_FOLDER / f"{name_or_path}.toml"
        if not path.exists():
            raise EngramError(f"there is no recipe '{name_or_path}'{nearest(name_or_path, recipe_names())}")
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise EngramError(f"the recipe {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EngramError(f"the recipe {path} is not valid TOML: {error}") from error
    inside = path.resolve().is_relative_to(RECIPES_FOLDER.resolve())
    name = str(path.resolve().relative_to(RECIPES_FOLDER.resolve()).with_suffix("")) if inside else path.stem
    return recipe_from_dict(raw, name, path.name)


def recipe_names() -> list[str]:
    return sorted(str(p.relative_to(RECIPES_FOLDER).with_suffix("")) for p in RECIPES_FOLDER.rglob("*.toml"))
