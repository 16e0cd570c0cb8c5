"""The protocol: all that decides which questions a model is asked. Part of every number."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal
from typing import Protocol as Structure

from engram.errors import EngramError

LATER = {
    "recurrence_gap",
    "drift",
    "revisit",
    "erase_history",
    "drop_unlabelled",
    "hidden_labels_shown",
    "test_samples",
}


class Holdings(Structure):
    """What a protocol asks of a store: `engram.data.store.Store` has it."""

    info: Any

    @property
    def group_counts(self) -> Any: ...

    @property
    def n_classes(self) -> int: ...

    @property
    def digest(self) -> str: ...


@dataclass(frozen=True)
class Protocol:
    """How tasks are drawn. Stored in every run record and printed with every table."""

    dataset: str
    split: str = "test"
    n_way: int = 5
    n_shot: int = 1
    n_query: int = 1
    """queries per class (their mean where unbalanced)"""
    query_balance: Literal["balanced", "dirichlet"] = "balanced"
    dirichlet_alpha: float = 2.0
    labelled_fraction: float = 1.0
    """share of each class's supports that carry their label"""
    drop_unlabelled: bool = False
    """supports without a label are left out of the task ("LabeledOnly"), not shown without it ("Semi")"""
    hidden_labels_shown: bool = False
    """tasks carry the labels of unlabelled supports too, as a leak of public code needs them: only to reproduce it"""
    slot_order: Literal["shuffled", "class-order"] = "shuffled"
    """class-order puts query i in class i of every task, as the public code does: only for the paper's rows"""
    stream_length: int = 1
    """tasks of a sequence, T"""
    pool_classes: int = 0
    """classes a sequence draws from; 0 = all of the split"""
    names: Literal["anonymous", "named"] = "anonymous"
    recurrence_gap: int = 0
    """0 = classes recur freely; g > 0: every class returns after exactly g tasks without it, in steps of g + 1"""
    drift: float = 0.0
    """chance, before every task but the first, that one class of the pool gives way to one outside it"""
    revisit: int = 0
    """first tasks of a stream that are asked again at its end, with the history of all of it"""
    erase_history: bool = False
    """every task is answered with no past: the same model and tasks without its memory"""
    test_samples: int = 0
    """samples of the posterior averaged for an answer; 0 = as the model's own settings say"""
    batch_norm: str = "running"
    n_sequences: int = 600
    seed: int = 0
    dataset_digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields, but a later one only where it is used: records from before it stay equal to those of now."""
        return {k: v for k, v in asdict(self).items() if v or k not in LATER}

    @property
    def n_labelled(self) -> int:
        """Labelled supports per class: at least one."""
        return max(1, round(self.labelled_fraction * self.n_shot))

    @property
    def n_shown(self) -> int:
        """Supports per class that a task shows, with or without their label."""
        return self.n_labelled if self.drop_unlabelled else self.n_shot

    def for_store(self, store: Holdings) -> Protocol:
        """The protocol bound to a store: checked against what the store holds, with its digest."""
        self.check(store)
        return replace(self, dataset_digest=store.digest)

    def check(self, store: Holdings) -> None:
        """One sentence for each way in which a store cannot serve this protocol."""
        where = f"{store.info.dataset} {store.info.split}"
        if self.dataset != store.info.dataset:
            raise EngramError(
                f"the protocol is for {self.dataset} but the store holds {store.info.dataset}: open "
                f"{self.dataset}, or ask for {store.info.dataset}"
            )
        for key in ("n_way", "n_shot", "n_query", "stream_length", "n_sequences"):
            if getattr(self, key) < 1:
                raise EngramError(f"{key} = {getattr(self, key)} but at least 1 is needed")
        pool = self.pool_classes or store.n_classes
        if pool > store.n_classes:
            raise EngramError(
                f"a pool of {pool} classes was asked for but {where} has {store.n_classes}: lower pool_classes"
            )
        if self.n_way > pool:
            raise EngramError(f"{self.n_way} ways were asked for but {where} offers {pool} classes: lower n_way")
        self._check_stream(pool, store.n_classes, where)
        needed = self.n_shot + (self.n_query if self.query_balance == "balanced" else 1)
        smallest = int(store.group_counts.argmin())
        if store.group_counts[smallest] < needed:
            raise EngramError(
                f"class '{store.info.class_names[smallest]}' of {where} has {store.group_counts[smallest]} images but "
                f"{self.n_shot} shots + {needed - self.n_shot} queries need {needed}: "
                f"lower n_shot or n_query, or remove the class"
            )
        total = self.n_way * self.n_query
        room = sum(sorted(store.group_counts - self.n_shot)[: self.n_way])
        if self.query_balance == "dirichlet" and room < total:
            raise EngramError(
                f"{total} unbalanced queries were asked for but {self.n_way} classes of {where} may offer only {room}: "
                f"lower n_query"
            )

    def _check_stream(self, pool: int, n_classes: int, where: str) -> None:
        """Recurrence, drift and revisits that a stream of this length and pool cannot have."""
        period = self.recurrence_gap + 1
        for key in ("recurrence_gap", "revisit"):
            if getattr(self, key) < 0:
                raise EngramError(f"{key} = {getattr(self, key)} but at least 0 is needed")
        if self.recurrence_gap and pool != self.n_way * period:
            raise EngramError(
                f"a recurrence_gap of {self.recurrence_gap} at {self.n_way} ways needs a pool of exactly "
                f"{self.n_way * period} classes but {where} offers {pool}: set pool_classes, n_way or recurrence_gap"
            )
        if self.recurrence_gap and self.stream_length <= period:
            raise EngramError(
                f"with a recurrence_gap of {self.recurrence_gap} a class returns from task {period + 1} on but the "
                f"stream has {self.stream_length}: raise stream_length or lower recurrence_gap"
            )
        if not 0 <= self.drift <= 1:
            raise EngramError(f"drift = {self.drift} but a chance lies between 0 and 1")
        if self.drift and pool >= n_classes:
            raise EngramError(
                f"drift brings in classes from outside the pool but the pool has {pool} of the {n_classes} classes of "
                f"{where}: lower pool_classes"
            )
        if self.revisit > self.stream_length:
            raise EngramError(
                f"{self.revisit} tasks were to be asked again but the stream has {self.stream_length}: lower revisit"
            )
