"""Audits of a page of the docs: the newest of each recipe, from the findings that run records hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engram.errors import EngramError, nearest
from engram.ledger import Ledger, RunRecord, record_path
from engram.protocol import describe_protocol
from engram.recipes import recipe_names
from engram.report.audit import NOTE, counts_text, effect_text, findings_table
from engram.report.cards import system_name
from engram.report.columns import markdown_table
from engram.report.rows import dataset_name
from engram.report.tables import section_text
from engram.spellings import name_today

NO_AUDITS = "No audits are recorded yet."
EVERY = "all"
TELLING = (
    "history erased",
    "history permuted",
    "noise, class order",
    "class order minus shuffled",
    "gain from the past",
    "own past against foreign",
)
"""probes whose effects the overview shows; the first says whether the streams read the memory at all"""


def newest_audits(records: Sequence[RunRecord], name: str = EVERY) -> list[RunRecord]:
    """The newest finished audit of each method, recipe and kind of stream (named or not); ``name`` keeps one recipe."""
    newest = Ledger(records).audits(lambda r: (r.method, r.recipe_today, _streams(r)))
    return [newest[key] for key in sorted(newest) if name_today(name) in (EVERY, key[1])]


def _streams(record: RunRecord) -> str:
    return str(record.audit_protocol.get("names", "anonymous"))


def audit_section(name: str, records: Sequence[RunRecord], runs: str) -> str:
    """What stands between the markers: a line for every newest audit, or all findings of one recipe's."""
    audits = newest_audits(records, name)
    if not audits:
        return NO_AUDITS
    parts = [_overview(audits, runs), NOTE] if name == EVERY else [_one_audit(r, runs) for r in audits]
    return "\n\n".join(parts)


def verdict_text(audit: RunRecord) -> str:
    """``clean``, ``clean, declared: company; class balance``, ``**2 leaks**``: what a short line says of an audit."""
    named = {v: [f["probe"] for f in audit.audit if f["verdict"] == v] for v in ("leak", "declared")}
    leaks = len(named["leak"])
    words = f"**{leaks} leak{'s' if leaks > 1 else ''}**" if leaks else "clean"
    return f"{words}, declared: {'; '.join(named['declared'])}" if named["declared"] else words


def audit_lines(method: str, records: Sequence[RunRecord], runs: str) -> str:
    """The newest audit of each recipe of a method, a line each; "" where there is none."""
    lines = [
        f"- [`{r.recipe_name}`]({record_path(Path(runs), r).as_posix()}), {_streams(r)} streams: {verdict_text(r)}"
        for r in newest_audits(records)
        if r.method == method
    ]
    return "\n".join(["Audit, the newest of each recipe ([what is asked](../audit.md)):", "", *lines]) if lines else ""


def method_section(name: str, records: Sequence[RunRecord], runs: str) -> str:
    """Results as `section_text` has them; on a method's own page its audits follow."""
    return "\n\n".join(filter(None, (section_text(name, records, runs), audit_lines(name, records, runs))))


def _overview(audits: Sequence[RunRecord], runs: str) -> str:
    """A line for each audit: how many findings of each verdict, and the effects that tell a slot memory."""
    rows = []
    for record in audits:
        effects = {f["probe"]: effect_text(f) or f["verdict"] for f in record.audit}
        link = record_path(Path(runs), record).as_posix()
        title = f"{system_name(record.method)}, [`{record.recipe_name}`]({link}), {_streams(record)}"
        rows.append((title, counts_text(record.audit), *(effects.get(probe, "") for probe in TELLING)))
    header = ("Audit", "Findings", *(probe.capitalize() for probe in TELLING))
    return markdown_table(header, rows, right=range(2, len(header)))


def _one_audit(record: RunRecord, runs: str) -> str:
    protocol = record.audit_protocol
    lines = [
        f"### {system_name(record.method)}, `{record.recipe_name}`, {_streams(record)} streams",
        "",
        f"{counts_text(record.audit)}. {dataset_name(protocol)}, {describe_protocol(protocol, markdown=True)}, "
        f"{protocol.get('n_sequences', '?')} streams; {_origin(record)}; {record.device}; "
        f"record [{record.run_id}]({record_path(Path(runs), record).as_posix()}).",
        "",
        findings_table(record.audit),
    ]
    return "\n".join(lines)


def _origin(record: RunRecord) -> str:
    return f"checkpoint of run {record.trained_by}" if record.trained_by else "not trained"


def check_audit_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    """A misspelt section would stay empty for ever, and nobody would notice."""
    known = {EVERY, *recipe_names(), *(r.recipe_name for r in records if r.kind == "audit")}
    if name not in known:
        raise EngramError(f"{where}: 'audit:begin {name}' names no known recipe{nearest(name, known)}")
