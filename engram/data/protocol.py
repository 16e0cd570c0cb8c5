"""The protocol: all that decides which questions a model is asked. Part of every number."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from engram.data.store import Store
from engram.errors import EngramError


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
    slot_order: Literal["shuffled", "class-order"] = "shuffled"
    """class-order puts query i in class i of every task, as the public code does: only for the paper's rows"""
    stream_length: int = 1
    """tasks of a sequence, T"""
    pool_classes: int = 0
    """classes a sequence draws from; 0 = all of the split"""
    names: Literal["anonymous", "named"] = "anonymous"
    batch_norm: str = "running"
    n_sequences: int = 600
    seed: int = 0
    dataset_digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def n_labelled(self) -> int:
        """Labelled supports per class: at least one."""
        return max(1, round(self.labelled_fraction * self.n_shot))

    def for_store(self, store: Store) -> Protocol:
        """The protocol bound to a store: checked against what the store holds, with its digest."""
        self.check(store)
        return replace(self, dataset_digest=store.digest)

    def check(self, store: Store) -> None:
        """One sentence for each way in which a store cannot serve this protocol."""
        where = f"{store.info.dataset} {store.info.split}"
        if self.dataset != store.info.dataset:
            raise EngramError(
                f"the protocol is for {self.dataset} but the store holds {store.info.dataset}: open that dataset"
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
