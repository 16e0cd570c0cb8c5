"""The audit: through which channels do a method's predictions depend on things they should not?

``audit(method, store)`` puts every question of `engram.probes.catalogue.PROBES` to a method and says clean, declared or
leak for each. See docs/audit.md.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch

from engram import processes
from engram.data.episodes import episodes_at, frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.source import check_can_answer, model_name, resolve_model
from engram.ledger import RunRecord, check_results_folder, record_path, write_record
from engram.machine.device import explained, kept_memory
from engram.machine.together import Call, together
from engram.models.build import trusting_code
from engram.models.features import open_stores
from engram.options import DRAWN, STREAMS, AuditKeywords, Drawn, read
from engram.probes.asking import Asker
from engram.probes.catalogue import SELECTION, Finding, Verdict
from engram.probes.exact import Streams, exact_findings
from engram.probes.statistical import Bench, SlotOrder, statistical_findings
from engram.processes import ALL, Share
from engram.protocol import Protocol
from engram.recipes.protocols import protocols_of
from engram.types import Method, MethodCard

EXACT_STREAMS = 3
LEAST_SEQUENCES = 20
"""below it neither the spread nor the t quantile can be trusted"""


@dataclass(frozen=True)
class AuditReport:
    """What an audit found, probe by probe: ``report.verdict``, ``report.summary``, ``report["company"]``."""

    findings: tuple[Finding, ...]
    seconds: float
    protocol: Protocol
    """of the streams: `slot_order` is the order in which they were listed before a probe changed it"""

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings."""
        verdicts = {f.verdict for f in self.findings}
        return "leak" if "leak" in verdicts else "declared" if "declared" in verdicts else "clean"

    @property
    def summary(self) -> str:
        """``2 leaks (query order, earlier tasks; noise, class order), 3 declared (company; ...), 9 clean``"""
        words: dict[Verdict, str] = {"leak": "leaks", "declared": "declared", "clean": "clean"}
        parts = []
        for verdict, word in words.items():
            named = [f.probe for f in self.findings if f.verdict == verdict]
            if named:
                word = "leak" if word == "leaks" and len(named) == 1 else word
                parts.append(f"{len(named)} {word}" + ("" if verdict == "clean" else f" ({'; '.join(named)})"))
        return ", ".join(parts)

    def __getitem__(self, probe: str) -> Finding:
        return next(f for f in self.findings if f.probe == probe)

    def to_dicts(self) -> list[dict[str, Any]]:
        """For `RunRecord.audit`."""
        return [asdict(f) for f in self.findings]


@torch.no_grad()
def audit(
    method: Method,
    store: Store,
    *,
    device: torch.device | str = "cpu",
    train_order: SlotOrder = "shuffled",
    chosen_on: str = "",
    quick: bool = False,
    share: Share = ALL,
    **asked: Unpack[Drawn],
) -> AuditReport:
    """Audit a method in evaluation mode; the same arguments give the same findings.

    ``train_order`` is the slot order the method was trained in: streams are listed that way before a probe changes
    anything, and the worth of the past is measured in it. The class-order and noise probes use both orders always.
    ``chosen_on`` is the split its weights were chosen on, "" where nobody knows. ``quick`` leaves the statistical
    probes out. ``asked`` are the fields of a protocol that `engram.options.Drawn` names: n_way = 5, n_shot = 1,
    n_query = 1, stream_length = 8, n_sequences = 100, names, pool_classes, seed, ... Processes that each call it with
    their ``share`` ask some of the many streams, and all get all findings.
    """
    drawn: dict[str, Any] = {**STREAMS}
    drawn |= {key: value for key, value in read("audit", Drawn, asked).items() if value is not None}
    protocol = Protocol(
        store.info.dataset, store.info.split, slot_order=train_order, batch_norm=method.card.batch_norm, **drawn
    ).for_store(store)
    return _audit(method, store, protocol, device, quick, chosen_on, share)


def _audit(
    method: Method, store: Store, protocol: Protocol, device: torch.device | str, quick: bool, chosen_on: str,
    share: Share,
) -> AuditReport:  # fmt: skip
    """All probes, with the method in evaluation mode and the audit's own random state; both are put back."""
    if protocol.n_way < 2 or (not quick and protocol.n_sequences < LEAST_SEQUENCES):
        raise EngramError(
            f"an audit needs at least 2 ways and {LEAST_SEQUENCES} sequences but n_way = {protocol.n_way} and "
            f"n_sequences = {protocol.n_sequences}: raise them, or run the exact probes alone with quick"
        )
    check_can_answer(method, protocol)
    started, training, asker = time.perf_counter(), method.training, Asker(method, protocol.seed)
    method.eval()
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            findings = exact_findings(_few_streams(asker, store, protocol, device))
            findings.append(selection(method.card, chosen_on, protocol.split))
            if not quick:
                torch.manual_seed(protocol.seed)
                listed = replace(protocol, slot_order="class-order", seed=protocol.seed + 1)
                own = ALL if method.card.stochastic else share  # or its samples would be others
                findings += statistical_findings(Bench(asker, store, listed, device, protocol.slot_order, own))
    finally:
        method.train(training)
    return AuditReport(tuple(findings), time.perf_counter() - started, protocol)


def selection(card: MethodCard, chosen_on: str, split: str) -> Finding:
    """What a training says of itself, for no answer of the model can: effect 1 where both splits are the same."""
    if not chosen_on:
        return SELECTION.not_applicable(card, "nothing is known of how its weights were chosen")
    return SELECTION.found(card, float(chosen_on == split), 0.5, f"chosen on {chosen_on}, asked on {split}")


def _few_streams(asker: Asker, store: Store, protocol: Protocol, device: torch.device | str) -> Streams:
    """A handful of streams to ask about, and as many to exchange their neighbours and later tasks with."""
    tasks = frozen_tasks(store, replace(protocol, n_sequences=2 * EXACT_STREAMS))
    episodes, _ = episodes_at(store, tasks, protocol.n_way, device)
    chosen = [e.part(slice(0, EXACT_STREAMS)) for e in episodes]
    others = [e.part(slice(EXACT_STREAMS, None)) for e in episodes]
    return Streams.build(asker, chosen, others, torch.Generator().manual_seed(protocol.seed))


OF_RECIPE = tuple(key for key in DRAWN if key not in ("stream_length", "n_sequences", "seed"))
"""keys of a protocol for which the recipe speaks where a call does not"""


@dataclass(frozen=True)
class AuditRun:
    """What an audit by name or checkpoint leaves: its record, where that lies, and the findings."""

    record: RunRecord
    record_file: Path
    report: AuditReport


def audit_model(model: str | Path = "", *, store: Store | None = None, **options: Unpack[AuditKeywords]) -> AuditRun:
    """Put every probe to a checkpoint folder, or to an untrained method by name and a recipe; append a run record.

    Options are those of `engram audit`, `engram.options.AuditKeywords`; None takes the recipe's value. Streams are
    listed in the slot order the model's own recipe trains in. ``store`` is asked in place of the dataset's split.
    """
    how = read("audit", AuditKeywords, options)
    with together(
        how["devices"], how["device"], Call(__name__, "audit_model", model, {"store": store, **options})
    ) as where:
        return _audit_model(model, how, store, where)


def _audit_model(model: str | Path, how: AuditKeywords, store: Store | None, where: torch.device) -> AuditRun:
    """What each process does; the first alone writes a record."""
    results, share = Path(how["results"]), processes.mine()
    with processes.agreed():
        with trusting_code(how["trust_code"]):
            source = resolve_model(model_name(model, how["method"]), how["recipe"], how["features"] is not None)
        check_results_folder(results)
        opened = store or open_stores(source.asked.data, (how["split"],), how["data"], how["features"])[how["split"]]
    tested = protocols_of(source.asked)[0]
    setting: dict[str, Any] = {key: getattr(tested, key) for key in OF_RECIPE}
    setting |= {key: value for key, value in how.items() if key in DRAWN and value is not None}
    blank, clock = source.blank_record("audit", where, opened), time.monotonic()
    with explained(source.recipe, where), kept_memory(), trusting_code(how["trust_code"]):
        method = source.build(opened).to(where)
        on_device = opened.to(where) if where.type == "cuda" else opened
        report = audit(
            method, on_device, device=where, train_order=source.recipe.data.slot_order, chosen_on=source.chosen_on,
            quick=how["quick"], share=share, **setting,
        )  # fmt: skip
    record = replace(
        blank,
        seconds=round(time.monotonic() - clock, 3),
        training=({"features": opened.info.source} if how["features"] else {})
        | ({"processes": share.count} if share.count > 1 else {}),
        audit=report.to_dicts(),
        audit_protocol=report.protocol.to_dict(),
        note=how["note"],
    )
    path = write_record(results, record) if processes.is_first() else record_path(results, record)
    return AuditRun(record, path, report)
