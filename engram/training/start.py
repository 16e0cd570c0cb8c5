"""Starting from an earlier run, most often stage one: its backbone, its base classifier, or its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from engram import processes
from engram.data.store import Store
from engram.errors import EngramError
from engram.files import located
from engram.models import checkpoint as checkpoints
from engram.models.build import PACKAGED, resolve_method, revisions, start_packaged
from engram.models.checkpoint import Checkpoint
from engram.recipes import Recipe, maker_of
from engram.types import Method

HEAD = "head."
SCALE = "scale"
"""what a cosine classifier calls the factor of its logits, where it is learnt"""


def start(method: Method, recipe: Recipe, store: Store) -> dict[str, str]:
    """All that a new run takes over from an earlier one; features have been through their backbone already.

    -> digests of the weights, for the record.
    """
    taken = {}
    if recipe.backbone_weights and len(store.image_shape) > 1:
        taken["weights"] = start_backbone(method, recipe)
    if recipe.train.start_head:
        start_head(method, recipe)
    if digest := start_base_classes(method, recipe, store.maker):
        taken["base_classes"] = digest
    return taken


def start_backbone(method: Method, recipe: Recipe) -> str:
    """Copy the backbone of the checkpoint ``recipe.backbone_weights``, of whichever method, into ``method``.

    -> digest of the checkpoint's weights, for the record.

    Every name and shape must agree, and so must the normalisation, as weights made for other pixels would fit in shape
    and see nothing, and the start of norms, as the recipe would claim one that its backbone never had.
    """
    if recipe.backbone_weights == PACKAGED:
        return start_packaged(method, recipe)
    found = _backbone_of(recipe, ", or train on its features with --features")
    before, now = found.recipe.data.normalisation, recipe.data.normalisation
    if before != now:
        raise EngramError(
            f"the backbone in {found.folder} was trained with normalisation '{before}' but {recipe.name} [data] has "
            f"'{now}': use '{before}'"
        )
    started, asked = found.recipe.train.norm_start, recipe.train.norm_start
    if started != asked:
        raise EngramError(
            f"the backbone in {found.folder} was trained with norm_start '{started}' but {recipe.name} [train] has "
            f"'{asked}': use '{started}'"
        )
    checkpoints.load_backbone(method, found, recipe.backbone)
    return found.digest()


def start_head(method: Method, recipe: Recipe) -> None:
    """Copy the head beside the backbone that a run starts from: MAML and its kin have the same kind."""
    found = _backbone_of(recipe)
    theirs, own = (
        {name: value for name, value in tensors.items() if name.startswith(HEAD)}
        for tensors in (found.tensors("weights"), method.state_dict())
    )
    if not (theirs and own):
        lacking = recipe.method if theirs else found.recipe.method
        raise EngramError(f"{recipe.name} [train] start_head: {lacking} has no head to take over, leave it out")
    checkpoints.check_fit(own, theirs, f"the head in {found.folder} does not fit that of {recipe.name}")
    method.load_state_dict(theirs, strict=False)


def start_base_classes(method: Method, recipe: Recipe, maker: str) -> str:
    """Hand the cosine classifier of ``recipe.backbone_weights`` on to a method with base_start = "stage_one".

    Its rows become the method's base weights, and a learnt scale the method's scale. ``maker`` made the features that
    the method is trained on, "" for images: rows belong to the features they were learnt on and to no others.
    """
    if getattr(method.config, "base_start", "random") != "stage_one":
        return ""
    if not recipe.backbone_weights:
        raise EngramError(
            f"{recipe.name} [method] base_start = 'stage_one' but [backbone] names no weights: name the run folder of "
            f"a stage one with head = 'cosine', or set base_start = 'random'"
        )
    found = _backbone_of(recipe)
    if maker and f"run {found.state.run_id}, " not in maker:
        raise EngramError(
            f"these are {maker} but the base classifier in {found.folder} is of run {found.state.run_id}: write the "
            f"features of that run with engram features, or name the run that made these in [backbone] weights"
        )
    given = found.tensors("weights")
    rows = _cosine_rows(found, given, recipe)
    own = method.get_parameter(method.base_rows)
    if rows.shape != own.shape:
        before, now = ("x".join(map(str, shape)) for shape in (rows.shape, own.shape))
        raise EngramError(
            f"the base classifier in {found.folder} is {before} (classes x features) but {recipe.name} needs {now}: "
            f"set [method] n_base_classes = {len(rows)} and start from a run on the same backbone and classes"
        )
    handed_on = {method.base_rows: rows} | ({SCALE: given[SCALE]} if SCALE in given else {})
    method.load_state_dict(handed_on, strict=False)
    return found.digest()


def _cosine_rows(found: Checkpoint, given: dict[str, torch.Tensor], recipe: Recipe) -> torch.Tensor:
    """(classes, features) of the run's base classifier; a linear one is refused: lengths and biases carry part of what
    it learnt, and a cosine sees neither."""
    way_out = "name a stage one with head = 'cosine' in [backbone] weights, or set [method] base_start = 'random'"
    name = resolve_method(found.recipe.method).base_rows
    if name not in given:
        raise EngramError(
            f"{found.folder} is a run of {found.recipe.method}, which has no classifier of base classes to hand on to "
            f"{recipe.name}: {way_out}"
        )
    if name.removesuffix("weight") + "bias" in given:
        raise EngramError(
            f"the base classifier in {found.folder} is linear (it has a bias) but {recipe.method} goes on from "
            f"cosines: {way_out}"
        )
    return given[name]


def start_teacher(method: Method, recipe: Recipe, store: Store) -> dict[str, str]:
    """Give ``method`` the teacher that [train] names, also when the run is resumed: no checkpoint holds it.

    -> digest of its weights, for the record; {} where there is none.
    """
    if not recipe.train.teacher:
        return {}
    asks = f"{recipe.name} [train] teacher = '{recipe.train.teacher}'"
    if not method.teachable:
        raise EngramError(f"{asks} but {recipe.method} learns from none: only stage_one does, leave it out")
    if len(store.image_shape) == 1:
        raise EngramError(f"{asks} but it is to answer the same images and these are features: train on images")
    found = _found(recipe.train.teacher, recipe, f"{asks}, which is not there")
    if found.recipe.method != recipe.method:
        raise EngramError(f"{asks} but that is a run of {found.recipe.method}: name one of {recipe.method}")
    if found.state.image_shape != store.image_shape:
        theirs, ours = ("x".join(map(str, shape)) for shape in (found.state.image_shape, store.image_shape))
        raise EngramError(f"{asks} has seen images of {theirs} but yours are {ours}: name one of your size")
    precision = getattr(method.backbone, "precision", None)
    teacher = checkpoints.load_method(found, next(method.parameters()).device, precision).requires_grad_(False)
    known, needed = teacher.config.n_base_classes, method.config.n_base_classes
    if known != needed or found.state.dataset_digest != store.digest:
        before, now = found.state.dataset_digest[:16], store.digest[:16]
        raise EngramError(
            f"{asks} knows {known} classes of the training data {before} but {recipe.method} is to learn {needed} of "
            f"{now}: name one of the same classes"
        )
    method.teachers = (teacher,)
    return {"teacher": found.digest()}


def _backbone_of(recipe: Recipe, or_else: str = "") -> Checkpoint:
    where = located(Path(recipe.backbone_weights))
    absent = f"{recipe.name} [backbone] starts from {where}, which is not there"
    return _found(recipe.backbone_weights, recipe, absent, or_else)


def _found(weights: str, recipe: Recipe, absent: str, or_else: str = "") -> Checkpoint:
    """The checkpoint in ``weights``; ``absent`` begins what is said where it is not there but a recipe makes it."""
    where = located(Path(weights))
    if not where.exists() and (maker := maker_of(weights)):
        raise EngramError(f"{absent}: make it with engram train {maker}{or_else}")
    found = checkpoints.load(where)
    if not found.state.digests.get("weights"):
        raise EngramError(
            f"{found.folder}/state.json has no digest of its weights, so no record could say what {recipe.name} "
            f"started from: write it again with engram pack"
        )
    return found


def count_base_classes(recipe: Recipe, store: Store) -> Recipe:
    """[method] n_base_classes = 0 becomes the number of training classes, which the data alone knows."""
    if recipe.method_settings.get("n_base_classes") != 0:
        return recipe
    classes = store.classes(recipe.data.train_classes).n_classes
    return replace(recipe, method_settings=recipe.method_settings | {"n_base_classes": classes})


def check_base_classes(method: Method, store: Store) -> None:
    """A base classifier needs a row for every class: known here, before a step fails on the device."""
    rows = method.config.n_base_classes if method.card.base_classes else store.n_classes
    if rows < store.n_classes:
        raise EngramError(
            f"[method] n_base_classes = {rows} but {store.info.dataset} {store.info.split} has {store.n_classes} "
            f"classes: set it to {store.n_classes}"
        )


def check_same_run(
    saved: Checkpoint, recipe: Recipe, train_digest: str, validation_digest: str, teacher_digest: str
) -> None:
    """A run goes on with the method, the recipe, the data and the teacher it was started with, or not at all."""
    state, known = saved.state, revisions(recipe)
    if state.revision != len(known):
        changed = "; ".join(r.what for r in known[state.revision :])
        raise EngramError(
            f"{saved.folder} cannot be resumed: it was trained with revision {state.revision} of {recipe.method} but "
            f"this Engram has {len(known)}{f' ({changed})' if changed else ''}; start a new run in another folder"
        )
    here = processes.mine().count
    if recipe.train.resume_with == "same" and state.processes != here:
        raise EngramError(
            f"{saved.folder} cannot be resumed: {recipe.name} has [train] resume_with = 'same' and its run was made by "
            f"{state.processes} processes but {here} would go on: use --devices {state.processes}, or start a new run"
        )
    for what, old, new in (
        ("recipe", state.recipe_digest, recipe.digest),
        ("training data", state.dataset_digest, train_digest),
        ("validation data", state.validation.get("dataset_digest", ""), validation_digest),
        ("teacher", state.start.get("teacher", ""), teacher_digest),
    ):
        if old != new:
            raise EngramError(
                f"{saved.folder} cannot be resumed: its {what} has the digest {old[:16]} but yours {new[:16]}; "
                f"use what it was started with, or start a new run in another folder"
            )
