"""What a call of `engram reproduce` did."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engram.reproduction.plan import Plan
from engram.reproduction.process import Ended


@dataclass
class Reproduced:
    """What a call did, by title of the job."""

    plan: Plan
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """title -> why"""
    left: list[str] = field(default_factory=list)
    """stopped, out of budget, or after a failure they depend on"""
    report: Path | None = None

    def add(self, title: str, ended: Ended) -> None:
        if ended.status == "finished":
            self.finished.append(title)
        elif ended.status == "failed":
            self.failed[title] = ended.sentence
        else:
            self.left.append(title)
