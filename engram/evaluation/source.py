"""The model a command is given: a run folder, or a method that needs no training and a recipe; and whether it can
answer a protocol at all, told before the first task is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from engram.card import stated_revision
from engram.data.store import Store
from engram.errors import EngramError, nearest
from engram.evaluation.encode import Encoded
from engram.files import located
from engram.ledger import RunRecord, new_record
from engram.machine.device import describe_device
from engram.methods import METHODS
from engram.models.build import PACKAGED, build_method, resolve_method, revisions, start_packaged
from engram.models.checkpoint import Checkpoint, WhichWeights, load, load_backbone, load_method
from engram.models.features import features_by
from engram.protocol import Protocol
from engram.recipes import Recipe, load_recipe
from engram.recipes.protocols import validation_split
from engram.types import EmbeddingMethod, Method


@dataclass(frozen=True)
class Source:
    """Where a model comes from and what it is asked."""

    build: Callable[[Store], Method]
    """the model on the CPU, once the store is open"""
    recipe: Recipe
    """its own"""
    asked: Recipe
    """the recipe whose tasks it answers"""
    trained_by: str = ""
    """run_id of the training run"""
    trained_revision: int | None = None
    """of the training run; None where there was none"""
    start: dict[str, str] = field(default_factory=dict)
    """digests of the weights and features the training run started from"""
    weights: str = ""
    """digest of its weights; "" where it was not trained"""

    @property
    def chosen_on(self) -> str:
        """The split its weights were chosen on; "" where it was not trained."""
        return validation_split(self.recipe) if self.trained_by else ""

    def blank_record(self, kind: Literal["bench", "audit"], device: torch.device, store: Store) -> RunRecord:
        known = revisions(self.recipe)
        given = {"features": store.digest[:16]} if store.maker else {}
        stated = len(known) if self.trained_revision is None else stated_revision(known, self.trained_revision)
        who = describe_device(device)
        return new_record(kind, self.recipe, who, stated, trained_by=self.trained_by, start=self.start or given)


def model_name(model: str | Path, method: str | None) -> str:
    """The one of a run folder and a method that was given."""
    if bool(str(model)) == bool(method):
        both = f"both '{model}' and method = '{method}' were given" if method else "neither was given"
        raise EngramError(f"a run folder or a method is needed, but {both}: name one of them")
    return method or str(model)


def resolve_model(
    model: str,
    recipe: str | None,
    on_features: bool = False,
    test_samples: int = 0,
    query_statistics: str | None = None,
    which_weights: WhichWeights = "chosen",
) -> Source:
    """A run or checkpoint folder with its own recipe or another's tasks; or an untrained method with a recipe.

    On features a method without weights of its own needs no training: ProtoNet's, or a memory of prototypes. A model
    that sees images through its encoder alone can be asked on the features that this encoder wrote.
    ``test_samples`` has a model with a posterior average that many samples in place of what its settings say;
    ``query_statistics`` asks one that adapts to its task as if its recipe said so, which training does not depend on.
    """
    if located(Path(model)).exists():
        return _from_folder(model, recipe, test_samples, query_statistics, which_weights)
    if which_weights != "chosen":
        raise EngramError(f"which_weights = '{which_weights}' is for trained models, not for '{model}'")
    if query_statistics:
        raise EngramError(f"query_statistics = '{query_statistics}' is for trained models, not for '{model}'")
    if test_samples:
        raise EngramError(f"test_samples = {test_samples} is for trained models with a posterior, not for '{model}'")
    return _untrained(model, recipe, on_features)


def _from_folder(
    model: str, recipe: str | None, test_samples: int, query_statistics: str | None, which_weights: WhichWeights
) -> Source:
    checkpoint = load(Path(model), which="best")
    weights = checkpoint.digest(which_weights)  # refused before any data is opened
    asked = load_recipe(recipe) if recipe else checkpoint.recipe
    if asked.method != checkpoint.state.method:
        raise EngramError(
            f"{model} is a checkpoint of {checkpoint.state.method} but the recipe {asked.name} "
            f"is for {asked.method}: give a recipe of {checkpoint.state.method}"
        )

    card = resolve_method(asked.method).card
    if query_statistics and not card.query_statistics:
        raise EngramError(f"{model} is a {asked.method}, which does not normalise queries with those of its task")
    no_posterior = f"{model} is a {asked.method}, which has no posterior to draw {test_samples} samples from"
    if test_samples and not card.samples_key:
        raise EngramError(no_posterior)
    switched = {"query_statistics": query_statistics} if query_statistics else {}
    settings = switched | ({card.samples_key: test_samples} if test_samples else {})
    # Whoever switches has another recipe's model, that of the preset which differs in nothing else.
    own = replace(checkpoint.recipe, method_settings={**checkpoint.recipe.method_settings, **switched})

    def build(store: Store) -> Method:
        by_encoder = issubclass(resolve_method(asked.method), EmbeddingMethod)
        own_features = by_encoder and store.encoder == features_by(checkpoint, which_weights)
        if not own_features:
            _check_images(model, checkpoint, store)
        method = load_method(checkpoint, torch.device("cpu"), None, which_weights, **settings)
        if own_features:  # its encoder's work is done
            method.backbone = Encoded(store.image_shape)
        if test_samples and not method.card.samples_key:  # its settings do without one
            raise EngramError(no_posterior)
        return method

    state = checkpoint.state
    return Source(build, own, asked, state.run_id, state.revision, state.start, weights)


def _check_images(model: str, checkpoint: Checkpoint, store: Store) -> None:
    if tuple(checkpoint.state.image_shape) != store.image_shape:
        trained_on, here = ("x".join(map(str, s)) for s in (checkpoint.state.image_shape, store.image_shape))
        raise EngramError(
            f"{model} was trained on images of {trained_on} but those of {store.info.dataset} are {here}: "
            f"give a recipe for the dataset it was trained on"
        )
    if (made := checkpoint.state.features) and store.maker and store.maker != made:
        raise EngramError(
            f"{model} was trained on {made} but these are {store.maker}: a head knows the features of one encoder "
            f"alone, so write those with engram features"
        )


def _untrained(model: str, recipe: str | None, on_features: bool) -> Source:
    """A floor; on features, or on a backbone that the recipe freezes, also a method without weights of its own, which
    keeps the recipe's backbone settings."""
    untrained = [stem for stem, kind in METHODS.items() if not kind.card.trainable]
    if ":" not in model and model not in METHODS:
        raise EngramError(f"there is neither a run folder nor an untrained method '{model}'{nearest(model, untrained)}")
    trainable = resolve_method(model).card.trainable
    asked = load_recipe(recipe) if recipe is not None else None
    frozen = trainable and asked and asked.backbone_weights and asked.train.freeze_backbone
    if trainable and not (on_features or frozen):
        own_way = ", or say trainable=False on its card" if ":" in model else ""
        raise EngramError(
            f"'{model}' is a method that must be trained first: engram train, then give its run folder{own_way}"
        )
    if asked is None:
        example = f"{model}/mini_5w1s_named" if on_features else "proto_net/glyphs_5w1s"
        raise EngramError(f"'{model}' needs --recipe to say which data and tasks, such as --recipe {example}")
    own = asked
    if asked.method != model:
        name = f"{model}/{asked.name.split('/')[-1]}"  # its own, or the floor would pass as the recipe's result
        own = replace(asked, name=name, method=model, method_settings={})
        if not (on_features or frozen):
            own = replace(own, backbone="flatten", backbone_settings={}, backbone_weights="")

    def build(store: Store) -> Method:
        method = build_method(own, store.image_shape, torch.device("cpu"))
        if own.backbone_weights and len(store.image_shape) > 1:  # to stay as they are
            if own.backbone_weights == PACKAGED:
                start_packaged(method, own)
            else:
                load_backbone(method, load(located(Path(own.backbone_weights))), own.backbone)
            method.backbone.requires_grad_(False)
        count = sum(p.numel() for p in method.parameters() if p.requires_grad) if method.card.trainable else 0
        if count:
            raise EngramError(f"'{model}' has {count} weights that must be trained first: engram train {own.name}")
        return method

    return Source(build, own, asked)


def check_can_answer(method: Method, protocol: Protocol) -> None:
    """Ways and shots a method's weights are tied to (``n_way``, ``n_shot`` of its config), and unlabelled supports."""
    card = method.card
    for fixed, key, asked in (
        (card.fixed_ways, "n_way", protocol.n_way),
        (card.fixed_shots, "n_shot", protocol.n_shown),
    ):
        own = getattr(method.config, key, asked)
        if fixed and own != asked:
            raise EngramError(
                f"{card.title} has weights for [method] {key} = {own} but the tasks of {protocol.dataset} "
                f"{protocol.split} have {key} = {asked}: ask for {own}, or train another model with {key} = {asked}"
            )
    hidden = protocol.n_shown - protocol.n_labelled
    if hidden and not card.semi_supervised:
        raise EngramError(
            f"{card.title} makes no use of unlabelled supports but labelled_fraction = {protocol.labelled_fraction} "
            f"hides the labels of {hidden} of {protocol.n_shown} per class: set drop_unlabelled = true, or take a "
            f"semi-supervised method such as egnn"
        )
