"""What pages are made of: every record, and every study filled from those that count."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engram.errors import EngramError, EngramWarning
from engram.ledger import Ledger, RunRecord, read_ledger, readable_tasks, record_path, trusted_records
from engram.report.cells import Filled, fill
from engram.report.claims import Finding, claims_table, findings
from engram.report.costs import costs_table
from engram.report.curves import system_curves
from engram.report.measured import step_times
from engram.report.rows import ResultRow, result_rows
from engram.report.studies import comparisons_table, overview_table, study_markdown
from engram.report.systems import lean_systems_table, systems_tables
from engram.report.table import folded
from engram.studies.claims import load_claims
from engram.studies.schema import Study, load_study, study_names

OVERVIEW, SYSTEMS, LEAN = "overview", "table1", "systems-lean"
"""SYSTEMS: the study whose rows are the systems, each with a verdict"""


@dataclass(frozen=True)
class Book:
    """Records of a folder with every study of the box, and given ones; each is read when it is first needed."""

    folder: Path
    more: tuple[Study, ...] = ()
    strict: bool = False
    """whether a record that cannot be read or does not count is refused, or named and left out"""

    @cached_property
    def records(self) -> list[RunRecord]:
        records, problems = read_ledger(self.folder)
        self._tell(problems)
        return records

    @cached_property
    def rows(self) -> list[ResultRow]:
        return result_rows(self.records)

    @cached_property
    def trusted(self) -> tuple[list[RunRecord], list[str]]:
        """Records that count, and a sentence for each that is left out."""
        return trusted_records(self.folder)

    @cached_property
    def lost(self) -> list[RunRecord]:
        """Records that do not count since their per-task results cannot be read: the rows they had say so."""
        kept = {record.run_id for record in self.trusted[0]}
        left_out = [r for r in read_ledger(self.folder)[0] if r.run_id not in kept]
        return [r for r in left_out if not all(readable_tasks(e, self.folder) for e in r.evaluations)]

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.trusted[0])

    @cached_property
    def studies(self) -> dict[str, Study]:
        return {s.name: s for s in (*(load_study(name) for name in study_names()), *self.more)}

    @cached_property
    def cells(self) -> dict[str, dict[tuple[str, str], Filled]]:
        return {name: fill(study, self.ledger, self.folder, self.lost) for name, study in self.studies.items()}

    @cached_property
    def curves(self) -> dict[str, list[Filled]]:
        """Of each system how it was trained."""
        return system_curves(self.studies[SYSTEMS], self.cells[SYSTEMS])

    @cached_property
    def findings(self) -> list[Finding]:
        return findings(load_claims(self.studies), self.cells, self.ledger)

    def study_section(self, name: str, runs: str) -> str:
        """What stands between the markers of a study."""
        self._tell(self._problems)
        if name == OVERVIEW:
            return overview_table(list(self.studies.values()), self.cells, "docs").markdown()
        if name == LEAN:
            return lean_systems_table(self.studies[SYSTEMS], self.cells[SYSTEMS], runs)
        study, cells = self.studies[name], self.cells[name]
        if name != SYSTEMS:
            return study_markdown(study, cells, runs)
        costs = costs_table(study, cells, self.ledger, step_times(self.folder.parent / "speed"))
        compared = comparisons_table(study, cells).markdown()
        parts = (study.description, systems_tables(study, cells, runs), folded("Cost and audit of each run", costs))
        return "\n\n".join(filter(None, (*parts, compared)))

    def claims_section(self) -> str:
        self._tell(self._problems)
        return claims_table(self.findings, "docs").markdown()

    @cached_property
    def _problems(self) -> list[str]:
        """A sentence for each record that no study shows."""
        lost = [record_path(self.folder, record).name for record in self.lost]
        return [words for words in self.trusted[1] if not any(name in words for name in lost)]

    def _tell(self, problems: Sequence[str]) -> None:
        if problems and self.strict:
            raise EngramError(f"tables cannot be checked while records do not count: {'; '.join(problems)}")
        for problem in problems:  # warned of from here, a single place, so that each is told once
            warnings.warn(f"not in the tables: {problem}", EngramWarning, stacklevel=1)
