"""The sections of docs that studies fill: ``<!-- study:begin NAME -->`` and ``<!-- claims:begin all -->``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engram.errors import EngramError, nearest
from engram.ledger import Ledger, RunRecord, trusted_records
from engram.report.claims import Finding, claims_table, findings
from engram.report.speed import step_times
from engram.report.study.cells import Filled, fill
from engram.report.study.tables import overview_table, study_section, systems_table
from engram.studies.claims import load_claims
from engram.studies.schema import Study, load_study, study_names

OVERVIEW, SYSTEMS = "overview", "systems"


@dataclass(frozen=True)
class StudyBook:
    """Every study of the box, and given ones, filled from records: what tables, claims and the report are made of.

    Records are read when they are first needed.
    """

    folder: Path
    more: tuple[Study, ...] = ()

    @cached_property
    def trusted(self) -> tuple[list[RunRecord], list[str]]:
        """Records that count, and a sentence for each that is left out."""
        return trusted_records(self.folder)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.trusted[0])

    @cached_property
    def studies(self) -> dict[str, Study]:
        return {s.name: s for s in (*(load_study(name) for name in study_names()), *self.more)}

    @cached_property
    def cells(self) -> dict[str, dict[tuple[str, str], Filled]]:
        return {name: fill(study, self.ledger, self.folder) for name, study in self.studies.items()}

    @cached_property
    def findings(self) -> list[Finding]:
        return findings(load_claims(self.studies), self.cells, self.ledger)

    def section(self, name: str, records: Sequence[RunRecord], runs: str) -> str:
        """What stands between the markers of a study."""
        self._refuse_problems()
        if name == OVERVIEW:
            return overview_table(list(self.studies.values()), self.cells)
        if name == SYSTEMS:
            steps = step_times(self.folder.parent / "speed")
            return systems_table(self.studies["table1"], self.cells["table1"], self.ledger, runs, steps)
        return study_section(self.studies[name], self.cells[name], runs)

    def claims(self, name: str, records: Sequence[RunRecord], runs: str) -> str:
        self._refuse_problems()
        return claims_table(self.findings)

    def _refuse_problems(self) -> None:
        """A page of the docs is not rebuilt without records it had; the report names them and leaves them out."""
        if self.trusted[1]:
            raise EngramError(f"tables are not rebuilt while records do not count: {'; '.join(self.trusted[1])}")


def check_study_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    known = [*study_names(), OVERVIEW, SYSTEMS]
    if name not in known:
        raise EngramError(f"{where}: 'study:begin {name}' names no known study{nearest(name, known)}")


def check_claims_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    if name != "all":
        raise EngramError(f"{where}: 'claims:begin {name}' but there is only 'claims:begin all'")
