"""Which records tell of memory along the stream: one fixed setting, the newest answer of each system.

Only miniImageNet streams of the test classes in one setting are read (`SETTING`), and only heads on frozen features, so
every cell answers the same question with the same encoder as the others of its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engram.ledger import Answer, Evaluation, Ledger, RunRecord, newest
from engram.protocol import Protocol, agrees
from engram.report.cards import system_name

LENGTHS = (8, 32, 128)
VARIED = ("stream_length", "names", "erase_history", "test_samples", "n_sequences")
"""keys of a protocol in which the cells may differ; all others make another setting"""
SETTING = {k: v for k, v in Protocol("miniimagenet", n_query=15).question.items() if k not in VARIED}
TRANSDUCTIVE = ("propagation_memory", "egnn", "tpn", "cml_bgnn", "content_memory")
"""unless their settings say otherwise"""
MEMORIES = {"slot": "memory by slot", "none": "no history"}


@dataclass(frozen=True)
class Cell:
    """One record's answer to one kind of stream."""

    record: RunRecord
    evaluation: Evaluation

    @property
    def protocol(self) -> Mapping[str, Any]:
        return self.evaluation.protocol

    @property
    def length(self) -> int:
        return int(self.protocol["stream_length"])

    @property
    def names(self) -> str:
        return str(self.protocol.get("names", "anonymous"))

    @property
    def erased(self) -> bool:
        return bool(self.protocol.get("erase_history"))

    @property
    def backbone(self) -> str:
        return str(self.record.recipe.get("backbone", ""))

    @property
    def row(self) -> tuple[str, str, str, bool]:
        return self.names, self.backbone, self.record.recipe_today, self.erased

    @property
    def questions(self) -> tuple[Any, ...]:
        """Equal for two records whose streams can be paired. The digest alone does not tell 400 x 32 from 100 x 128."""
        return self.evaluation.tasks_digest, self.protocol.get("dataset_digest"), self.length

    def settings(self) -> dict[str, Any]:
        return dict(self.record.recipe.get("method_settings") or {})

    @property
    def history(self) -> str:
        """CML-BGNN's; its default is the paper's"""
        return str(self.settings().get("history", "slot")) if self.record.method == "cml_bgnn" else ""

    @property
    def reads_names(self) -> bool:
        """Whether a name could tell it anything; if not, it answers named streams as it does anonymous ones."""
        return self.record.method.endswith("_memory")

    @property
    def remembers(self) -> bool:
        return self.reads_names or self.history == "slot"

    def label(self) -> str:
        """``CML-BGNN, memory by slot, transductive``"""
        settings = self.settings()
        words = [system_name(self.record.method)]
        if self.record.method == "cml_bgnn":
            words.append(MEMORIES[self.history])
        elif self.names == "anonymous" and settings.get("node") and not settings.get("past_picture"):
            words.append("by attention")
        words += ["history erased"] if self.erased else []
        together = settings.get("transductive", self.record.method in TRANSDUCTIVE)
        return ", ".join(words + (["transductive"] if together else []))


def stream_cells(records: Sequence[RunRecord]) -> list[Cell]:
    """The newest finished answer of each recipe to each kind of stream in the setting, rows together, T ascending."""
    found = newest(Ledger(records).given, _place).values()
    return sorted((Cell(answer.record, answer.evaluation) for answer in found), key=_order)


def _place(answer: Answer) -> tuple[Any, ...] | None:
    """Where an answer stands; None where it tells of something else."""
    cell = Cell(answer.record, answer.evaluation)
    on_features = bool(answer.record.training.get("features"))
    fits = on_features and "stream" in answer.evaluation.metrics and _in_setting(cell.protocol)
    return (*cell.row, cell.length) if fits else None


def _in_setting(protocol: Mapping[str, Any]) -> bool:
    return protocol.get("stream_length") in LENGTHS and agrees(protocol, SETTING)


def _order(cell: Cell) -> tuple[Any, ...]:
    return cell.names != "named", cell.backbone, cell.erased, cell.record.recipe_name, cell.length
