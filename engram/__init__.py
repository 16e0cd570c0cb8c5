"""Engram: few-shot learning that remembers.

``engram.train(recipe)``, ``engram.bench(model)``, ``engram.compare(a, b)``, ``engram.quickstart()`` and
``engram.reproduce(studies)`` are the same calls as the command line's; ``engram.audit(method, store)`` audits a model
in memory.
Everything is loaded on first use, so a report needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "Answers": "engram.types",
    "EmbeddingMethod": "engram.types",
    "Episode": "engram.types",
    "LossTerms": "engram.types",
    "Method": "engram.types",
    "MethodCard": "engram.types",
    "Objective": "engram.types",
    "Prediction": "engram.types",
    "TrainBatch": "engram.types",
    "EngramError": "engram.errors",
    "Protocol": "engram.protocol",
    "Store": "engram.data.store",
    "open_split": "engram.data.datasets",
    "evaluate": "engram.evaluation.evaluate",
    "audit": "engram.probes.audit",
    "METHODS": "engram.methods",
    "load_recipe": "engram.recipes",
    "compare": "engram.evaluation.bench",
    "FewShotClassifier": "engram.classifier",
    "quickstart": "engram.tour",
    "reproduce": "engram.reproduction.carry_out",
    "train": "engram.training.experiment",
    "bench": "engram.evaluation.bench",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'engram' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
