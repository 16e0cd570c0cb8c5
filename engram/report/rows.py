"""From run records to the rows of a table: which runs count, and how each number is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engram.ledger import Evaluation, RunRecord, Trainers

HIDDEN_MARK = "hidden labels shown, only to reproduce a leak"
SELECTION_MARK = "weights chosen on the test split, only to reproduce a leak"
CLASS_ORDER_MARK = "class order: slots give the label away, only to reproduce the paper"
SYSTEM_NAMES = {
    "cml_bgnn": "CML-BGNN",
    "meta_lstm": "Meta-learner LSTM",
    "maml": "MAML",
    "meta_sgd": "Meta-SGD",
    "reptile": "REPTILE",
    "snail": "SNAIL",
    "leo": "LEO",
    "platipus": "PLATIPUS",
    "versa": "VERSA",
    "lwof": "LwoF",
    "param_predict": "Param_Predict",
    "wdae": "wDAE",
    "matching_net": "Matching Net",
    "proto_net": "Prototypical Net",
    "relation_net": "Relation Net",
    "tadam": "TADAM",
    "ctm": "CTM",
    "gnn": "GNN",
    "covamnet": "CovaMNet",
    "tpn": "TPN",
    "egnn": "EGNN",
    "chance": "Chance",
    "stage_one": "Stage one",
    "proto_memory": "Prototype memory",
    "knn_memory": "k-nearest memory",
    "propagation_memory": "Label propagation memory",
}
DATASET_NAMES = {"miniimagenet": "miniImageNet", "tieredimagenet": "tieredImageNet", "omniglot": "Omniglot"}


@dataclass(frozen=True)
class ResultRow:
    """One record and one protocol; ``evaluation`` is None where the run gave no answer."""

    record: RunRecord
    evaluation: Evaluation | None
    protocol: dict[str, Any]
    trained: Mapping[str, Any]
    """what training cost: of this run, or of the run whose checkpoint it answered with"""
    shared_name: bool = False
    """another row has the same recipe and protocol but other settings, such as another seed"""


@dataclass(frozen=True, eq=False)
class _These:
    """Equal where all records are the very same objects: reading them all again would take as long as the rows."""

    records: tuple[RunRecord, ...]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.records)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _These) and list(map(id, self.records)) == list(map(id, other.records))


def result_rows(records: Sequence[RunRecord]) -> list[ResultRow]:
    """Finished train and bench runs, the latest of equal ones; failed runs keep a row of their own.

    Equal means: the same recipe digest, origin, protocol and tasks. A failed run neither replaces a result nor is
    replaced. An interrupted run stands until a later run of the same recipe has finished. Every section of a report
    asks for them, so they are made once.
    """
    return list(_rows(_These(tuple(records))))


@lru_cache(maxsize=2)
def _rows(these: _These) -> list[ResultRow]:
    records = these.records
    trainers = Trainers(records)
    kept: dict[tuple[str, ...], ResultRow] = {}
    for record in sorted((r for r in records if r.kind in ("train", "bench")), key=lambda r: (r.started, r.run_id)):
        # a bench over features tells of its features, and of no training
        trained = record.training if record.kind == "train" else trainers.of(record).training or record.training
        if record.status == "finished":
            for evaluation in record.evaluations:
                asked = _canonical(evaluation.protocol), evaluation.tasks_digest
                questions = (record.recipe_digest, str(record.origin), *asked)
                kept[questions] = ResultRow(record, evaluation, evaluation.protocol, trained)
            kept.pop((record.recipe_digest, "interrupted"), None)
        else:
            protocol = record.evaluations[0].protocol if record.evaluations else planned_protocol(record.recipe)
            owner = record.recipe_digest if record.status == "interrupted" else record.run_id
            kept[(owner, record.status)] = ResultRow(record, None, protocol, trained)
    return _mark_shared_names(sorted(kept.values(), key=_order))


def _canonical(protocol: Mapping[str, Any]) -> str:
    return json.dumps(protocol, sort_keys=True)


def _order(row: ResultRow) -> tuple[Any, ...]:
    p = row.protocol
    return (
        str(p.get("dataset", "")),
        p.get("n_way", 0),
        p.get("n_shot", 0),
        p.get("labelled_fraction", 1.0),
        row.record.method,
        row.record.recipe_name,
        p.get("slot_order") == "class-order",
        p.get("stream_length", 1),
        p.get("n_query", 0),
        row.evaluation is None,
        row.record.started,
        row.record.run_id,
    )


def _mark_shared_names(rows: list[ResultRow]) -> list[ResultRow]:
    names = [(r.record.recipe_name, r.record.method, _canonical(r.protocol)) for r in rows]
    counts = Counter(names)
    return [
        ResultRow(r.record, r.evaluation, r.protocol, r.trained, shared_name=counts[name] > 1)
        for r, name in zip(rows, names, strict=True)
    ]


def planned_protocol(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a run that gave no answer was going to be asked, from its recipe."""
    test, data = recipe.get("test") or {}, recipe.get("data") or {}
    n_query = test.get("n_query", 1)
    if isinstance(n_query, list | tuple):
        n_query = n_query[0] if n_query else 1
    return {**test, "dataset": data.get("dataset", ""), "split": "test", "n_query": n_query}


def asks_the_same(protocol: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """Whether a protocol agrees with all that was planned; a key that came later is absent where it is not used."""
    return all((protocol.get(key) or None) == (value or None) for key, value in planned.items())


def system_name(method: str) -> str:
    return SYSTEM_NAMES.get(method, method)


def dataset_name(protocol: Mapping[str, Any]) -> str:
    dataset = str(protocol.get("dataset", ""))
    split = protocol.get("split", "test")
    return DATASET_NAMES.get(dataset, dataset) + ("" if split == "test" else f" ({split})")


def describe_protocol(protocol: Mapping[str, Any], markdown: bool = False) -> str:
    """``5-way 1-shot, 1 query per class, shuffled, T = 8``; the record has the rest. Markdown prints warnings bold."""
    n_query = protocol.get("n_query", 1)
    words = [
        f"{protocol.get('n_way', '?')}-way {protocol.get('n_shot', '?')}-shot",
        f"{n_query} {'query' if n_query == 1 else 'queries'} per class",
    ]
    if protocol.get("query_balance", "balanced") != "balanced":
        words.append(f"unbalanced (Dirichlet {protocol.get('dirichlet_alpha')})")
    if protocol.get("labelled_fraction", 1.0) < 1:
        dropped = ", the rest left out" if protocol.get("drop_unlabelled") else ""
        words.append(f"{100 * protocol['labelled_fraction']:.0f} % labelled{dropped}")
    if protocol.get("hidden_labels_shown"):
        words.append(f"**{HIDDEN_MARK}**" if markdown else HIDDEN_MARK)
    if protocol.get("slot_order") == "class-order":
        words.append(f"**{CLASS_ORDER_MARK}**" if markdown else CLASS_ORDER_MARK)
    else:
        words.append(str(protocol.get("slot_order", "shuffled")))
    if (length := protocol.get("stream_length", 1)) > 1:
        words.append(f"T = {length}" + (", named" if protocol.get("names") == "named" else ""))
        if protocol.get("pool_classes"):
            words.append(f"pool of {protocol['pool_classes']} classes")
        if protocol.get("recurrence_gap"):
            words.append(f"each class back after {protocol['recurrence_gap']} tasks")
        if protocol.get("drift"):
            words.append(f"drift {protocol['drift']}")
        if protocol.get("erase_history"):
            words.append("history erased")
    if count := protocol.get("test_samples"):
        words.append(f"{count} sample{'s' if count > 1 else ''}")
    if protocol.get("batch_norm", "running") != "running":
        words.append(f"BatchNorm: {protocol['batch_norm']}")
    return ", ".join(words)


def quoted(row: ResultRow) -> Mapping[str, Any]:
    """What the recipe quotes of papers, only beside the setting it was published for; else nothing."""
    paper, planned = row.record.recipe.get("paper"), planned_protocol(row.record.recipe)
    decisive = ("dataset", "split", "n_way", "n_shot", "labelled_fraction", "drop_unlabelled")
    return paper if paper and asks_the_same(row.protocol, {k: planned.get(k) for k in decisive}) else {}


def paper_figure(row: ResultRow) -> str:
    """The figure in the paper's table."""
    paper = quoted(row)
    interval = f" ± {paper['interval']:.2f}" if paper.get("interval") else ""
    return f"{paper['accuracy']:.2f}{interval} ({paper['table']})" if paper else ""


def published_figure(row: ResultRow) -> str:
    """The figure in the system's own paper or code; "" where the recipe quotes none."""
    paper = quoted(row)
    interval = f" ± {paper['published_interval']:.2f}" if paper.get("published_interval") else ""
    return f"{paper['published']:.2f}{interval}" if paper.get("published") else ""


def percent(accuracy: float | None, interval: float | None, digits: int = 2) -> str:
    """``51.83 ± 0.42`` from fractions of 1."""
    if accuracy is None:
        return "not a number"
    half_width = "" if interval is None else f" ± {100 * interval:.{digits}f}"
    return f"{100 * accuracy:.{digits}f}{half_width}"


def our_figure(row: ResultRow) -> str:
    """Accuracy with its interval, or what became of the run."""
    if row.evaluation is not None:
        return percent(row.evaluation.metrics.get("accuracy"), row.evaluation.metrics.get("interval"))
    reason = " ".join(row.record.error.split())
    reason = reason if len(reason) <= 90 else reason[:87] + "..."
    return f"**{row.record.status}**" + (f": {reason}" if reason else "")


def trained_part(training: Mapping[str, Any]) -> str:
    """``the first 380 images of each class`` where a head saw features of a part of the images alone; "" otherwise."""
    return str(training.get("features") or "").partition("; ")[2]


def training_cost(row: ResultRow) -> str:
    """``12.3 (70,000 steps)``"""
    iterations, seconds = row.trained.get("iterations"), row.trained.get("seconds")
    if iterations == 0:
        return "not trained"
    if seconds is None:
        return ""
    return f"{seconds / 60:.1f}" + (f" ({iterations:,} steps)" if iterations else "")
