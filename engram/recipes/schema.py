"""A recipe is five tables of settings; this file says which keys they may have and what they mean."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from engram import spellings
from engram.errors import EngramError, nearest
from engram.protocol import LATER as LATER_OF_PROTOCOLS
from engram.protocol import Tasks
from engram.recipes.checks import check_recipe
from engram.structure import structure

LATER = {"backbone_weights", "betas", "class_batch", "freeze_backbone", "milestones", "milestone_factors", "nesterov"}
LATER |= {"train_classes"}
LATER |= {"stream_length_range", "pool_range", "n_query_range", "select_on_test", "validation_queries", "norm_start"}
LATER |= {"query_balance", "dirichlet_alpha", "average", "crop_area", "crop_aspect", "teacher"}
LATER |= {"image_size", "crop", "head_first", "start_head", "batch_norm_sync", "resume_with"}
LATER |= {*LATER_OF_PROTOCOLS}
"""keys that came after the first runs: left out of a digest at their declared default, so that it stays the same"""
SCHEDULE = ("schedule", "schedule_step", "schedule_factor", "milestones", "milestone_factors")
VALIDATION = ("validate_every", "validation_sequences", "validation_queries")
ASKED = ("test.n_query", "test.n_sequences")
"""how much is asked in the end, which every table tells with its protocol"""
LENGTH = (*(f"train.{key}" for key in ("iterations", *SCHEDULE, *VALIDATION)), *ASKED)
"""how long a model is trained, and what goes with that"""


@dataclass(frozen=True)
class DataSettings(Tasks):
    """The training tasks, with the keys of `Tasks`. Test tasks have the ways and shots of [test]."""

    dataset: str
    """glyphs, miniimagenet, tieredimagenet, omniglot, omniglot-alphabets, or folder:PATH"""
    image_size: int = 84
    """side of the pictures of folder:PATH as they are stored; other datasets have a size of their own"""
    crop: float = 0.0
    """share of the short side that is cut out of their middle, such as 0.875; 0 = the whole picture, squeezed"""
    n_query: int = 1
    """queries per class"""
    n_query_range: tuple[int, ...] = ()
    """[least, greatest] n_query, drawn anew for every step; [] = always n_query"""
    stream_length_range: tuple[int, ...] = ()
    """[least, greatest] stream_length, drawn anew for every step; [] = always stream_length"""
    pool_range: tuple[int, ...] = ()
    """[least, greatest] pool_classes, drawn anew for every step; [] = always pool_classes"""
    normalisation: Literal["unit", "centred", "egnn", "gnn", "imagenet", "lite", "relation", "none"] = "unit"
    augmentation: Literal["none", "crop", "crop_flip", "affine", "standard"] = "none"
    crop_area: tuple[float, ...] = (0.7, 1.0)
    """[least, greatest] share of the image's area that "standard" shows"""
    crop_aspect: tuple[float, ...] = (1.0, 1.0)
    """[least, greatest] width / height of that window, such as [0.75, 1.3333]; sides end with the image"""
    class_batch: int = 0
    """images of base classes per step, drawn evenly over all images of the training split, beside the tasks"""
    train_classes: tuple[int, ...] = ()
    """[first, end) classes of the training split, in its order, that are trained on, such as [0, 32]; [] = all"""


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
    nesterov: bool = False
    """for sgd with momentum: the gradient is taken where the momentum leads"""
    betas: tuple[float, ...] = ()
    """for adam; () = 0.9 and 0.999"""
    schedule: Literal["constant", "step", "milestones", "linear", "cosine"] = "constant"
    schedule_step: int = 0
    """iterations between drops, for step"""
    milestones: tuple[int, ...] = ()
    """iterations of the drops, for milestones"""
    milestone_factors: tuple[float, ...] = ()
    """what the first rate is multiplied by from each milestone on; [] = schedule_factor at every one, one on another"""
    schedule_factor: float = 0.5
    clip: Literal["none", "global", "per-group", "per-tensor", "value"] = "none"
    clip_value: float = 0.0
    norm_start: Literal["ones", "uniform"] = "ones"
    """weights of BatchNorm at the start, in backbone and head: 1 (or as a backbone with a rule of its own has them),
    or uniform in (0, 1) as PyTorch drew them before 1.2"""
    batch_norm_sync: Literal["local", "synchronised"] = "local"
    """in a training by several processes BatchNorm goes by the images of each, or by those of all"""
    resume_with: Literal["any", "same"] = "any"
    """number of processes that may go on with a run; same: what it learns depends on it, as with local BatchNorm"""
    average: float = 0.0
    """decay of the moving average of the weights, which validation compares with the last; 0 = none, often 0.999"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 applies where the device has it; on a CPU training stays fp32 unless the call says bf16; products in fp32
    are TF32 ones on a GPU"""
    validate_every: int = 1000
    validation_sequences: int = 100
    validation_queries: int = 0
    """queries per class in validation; 0 = the first of [test] n_query. More of them choose weights by less chance."""
    freeze_backbone: bool = False
    """the backbone stays as it is, in evaluation mode; the rest is trained"""
    start_head: bool = False
    """the head of the run that [backbone] weights names is taken over too, as MAML and its kin have the same"""
    head_first: float = 0.0
    """share of the schedule for which the backbone stays as it is while the head finds its place; then both learn"""
    teacher: str = ""
    """run or checkpoint folder of an earlier stage one over the same classes: stage one learns from its answers beside
    the labels; "" = none"""
    select_on_test: bool = False
    """weights are chosen on the test split, as some public code does: only to reproduce that, the audit calls it"""


@dataclass(frozen=True)
class TestSettings(Tasks):
    """The tasks a trained model answers, with the keys of `Tasks`; one evaluation for each entry of n_query."""

    __test__ = False  # the name is no test to pytest

    n_query: tuple[int, ...] = (1,)
    n_sequences: int = 1000


@dataclass(frozen=True)
class Recipe:
    name: str
    """method and variant, cml_bgnn/mini_5w1s, or the name of a file of one's own"""
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

    def __post_init__(self) -> None:
        spellings.respell(self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> dict[str, dict[str, Any]]:
        """As a file of one's own has them."""
        start = {"weights": self.backbone_weights} if self.backbone_weights else {}
        return {
            "method": {"name": self.method, **self.method_settings},
            "backbone": {"name": self.backbone, **start, **self.backbone_settings},
            **{table: asdict(getattr(self, table)) for table in ("data", "train", "test")},
        }

    @property
    def digest(self) -> str:
        return digest_of(self.to_dict())


def differences(recipe: Recipe, other: Recipe) -> list[str]:
    """Keys in which two recipes differ, those that only one of them has too."""
    own, others = _flat(recipe), _flat(other)
    return sorted(key for key in {*own, *others} if own.get(key) != others.get(key))


def _flat(recipe: Recipe) -> dict[str, Any]:
    """Every setting that decides the result under its dotted key."""
    return {f"{table}.{key}": value for table, keys in recipe.tables().items() for key, value in keys.items()}


def digest_of(settings: Mapping[str, Any], without_seed: bool = False) -> str:
    """Of all that decides the result, from `Recipe.to_dict`: name and description do not.

    Nor does the published figure that recipes once stated.

    ``without_seed``: runs that differ in their seed alone have the same digest.
    """

    def used(table: Mapping[str, Any], kind: type, *left_out: str) -> dict[str, Any]:
        defaults = {f.name: f.default for f in fields(kind) if f.name in LATER}
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}  # JSON and TOML know lists alone
        return {k: v for k, v in table.items() if k not in left_out and (k not in defaults or plain[k] != defaults[k])}

    decisive = used(spellings.recipe_first(settings), Recipe, "name", "description", "paper")
    for name, kind in (("data", DataSettings), ("train", TrainSettings), ("test", TestSettings)):
        decisive[name] = used(decisive[name], kind, *(["seed"] if without_seed and name == "train" else []))
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def recipe_from_saved(saved: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from what `Recipe.to_dict` gave; ``where`` is what an error calls it.

    The published figure that earlier ones state is left out.
    """
    raw = {key: value for key, value in saved.items() if key != "paper"}
    for key, kind in (("name", str), ("method", str), ("backbone", str), ("method_settings", dict)):
        if not isinstance(raw.get(key), kind):
            raise EngramError(f"{where}: its recipe has no {key}, or one that is no {kind.__name__}")
    if not isinstance(raw.get("backbone_settings"), dict):
        raise EngramError(f"{where}: its recipe has no backbone_settings, or some that are no dict")
    raw["method"] = {**raw.pop("method_settings"), "name": raw["method"]}
    backbone = {**raw.pop("backbone_settings"), "name": raw["backbone"], "weights": raw.pop("backbone_weights", "")}
    raw["backbone"], name = backbone, raw.pop("name")
    return recipe_from_dict({k: v for k, v in raw.items() if v is not None}, name, where)


def recipe_from_dict(raw: dict[str, Any], name: str, where: str) -> Recipe:
    """A recipe from parsed TOML; sub-tables ``data``, ``train``, ``test``, ``backbone``, ``method``."""
    raw = dict(raw)
    method, backbone = raw.pop("method", None), raw.pop("backbone", {"name": "conv4"})
    if not isinstance(method, dict) or not isinstance(method.get("name"), str):
        raise EngramError(f'{where}: a [method] table with a name is needed, such as [method] name = "proto_net"')
    if not isinstance(backbone, dict) or not isinstance(backbone.get("name"), str):
        raise EngramError(f'{where}: the [backbone] table needs a name, such as name = "conv4"')
    if not isinstance(backbone.get("weights", ""), str):
        raise EngramError(f"{where} [backbone]: weights = {backbone['weights']!r} does not fit; it takes a text")
    tables = {"data": DataSettings, "train": TrainSettings, "test": TestSettings}
    if "paper" in raw:
        raise EngramError(
            f"{where}: a published figure stands in a study, not in a recipe: take [paper] out and give the cell of a "
            "study of yours that names this recipe paper = ACCURACY and interval = HALF_WIDTH (docs/studies.md)"
        )
    for key in raw:
        if key not in (*tables, "description"):
            raise EngramError(f"{where}: unknown key '{key}'{nearest(key, [*tables, 'method', 'backbone'])}")
    for key in tables:
        if key not in raw and key in ("data", "train"):
            raise EngramError(f"{where}: the [{key}] table is missing")
        if not isinstance(raw.get(key, {}), dict):
            raise EngramError(f"{where}: {key} = {raw[key]!r} does not fit; it takes a table, [{key}]")
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
    check_recipe(recipe, where)
    return recipe
