"""A whole run: recipe in, trained model, test results and run record out. `engram train` is this call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from engram import processes
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.bench import with_tests
from engram.evaluation.evaluate import Result, evaluate
from engram.ledger import RunRecord, check_results_folder, new_record, read_ledger, record_path, run_stem, write_record
from engram.machine.device import describe_device, explain, kept_memory
from engram.machine.together import Call, together
from engram.models.build import resolve_method, revisions, trusting_code
from engram.models.checkpoint import load
from engram.models.features import SPLITS, check_maker, open_stores
from engram.models.run_folder import last_step
from engram.options import TrainOptions, read
from engram.processes import LostProcessError
from engram.recipes import Recipe, check_recipe, load_recipe
from engram.recipes.protocols import protocols_of, validation_split
from engram.training.loop import OnValidation, TrainOutcome
from engram.training.loop import train as run_loop
from engram.training.running import Limits, Room, Running
from engram.training.start import count_base_classes
from engram.types import Method

CHANGES = {"train": ("seed", "iterations", "precision"), "data": ("dataset",), "recipe": ("backbone", "method")}
"""what a call may change of a recipe, by the table it stands in"""


@dataclass(frozen=True, repr=False)
class TrainedRun:
    """What `engram.train` leaves: ``run.accuracy`` for short, ``run.method`` to go on with, ``run.folder`` to bench."""

    record: RunRecord
    record_file: Path
    method: Method
    """with the best weights on validation, in evaluation mode"""
    results: tuple[Result, ...]
    """one for each test protocol, with every answer; () where the run was not tested"""
    folder: Path
    """of its checkpoints, and of TensorBoard's event files in ``tensorboard``"""

    @property
    def accuracy(self) -> float | None:
        """Of the first test protocol, a fraction of 1; None where the run was not tested."""
        return self.record.accuracy

    @property
    def interval(self) -> float | None:
        """Half-width of the 95 % interval of `accuracy`."""
        return self.record.interval

    @property
    def remarks(self) -> tuple[str, ...]:
        """Whether training helped an encoder that was there before, and whether its minutes cut it short."""
        told, said = self.record.training, []
        before, best, gain = told.get("frozen_accuracy"), told["best_accuracy"], told.get("gain")
        by = gain and f"{100 * gain['difference']:+.2f} ± {100 * gain['interval']:.2f} points over {gain['classes']}"
        if before is not None and best > before:
            said.append(f"training helps: {by} validation classes, {before:.2%} with the encoder as it came")
        elif before is not None:
            why = f"{by} validation classes" if by else "the encoder was not trained yet"
            said.append(f"training does not help beyond chance: {why}; the encoder as it came, {before:.2%}, was kept")
        if told["stopped_by"] == "max_minutes":
            asked = self.record.recipe["train"]["iterations"]
            said.append(f"not all of its steps were made: the minutes ended at step {told['iterations']} of {asked}")
        return tuple(said)

    def __repr__(self) -> str:
        return f"TrainedRun({self.record.summary}, folder={str(self.folder)!r})"


def adapt(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with what a call changes: the keys of `CHANGES`; None, or no key, keeps the recipe's value.

    Another backbone has no claim to the settings of the recipe's.
    """
    given = {table: {k: changes[k] for k in keys if changes.get(k) is not None} for table, keys in CHANGES.items()}
    train, data = replace(recipe.train, **given["train"]), replace(recipe.data, **given["data"])
    changed = replace(recipe, train=train, data=data, **given["recipe"])
    if changed.backbone != recipe.backbone:
        changed = replace(changed, backbone_settings={})
    check_recipe(changed, changed.name)
    return changed


def train(
    recipe: str | Recipe,
    *,
    stores: Mapping[str, Store] | None = None,
    on_validation: OnValidation | None = None,
    progress: bool = True,
    **options: Unpack[TrainOptions],
) -> TrainedRun:
    """Train a recipe, answer its test protocols with the best-on-validation weights, and append a run record.

    ``stores`` (train, val and test) are used in place of the dataset's. ``on_validation(step, result)`` is called after
    every validation with an `engram.Result`, for any tracker: ``lambda step, result: tracker.log({"accuracy":
    result.accuracy}, step)``. Losses and validations are also written for TensorBoard: ``tensorboard --logdir
    RUN_FOLDER/tensorboard``.

    Options are those of `engram train`, `engram.options.TrainOptions`, each in place of what the recipe says:

    - seed, iterations, method, backbone, dataset, precision: what is trained;
    - max_minutes, whole_run, resume, plain, micro_batch, devices, store_memory: how far and how;
    - features: a folder of `engram.models.features.write_features`, used in place of the dataset's images;
    - test = False ends after training; predictions, note, out, results: what is kept, and where;
    - data, device; trust_code: import a class that a run it starts from names.
    """
    how = read("train", TrainOptions, options)
    chosen = adapt(load_recipe(recipe) if isinstance(recipe, str) else recipe, how)
    if not resolve_method(chosen.method).card.trainable:
        raise EngramError(
            f"'{chosen.method}' has nothing to train: use engram bench {chosen.method} --recipe {chosen.name}"
        )
    check_results_folder(Path(how["results"]))
    call = Call(__name__, "train", recipe, {"stores": stores, "progress": False, **options})
    with together(how["devices"], how["device"], call) as where:
        with processes.agreed():
            opened = _open(chosen, stores, how)
            chosen = count_base_classes(chosen, opened["train"])
        return _train(chosen, how, opened, where, on_validation, progress and processes.is_first())


def _open(recipe: Recipe, stores: Mapping[str, Store] | None, how: TrainOptions) -> Mapping[str, Store]:
    unasked = () if how["test"] else ("test",)  # images of a split that nobody asks about need not be there
    splits = [split for split in SPLITS if split == validation_split(recipe) or split not in unasked]
    opened = stores or open_stores(recipe.data, splits, how["data"], how["features"])
    if how["features"]:
        check_maker(opened["train"], recipe)
    for protocol in protocols_of(recipe) if how["test"] else ():
        protocol.check(opened["test"])  # before hours of training, not after
    return opened


def _train(
    chosen: Recipe,
    how: TrainOptions,
    opened: Mapping[str, Store],
    where: torch.device,
    on_validation: OnValidation | None,
    progress: bool,
) -> TrainedRun:
    """What each process does; the first alone writes a record."""
    results = Path(how["results"])
    name = run_stem(chosen.method, chosen.name) if "/" in chosen.name else chosen.name  # its own under another method
    folder = Path(how["out"] or Path("runs") / name)
    before = _recorded(folder, results) if how["resume"] else None
    blank = new_record("train", chosen, describe_device(where), len(revisions(chosen)), note=how["note"])
    clock = time.monotonic()
    try:
        with trusting_code(how["trust_code"]):  # of a run it starts from
            outcome = run_loop(
                chosen,
                opened,
                folder,
                device=where,
                resume=how["resume"],
                limits=Limits(how["max_minutes"], whole_run=how["whole_run"]),
                running=Running(how["precision"], how["plain"], how["micro_batch"], how["store_memory"], progress),
                on_validation=on_validation,
            )
        tests = _test(outcome, chosen, opened, where, how, progress) if outcome.status == "finished" else ()
    except Exception as error:
        shown = explain(_kept(error, folder), chosen, where)
        _record_failure(blank, results, shown, time.monotonic() - clock)
        if shown is error:
            raise
        raise shown from error
    if before and outcome.training["iterations"] == before.training["iterations"] and (before.evaluations or not tests):
        return TrainedRun(before, record_path(results, before), outcome.method, tests, folder)
    given = {"features": opened["train"].info.source} if how["features"] else {}
    given |= {"weights": load(folder, "best").digest()} if outcome.status == "finished" else {}
    record = _complete(blank, outcome, given, time.monotonic() - clock)
    if processes.is_first():
        record = with_tests(record, tests, results, how["predictions"])
        write_record(results, record)
    return TrainedRun(record, record_path(results, record), outcome.method, tests, folder)


def _kept(error: Exception, folder: Path) -> Exception:
    """Where another process is lost, what is left of the run and how it goes on."""
    if not isinstance(error, LostProcessError):
        return error
    last = last_step(folder)
    kept = f"{last} is kept: go on with --resume, on as many devices as there are" if last else "nothing was saved yet"
    return LostProcessError(f"{error}; {kept}")


def _recorded(folder: Path, results: Path) -> RunRecord | None:
    """The finished record of the run in a folder, a tested one before others: resumed with nothing left to do, the run
    needs no second one."""
    with suppress(EngramError):  # what is wrong with the run is told when it is resumed
        state = load(folder, "last").state
        of_run = [r for r in read_ledger(results)[0] if state.run_id in (r.run_id, r.training.get("resumed_from"))]
        done = [r for r in of_run if r.status == "finished" and r.training.get("iterations") == state.iteration]
        return max(done, key=lambda r: bool(r.evaluations), default=None)
    return None


def _record_failure(blank: RunRecord, results: Path, error: Exception, seconds: float) -> None:
    told = str(error) if isinstance(error, EngramError) else f"{type(error).__name__}: {error}"
    if not processes.is_first():
        return
    with suppress(EngramError):  # of a record that cannot be written; the failure itself is what a person needs to see
        write_record(results, replace(blank, status="failed", error=told, seconds=seconds))


def _test(
    outcome: TrainOutcome,
    recipe: Recipe,
    stores: Mapping[str, Store],
    device: torch.device,
    how: TrainOptions,
    progress: bool,
) -> tuple[Result, ...]:
    if not how["test"]:
        return ()
    store = Room(device, how["store_memory"]).place(stores["test"]) if device.type == "cuda" else stores["test"]
    protocols = protocols_of(recipe, batch_norm=outcome.method.card.batch_norm)
    with kept_memory():
        ask = partial(evaluate, outcome.method, store, device=device, progress=progress, share=processes.mine())
        return tuple(ask(protocol) for protocol in protocols)


def _complete(blank: RunRecord, outcome: TrainOutcome, given: dict[str, str], seconds: float) -> RunRecord:
    """The record with what came out of training."""
    return replace(
        blank,
        run_id=outcome.run_id,
        status=outcome.status,
        seconds=round(seconds, 3),
        curves=outcome.curves,
        training=outcome.training | given,
        start=outcome.start,
    )
