"""A classifier on disk: ``classifier.json``, weights as safetensors, a `Store` of its memory. No pickle, no code.

The folder is whole in itself: another machine, or another version of the weights in the box, changes no answer. What is
new is written beside what is there, under a name of its own; then ``classifier.json``, which names what counts, is
replaced. So the folder holds the old classifier or the new one at every moment. More pictures are appended to the store
and touch nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from engram.classifier import disk
from engram.classifier import index as indices
from engram.classifier.box import box, fitted_at
from engram.classifier.description import (
    DESCRIPTION,
    FORMAT_VERSION,
    check_plain,
    description_of,
    inside,
    put,
    refuse_own_code,
    sealed,
    tensors_of,
)
from engram.classifier.encoders import named, open_named
from engram.classifier.engine import Engine
from engram.classifier.memory import Memory, Stored
from engram.classifier.store import STORED, Store, create, open_store
from engram.errors import EngramError
from engram.ledger import software_versions
from engram.machine.device import choose_device
from engram.models.build import build_method
from engram.models.checkpoint import fill
from engram.recipes.schema import recipe_from_saved

if TYPE_CHECKING:
    from engram.classifier.estimator import FewShotClassifier

ENCODER, METHOD = "encoder.", "method."
OURS = re.compile(r"(weights(-[0-9a-f]{16})?|memory)\.safetensors|memory-[0-9a-f]{8}|\.(classifier|weights).*\.new")
"""what `save` writes beside the description, and wrote in the first format"""


def save(classifier: FewShotClassifier, folder: Path) -> Path:
    memory = classifier._known()
    described = _recipes(classifier.engine_)
    refuse_own_code(described, "this classifier", "keep your run folder and its pictures, and fit again")
    named(classifier.engine_.encoder)  # refused before anything is written
    for label in memory.classes:
        check_plain(label)
    with disk.one_writer(folder):
        saved = (folder / DESCRIPTION).is_file()
        if not saved and any(not OURS.fullmatch(path.name) for path in folder.iterdir()):
            raise EngramError(f"{folder} is there and is no saved classifier: choose another folder")
        store = _append(classifier, memory, folder) if saved else None
        store = store or _write(classifier, memory, folder)
        if memory.exact and store.rows == len(memory.labels):
            found = replace(memory, stored=Stored(store.folder, store.rows, True))
        else:
            found = _indexed(store, memory)
    classifier._stored(memory, found)
    return folder


def _append(classifier: FewShotClassifier, memory: Memory, folder: Path) -> Store | None:
    """Add to the store what the classifier has learned since it was loaded; None where the folder is to be written
    anew. What others have added meanwhile stays."""
    stored = memory.stored
    if stored is None or stored.folder.parent != folder.resolve():
        return None
    raw = description_of(folder)
    if raw.get("memory") != stored.folder.name:
        raise EngramError(
            f"{folder} was written anew since it was loaded, for a class was forgotten or it was fitted again: load it "
            f"and repeat what you did"
        )
    store = open_store(stored.folder)
    memory = _merged(memory, store)
    if not stored.first or (store.dtype == "float32" and not memory.exact):
        return _write(classifier, memory, folder)
    store = store.append(memory)
    if raw["parameters"] != (parameters := _parameters(classifier)):
        put(folder / DESCRIPTION, sealed({**raw, "parameters": parameters}))
    return store


def _merged(memory: Memory, store: Store) -> Memory:
    """A memory with the entries that others have stored since it was loaded."""
    assert memory.stored is not None
    seen, there = memory.stored.rows, store.memory() if store.rows > memory.stored.rows else None
    if there is None:
        return memory
    base, more = (there, memory) if memory.stored.first else (memory, there)
    for task in more.tasks[seen:].unique():
        rows = seen + (more.tasks[seen:] == task).nonzero()[:, 0]
        labels = [more.classes[number] for number in more.labels[rows].tolist()]
        base = base.add(more.items[rows], labels, None, more.digests[rows])
    return base


def _write(classifier: FewShotClassifier, memory: Memory, folder: Path) -> Store:
    """Everything under new names, then the description that names it, then what was there before is removed."""
    place = folder.resolve() / f"memory-{secrets.token_hex(4)}"
    weights = _weights(classifier.engine_)
    digest = hashlib.sha256(weights).hexdigest()
    try:
        store = create(place, memory)
        put(folder / _weights_name(digest), weights)
        put(folder / DESCRIPTION, sealed(_described(classifier, place.name, digest)))
    except BaseException:
        disk.remove(place, STORED)
        raise
    kept = {DESCRIPTION, _weights_name(digest), place.name}
    for path in folder.iterdir():
        if path.name not in kept and OURS.fullmatch(path.name):
            disk.remove(path, STORED)
    return store


def _described(classifier: FewShotClassifier, memory: str, weights: str) -> dict[str, Any]:
    """``memory``: the name of its folder; ``weights``: their digest."""
    engine = classifier.engine_
    method, encoder = _recipes(engine)
    return {
        "format_version": FORMAT_VERSION,
        "versions": software_versions(),
        "parameters": _parameters(classifier),
        "memory": memory,
        "method": method,
        "encoder": encoder,
        "image_shape": engine.image_shape,
        "light_ink": engine.light_ink,
        "crop": engine.crop,
        "view": engine.view,
        "outside": named(engine.encoder),
        "transductive": engine.transductive,
        "temperatures": dict(engine.temperatures),
        "familiarities": dict(engine.familiarities),
        "digests": {"weights": weights},
    }


def _indexed(store: Store, memory: Memory) -> Memory:
    """What a store holds, with an index of all of it; ``memory`` is what was saved."""
    found = store.memory()
    if found.exact:
        return found
    known = memory.__dict__.get("index", memory.indexed) if store.rows == len(memory.labels) else None
    index = indices.current(found.indexed or known, found.rows, found.labels, len(found.classes))
    if index is not found.indexed:
        store.write_index(index)
    return replace(found, indexed=index)


def load(kind: type[FewShotClassifier], folder: Path, device: str) -> FewShotClassifier:
    raw = description_of(folder)
    try:
        return _loaded(kind, raw, folder, device)
    except EngramError:
        if description_of(folder) == raw:
            raise
        return _loaded(kind, description_of(folder), folder, device)  # it was written anew while we read


def _loaded(kind: type[FewShotClassifier], raw: dict[str, Any], folder: Path, device: str) -> FewShotClassifier:
    try:
        digests, first = raw["digests"], raw["format_version"] == 1
        name = "weights.safetensors" if first else _weights_name(digests["weights"])
        weights = tensors_of(folder / name, digests["weights"])
        classifier = kind(**{**raw["parameters"], "device": device})
        classifier.engine_ = _engine(raw, weights, device, folder)
        if first:
            parts = tensors_of(folder / "memory.safetensors", digests["memory"])
            classifier.memory_ = Memory(tuple(raw["classes"]), parts["items"], parts["labels"], parts["tasks"])
        else:
            classifier.memory_ = open_store(inside(folder, raw["memory"])).memory()
        engine = classifier.engine_
        classifier.memory_.check(() if engine.encoder or engine.by_features else engine.image_shape)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngramError(f"{folder / DESCRIPTION} is not a saved classifier ({error}): save it again") from error
    return classifier


def _weights_name(digest: str) -> str:
    return f"weights-{digest[:16]}.safetensors"


def _parameters(classifier: FewShotClassifier) -> dict[str, Any]:
    """As JSON gives them back."""
    return dict(json.loads(json.dumps({**classifier.get_params(), "weights": str(classifier.weights)}, default=str)))


def _engine(raw: dict[str, Any], weights: dict[str, Tensor], device: str, folder: Path) -> Engine:
    where, on, shape = choose_device(device), str(folder / DESCRIPTION), tuple(raw["image_shape"])
    refuse_own_code((raw["method"], raw["encoder"]), on, "fit it again from your run folder")
    encoder: torch.nn.Module | None = None
    encoder_recipe = None
    if (outside := raw.get("outside")) is not None:
        encoder = open_named(outside, on).to(where)
    if raw["encoder"] is not None:
        encoder_recipe = recipe_from_saved(raw["encoder"], on)
        encoder = build_method(encoder_recipe, shape, where, "fp32", weights).eval().backbone
        _fill(encoder, weights, ENCODER, on)
    recipe = recipe_from_saved(raw["method"], on)
    width = shape if encoder is None else (torch.Size(encoder.out_shape).numel(),)  # type: ignore[arg-type]
    method = build_method(recipe, width, where, "fp32", weights).eval()
    _fill(method, weights, METHOD, on)
    extras = {name: raw[name] for name in ("light_ink", "transductive", "temperatures", "familiarities")}
    if (boxed := box().get(raw["parameters"]["weights"])) and raw["format_version"] < 3:
        extras["temperatures"] = boxed.temperatures_of(recipe.method, raw["transductive"])
    for table in filter(None, (raw["temperatures"], raw["familiarities"])):
        fitted_at(table, 1)  # what is no such table fails here and not at the first answer
    extras |= {name: raw[name] for name in ("crop", "view") if name in raw}  # came later
    return Engine(method, recipe, shape, encoder, encoder_recipe, **extras)


def _recipes(engine: Engine) -> tuple[dict[str, Any], dict[str, Any] | None]:
    return engine.recipe.to_dict(), engine.encoder_recipe.to_dict() if engine.encoder_recipe else None


def _weights(engine: Engine) -> bytes:
    parts = {METHOD + name: value for name, value in engine.method.state_dict().items()}
    if engine.encoder_recipe is not None and engine.encoder is not None:
        parts |= {ENCODER + name: value for name, value in engine.encoder.state_dict().items()}
    return tensors_to_bytes({name: _smallest(value.cpu()).contiguous() for name, value in parts.items()})


def _fill(module: torch.nn.Module, weights: dict[str, Tensor], prefix: str, where: str) -> None:
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    fill(module, own, f"the weights beside {where} do not fit")


def _smallest(value: Tensor) -> Tensor:
    """Half precision where nothing is lost by it: weights of the box came that way."""
    half = value.half() if value.dtype == torch.float32 else value
    return half if torch.equal(half.to(value.dtype), value) else value
