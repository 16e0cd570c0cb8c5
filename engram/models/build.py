"""From a recipe to a model: names to classes, settings checked, weights initialised from the seed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_parameter_registration_hook

from engram.card import Revision
from engram.data.pixels import NORMALISATIONS
from engram.errors import EngramError, nearest
from engram.methods import METHODS
from engram.nn.backbones import build_backbone
from engram.nn.backbones.efficientnet import EfficientNetLite0, imagenet_weights
from engram.nn.encoder import Encoder
from engram.nn.task_norm import TaskBatchNorm, TaskNorm
from engram.recipes.schema import Recipe, structure
from engram.types import EmbeddingMethod, Method, MethodCard

PACKAGED = "imagenet"
"""[backbone] weights that come in a package"""
PREFIX = "backbone.backbone."
"""method.backbone is the encoder, and its backbone is what has weights"""
MOST_COUNTED = 10**6
"""of layers, steps, samples or channels that a [method] key asks for"""
SPARE = 2**24
"""parameters that a model may have beside twice those it is filled with, such as a head that is dropped again"""


_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)


@contextmanager
def trusting_code(said: bool = True) -> Iterator[None]:
    """While it lasts, classes that a checkpoint names may be imported: a person has ``said`` so."""
    before = _TRUSTED.set(said or _TRUSTED.get())
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def check_code(recipe: Recipe, where: str) -> None:
    """Refuse the recipe of a file whose method or backbone would be imported, unless a person trusts it.

    Importing runs code. What the program itself has imported runs none, and so may be named by a file.
    """
    for what, name in (("method", recipe.method), ("backbone", recipe.backbone)):
        module, _, kind = name.partition(":")
        if kind and not _TRUSTED.get() and not hasattr(sys.modules.get(module), kind):
            raise EngramError(
                f"{where} names the {what} '{name}', and importing it runs code that Engram does not know: look at it, "
                f"then say --trust-code, or in Python trust_code=True or import it yourself"
            )


def resolve_method(name: str) -> type[Method]:
    """The class of a method by its stem in `METHODS` or by ``package.module:Class``."""
    if ":" in name:
        return _check_contract(_import_class(name, "method"), name)
    if name not in METHODS:
        raise EngramError(f"there is no method '{name}'{nearest(name, METHODS)} (your own: package.module:Class)")
    return METHODS[name]


def revisions(recipe: Recipe) -> tuple[Revision, ...]:
    """The changes of behaviour that concern a recipe's model; their number is its revision."""
    return tuple(r for r in resolve_method(recipe.method).card.revisions if r.concerns(recipe.method_settings))


def build_method(
    recipe: Recipe,
    image_shape: tuple[int, ...],
    device: torch.device,
    precision: str | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> Method:
    """The recipe's method with freshly initialised weights, in training mode on ``device``.

    ``weights`` are those it will be filled with: a recipe that asks for many more is refused while it is built.

    Weights are drawn on the CPU from the recipe's seed and then moved, so they are the same on every device; the global
    random state is left as it was. ``precision`` overrides the recipe, whose bf16 applies to GPUs only: a
    CPU without instructions for it would be slower.
    """
    kind = resolve_method(recipe.method)
    config: Any = structure(recipe.method_settings, kind.Config, f"{recipe.name} [method] of {recipe.method}")
    for key, value in recipe.method_settings.items():
        if isinstance(value, int) and value > MOST_COUNTED:
            raise EngramError(f"{recipe.name} [method]: {key} = {value} but {MOST_COUNTED} is the most it can be")
    precision = precision or (recipe.train.precision if device.type == "cuda" else "fp32")
    if precision not in ("fp32", "bf16"):
        raise EngramError(f"there is no precision '{precision}': it takes fp32 or bf16")
    mean, std = _normalisation(recipe, image_shape)
    with torch.random.fork_rng(devices=[]), _no_larger_than(weights, recipe.name):
        torch.random.default_generator.manual_seed(recipe.train.seed)
        method = kind(Encoder(_backbone(recipe, image_shape), mean, std, precision), config)
        # Drawn last, so that all other weights are those of a recipe with norms of 1.
        if recipe.train.norm_start == "uniform" and not _uniform_norms(method) and len(image_shape) > 1:
            raise EngramError(
                f"{recipe.name} [train]: norm_start = 'uniform' but {recipe.method} on {recipe.backbone} has no "
                f"BatchNorm with weights: use 'ones'"
            )
    method = method.to(device)
    # The encoder hands images on in channels-last layout; weights in the same layout save a conversion each step.
    method.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return method


@contextmanager
def _no_larger_than(weights: Mapping[str, Tensor] | None, name: str) -> Iterator[None]:
    """Refuse a model with many more parameters than it has weights, before the memory and the time are spent."""
    if weights is None:
        yield
        return
    held = sum(value.numel() for value in weights.values())
    left = 2 * held + SPARE
    told = f"the recipe {name} asks for far more than the {held} numbers that its weights have"

    def count(module: nn.Module, key: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= 0 if nn.parameter.is_lazy(parameter) else parameter.numel()
        if left < 0:
            raise EngramError(told)

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # a single tensor that no memory holds
        raise EngramError(f"{told} ({' '.join(str(error).split())[-200:]})") from error
    finally:
        handle.remove()


def start_packaged(method: Method, recipe: Recipe) -> str:
    """Fill a backbone with the weights of a package, [backbone] weights = "imagenet"; their digest, for the record."""
    backbone: Any = method.backbone.backbone
    if not isinstance(backbone, EfficientNetLite0):
        raise EngramError(
            f"{recipe.name} [backbone]: weights = 'imagenet' are those of efficientnet_lite0 and efficientnet_lite1, "
            f"not of {recipe.backbone}"
        )
    if recipe.data.normalisation != "lite":
        raise EngramError(
            f"{recipe.name} [data]: normalisation = '{recipe.data.normalisation}' but the weights 'imagenet' learned "
            f"from 'lite'"
        )
    backbone.load_state_dict(imagenet_weights(backbone))
    return backbone.packaged.digest[:16]


def _uniform_norms(method: nn.Module) -> int:
    """Draw the weights of every BatchNorm anew, uniform in (0, 1); how many layers have some."""
    norms = [part for part in method.modules() if isinstance(part, _BatchNorm | TaskNorm | TaskBatchNorm)]
    weights = [norm.weight for norm in norms if isinstance(norm.weight, nn.Parameter)]
    for weight in weights:
        nn.init.uniform_(weight)
    return len(weights)


def _normalisation(recipe: Recipe, image_shape: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) of one or of every channel; features pass the encoder as they are."""
    if len(image_shape) == 1:
        return NORMALISATIONS["unit"]
    mean, std = NORMALISATIONS[recipe.data.normalisation]
    if len(mean) not in (1, image_shape[0]):
        raise EngramError(
            f"{recipe.name} [data]: normalisation '{recipe.data.normalisation}' is for {len(mean)} channels but the "
            f"images have {image_shape[0]}: use 'unit' or 'centred'"
        )
    return mean, std


def _backbone(recipe: Recipe, image_shape: tuple[int, ...]) -> nn.Module:
    name, settings = recipe.backbone, recipe.backbone_settings
    if ":" not in name:
        # Features have been through a backbone already; only a user's own class may go on from there.
        is_features = len(image_shape) == 1
        return build_backbone("flatten" if is_features else name, image_shape, {} if is_features else settings)
    kind = _import_class(name, "backbone")
    if not issubclass(kind, nn.Module):
        raise EngramError(f"the backbone '{name}' is not a torch.nn.Module: derive {kind.__name__} from it")
    try:
        backbone: nn.Module = kind(image_shape, **settings)
    except TypeError as error:
        raise EngramError(
            f"the backbone '{name}' cannot be called as {kind.__name__}(image_shape, "
            f"{', '.join(f'{key}=...' for key in settings)}) ({error})"
        ) from error
    if not isinstance(getattr(backbone, "out_shape", None), tuple):
        raise EngramError(f"the backbone '{name}' lacks out_shape: set self.out_shape = (features,) in its __init__")
    return backbone


def _import_class(name: str, what: str) -> type[Any]:
    """The class behind ``package.module:Class``; modules beside the working directory are found too."""
    module_name, _, class_name = name.partition(":")
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))  # an installed command does not look here by itself
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise EngramError(f"the {what} '{name}' cannot be imported ({error}): check the name and PYTHONPATH") from error
    except Exception as error:  # the user's module may fail in any way while it is imported
        raise EngramError(f"the {what} '{name}' cannot be imported: {type(error).__name__}: {error}") from error
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise EngramError(f"the module '{module_name}' has no class '{class_name}'{nearest(class_name, classes)}")
    return kind


def _check_contract(kind: type[Any], name: str) -> type[Method]:
    """A user's class as a Method, or one sentence on what it lacks."""
    if not issubclass(kind, Method):
        raise EngramError(f"the method '{name}' is not an engram.types.Method: derive {kind.__name__} from it")
    if not isinstance(getattr(kind, "card", None), MethodCard):
        raise EngramError(f"the method '{name}' lacks a card: set card = MethodCard(title=..., paper=...) in the class")
    config = getattr(kind, "Config", None)
    if not (isinstance(config, type) and is_dataclass(config)):
        raise EngramError(f"the method '{name}' lacks a Config: set it to a frozen dataclass of its [method] keywords")
    by_features = issubclass(kind, EmbeddingMethod) and kind.predict is EmbeddingMethod.predict
    if by_features and kind.classify is EmbeddingMethod.classify:  # type: ignore[attr-defined]
        raise EngramError(f"the method '{name}' lacks classify: define classify(self, episode, history=())")
    if kind.predict is Method.predict:
        raise EngramError(f"the method '{name}' lacks predict: define predict(self, episode, history=())")
    return kind
