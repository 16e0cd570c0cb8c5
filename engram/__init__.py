"""Engram: few-shot learning that remembers.

``engram.train(recipe)``, ``engram.bench(model)``, ``engram.compare(a, b)``, ``engram.quickstart()`` and
``engram.reproduce(studies)`` are the same calls as the command line's; ``engram.audit(method, store)`` audits a model
in memory.
Everything is loaded on first use, so a report needs no torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before torch is imported: threads that wait busily for each other slow work on shared cores down three times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:  # the same names for type checkers, which cannot read the table below
    from engram.classifier import FewShotClassifier as FewShotClassifier
    from engram.data.datasets import open_split as open_split
    from engram.data.store import Store as Store
    from engram.errors import EngramError as EngramError
    from engram.evaluation.bench import bench as bench
    from engram.evaluation.bench import compare as compare
    from engram.evaluation.evaluate import Result as Result
    from engram.evaluation.evaluate import evaluate as evaluate
    from engram.ledger import RunRecord as RunRecord
    from engram.methods import METHODS as METHODS
    from engram.nn.backbones.contract import Backbone as Backbone
    from engram.probes.audit import AuditReport as AuditReport
    from engram.probes.audit import audit as audit
    from engram.protocol import Protocol as Protocol
    from engram.recipes import load_recipe as load_recipe
    from engram.reproduction.carry_out import reproduce as reproduce
    from engram.tour import quickstart as quickstart
    from engram.training.experiment import TrainedRun as TrainedRun
    from engram.training.experiment import train as train
    from engram.types import Answers as Answers
    from engram.types import EmbeddingMethod as EmbeddingMethod
    from engram.types import Episode as Episode
    from engram.types import LossTerms as LossTerms
    from engram.types import Method as Method
    from engram.types import MethodCard as MethodCard
    from engram.types import Objective as Objective
    from engram.types import Prediction as Prediction
    from engram.types import TrainBatch as TrainBatch

__version__ = "0.1.0"

_NAMES = {
    "classifier": "FewShotClassifier",
    "data.datasets": "open_split",
    "data.store": "Store",
    "errors": "EngramError",
    "evaluation.bench": "bench compare",
    "evaluation.evaluate": "Result evaluate",
    "ledger": "RunRecord",
    "methods": "METHODS",
    "nn.backbones.contract": "Backbone",
    "probes.audit": "AuditReport audit",
    "protocol": "Protocol",
    "recipes": "load_recipe",
    "reproduction.carry_out": "reproduce",
    "tour": "quickstart",
    "training.experiment": "TrainedRun train",
    "types": "Answers EmbeddingMethod Episode LossTerms Method MethodCard Objective Prediction TrainBatch",
}
_LAZY = {name: f"engram.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'engram' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
