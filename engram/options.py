"""Options of `engram.train`, `engram.bench` and `engram.audit`: keywords in Python, flags on the command line.

Each dataclass says what an option is called, what it means and what holds without it; keys of the protocol are options
too, and stand in `engram.protocol`. The TypedDicts below tell type checkers the same; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, get_type_hints

from engram import flags
from engram.errors import EngramError, nearest
from engram.protocol import KEYS


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all three share."""

    data: flags.Data = None
    results: flags.Results = Path("results/runs")
    device: flags.Device = "auto"
    features: flags.Features = None
    note: flags.Note = ""
    trust_code: flags.TrustCode = False

    @classmethod
    def read(cls, call: str, given: Mapping[str, object], also: tuple[str, ...] = ()) -> Self:
        """Options from the keywords of a call; one that is neither known nor named in ``also`` is refused."""
        known = [f.name for f in fields(cls)]
        if unknown := [key for key in given if key not in (*known, *also)]:
            raise EngramError(f"{call} has no option '{unknown[0]}'{nearest(unknown[0], [*known, *also])}")
        return cls(**{key: value for key, value in given.items() if key in known})  # type: ignore[arg-type]

    def given(self) -> dict[str, Any]:
        """Those that differ from their default, as keywords of a call."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """Of `engram.train`."""

    out: flags.RunFolder = None
    """run folder for checkpoints"""
    seed: flags.Whole = None
    """of weights and training tasks"""
    iterations: flags.Whole = None
    """training steps"""
    method: flags.Name = None
    """a stem of engram list methods, or package.module:Class for your own"""
    backbone: flags.Name = None
    """conv32, conv64, conv4, ..., or package.module:Class for your own"""
    dataset: flags.Name = None
    """a name of engram data, or folder:PATH for your own images"""
    precision: flags.Precision = None
    """bf16 applies on GPUs only"""
    max_minutes: flags.Minutes = None
    """stop training after this many minutes, then test"""
    whole_run: flags.Switch = False
    """count the minutes of earlier calls too, where the run is resumed"""
    resume: flags.Switch = False
    """go on from the run folder's last checkpoint"""
    test: flags.Switch = True
    """whether the best weights are tested after training"""
    predictions: flags.Switch = False
    """keep the probabilities of every query beside the record"""
    plain: flags.Switch = False
    """no kernels but PyTorch's and no captured steps"""
    micro_batch: flags.Count = 0
    """sequences at a time, to fit a smaller card; BatchNorm then sees smaller batches (0: all of a step)"""
    devices: flags.Count = 1
    """processes that share out each step, each with a GPU of its own, or a core where there is none"""
    store_memory: flags.Size = None
    """memory for the pictures, such as 2GB, on the GPU or of the machine; what is more is read from disk"""


@dataclass(frozen=True, kw_only=True)
class AskOptions(Options):
    """What `engram bench` and `engram audit` share."""

    recipe: flags.AskedRecipe = None
    """whose data and tasks to ask about"""
    method: flags.Untrained = None
    """in place of a run folder: one that needs no training, or package.module:Class for your own"""
    split: flags.Split = "test"
    """classes the tasks are drawn from"""
    devices: flags.Count = 1
    """processes that answer together, each with a GPU of its own, or a core where there is none"""


@dataclass(frozen=True, kw_only=True)
class BenchOptions(AskOptions):
    """Of `engram.bench`, beside the keys of the protocol."""

    query_statistics: flags.Statistics = None
    """queries normalises a task's queries together, where the method adapts to its task"""
    which_weights: flags.WhichWeights = "chosen"
    """those validation chose, those of the last step before it, or their moving average"""
    predictions: flags.Switch = False
    """keep the probabilities of every query beside the record"""


@dataclass(frozen=True, kw_only=True)
class AuditOptions(AskOptions):
    """Of `engram.probes.audit.audit_model`, beside the keys of the protocol."""

    stream_length: flags.Count = 8
    """tasks of a stream"""
    n_sequences: flags.Count = 100
    """independent streams for the statistical probes"""
    quick: flags.Switch = False
    """the exact probes alone"""


class Keywords(TypedDict, total=False):
    """`Options` for type checkers."""

    data: str | Path | None
    results: str | Path
    device: str
    features: str | Path | None
    note: str
    trust_code: bool


class TrainKeywords(Keywords, total=False):
    """`TrainOptions` for type checkers."""

    out: str | Path | None
    seed: int | None
    iterations: int | None
    method: str | None
    backbone: str | None
    dataset: str | None
    precision: Literal["fp32", "bf16"] | None
    max_minutes: float | None
    whole_run: bool
    resume: bool
    test: bool
    predictions: bool
    plain: bool
    micro_batch: int
    devices: int
    store_memory: str | None


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


class _Asked(Keywords, total=False):
    recipe: str | None
    method: str | None
    split: Literal["train", "val", "test"]
    devices: int


class AuditKeywords(_Asked, Drawn, total=False):
    """`AuditOptions` and `Drawn` for type checkers."""

    quick: bool


class BenchKeywords(_Asked, Drawn, total=False):
    """`BenchOptions` and all keys of a protocol that a bench may change, for type checkers."""

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
    query_statistics: Literal["with_support", "queries"] | None
    which_weights: Literal["chosen", "last", "average"]
    predictions: bool


DRAWN = tuple(get_type_hints(Drawn))
"""fields of `engram.Protocol` that an audit may change"""
ASKABLE = tuple(key for key in KEYS if key not in ("dataset", "split", "batch_norm", "dataset_digest"))
"""those that a bench may change: the others are the store's and the model's"""
