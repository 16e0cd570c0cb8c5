"""Options of `engram.train`, `engram.bench` and `engram.audit`: keywords in Python, flags on the command line.

A table says what each option is called, what it may be and what it means, and `DEFAULTS` what holds without it. Type
checkers take the keywords of a call from it, and the command line its flags. Keys of the protocol are keywords of a
bench and an audit too; their meaning stands in `engram.protocol`, which makes their flags, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast, get_type_hints

from engram import flags
from engram.errors import EngramError, nearest
from engram.protocol import KEYS

Table = TypeVar("Table")


class Options(TypedDict, total=False):
    """What all three share."""

    data: Annotated[Path | str | None, flags.DATA]
    results: Annotated[Path | str, flags.RESULTS]
    device: flags.Device
    features: flags.Features
    note: flags.Note
    trust_code: flags.TrustCode


class TrainOptions(Options, total=False):
    """Of `engram.train`."""

    out: flags.RunFolder
    """run folder for checkpoints"""
    seed: flags.Whole
    """of weights and training tasks"""
    iterations: flags.Whole
    """training steps"""
    method: flags.Name
    """a stem of engram list methods, or package.module:Class for your own"""
    backbone: flags.Name
    """conv32, conv64, conv4, ..., or package.module:Class for your own"""
    dataset: flags.Name
    """a name of engram data, or folder:PATH for your own images"""
    precision: flags.Precision
    """a recipe's bf16 applies on GPUs only; asked for here, on a CPU too"""
    max_minutes: flags.Minutes
    """stop training after this many minutes, then test"""
    whole_run: flags.Switch
    """count the minutes of earlier calls too, where the run is resumed"""
    resume: flags.Switch
    """go on from the run folder's last checkpoint"""
    test: flags.Switch
    """whether the best weights are tested after training"""
    predictions: flags.Switch
    """keep the probabilities of every query beside the record"""
    plain: flags.Switch
    """no kernels but PyTorch's and no captured steps"""
    micro_batch: flags.Count
    """sequences at a time, to fit a smaller card; BatchNorm then sees smaller batches (0: all of a step)"""
    devices: flags.Count
    """processes that share out each step, each with a GPU of its own, or a core where there is none"""
    store_memory: flags.Size
    """memory for the pictures, such as 2GB, on the GPU or of the machine; what is more is read from disk"""


class AskOptions(Options, total=False):
    """What `engram bench` and `engram audit` share."""

    recipe: flags.AskedRecipe
    method: flags.Untrained
    split: flags.Split
    devices: flags.Answering


class BenchOptions(AskOptions, total=False):
    """Of `engram.bench`, beside the keys of the protocol."""

    query_statistics: flags.Statistics
    """queries normalises a task's queries together, where the method adapts to its task"""
    which_weights: flags.WhichWeights
    """those validation chose, those of the last step before it, or their moving average"""
    predictions: flags.Switch
    """keep the probabilities of every query beside the record"""


class AuditOptions(AskOptions, total=False):
    """Of `engram.probes.audit.audit_model`, beside the keys of the protocol."""

    quick: flags.Switch
    """the exact probes alone"""


class Drawn(TypedDict, total=False):
    """Fields of `engram.Protocol` that a bench and an audit may change."""

    n_way: int | None
    n_shot: int | None
    n_query: int | None
    n_sequences: int | None
    stream_length: int | None
    names: Literal["anonymous", "named"] | None
    pool_classes: int | None
    labelled_fraction: float | None
    drop_unlabelled: bool | None
    hidden_labels_shown: bool | None
    seed: int | None


class AuditKeywords(AuditOptions, Drawn, total=False):
    """All that `engram.probes.audit.audit_model` takes."""


class BenchKeywords(BenchOptions, Drawn, total=False):
    """All that `engram.bench` takes."""

    slot_order: Literal["shuffled", "class-order"] | None
    query_balance: Literal["balanced", "dirichlet"] | None
    dirichlet_alpha: float | None
    recurrence_gap: int | None
    drift: float | None
    revisit: int | None
    erase_history: bool | None
    test_samples: int | None
    views: Literal[1, 2] | None
    window: str | None


DEFAULTS: dict[str, Any] = {"results": Path("results/runs"), "device": "auto", "note": "", "test": True, "devices": 1}
DEFAULTS |= {"micro_batch": 0, "split": "test", "which_weights": "chosen"}
"""what holds where an option is not given: no other switch, and None of everything else"""
STREAMS = {"stream_length": 8, "n_sequences": 100}
"""what an audit asks unless a call says otherwise"""
DRAWN = tuple(get_type_hints(Drawn))
"""fields of `engram.Protocol` that an audit may change"""
ASKABLE = tuple(key for key in KEYS if key not in ("dataset", "split", "batch_norm", "dataset_digest"))
"""those that a bench may change: the others are the store's and the model's"""


def defaults(table: type[Table]) -> Table:
    """Every option of a table as it is where it is not given."""
    kinds = get_type_hints(table)
    return cast(Table, {key: DEFAULTS.get(key, False if kind is bool else None) for key, kind in kinds.items()})


def read(call: str, table: type[Table], given: Mapping[str, object]) -> Table:
    """All options of a table from the keywords of a call; one that is not in it is refused."""
    known = cast(dict[str, object], defaults(table))
    if unknown := [key for key in given if key not in known]:
        raise EngramError(f"{call} has no option '{unknown[0]}'{nearest(unknown[0], known)}")
    return cast(Table, known | dict(given))
