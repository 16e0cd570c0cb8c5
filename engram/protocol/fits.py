"""Whether a store can serve a protocol, told before any task is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from typing import Protocol as Structure

from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.protocol.keys import Protocol


MOST_IMAGES = 2**26
"""that all tasks of a protocol draw; each costs some 40 bytes until it is answered"""


MOST_SIDE = 1024
"""pixels of an image's side as an encoder sees it"""


class Holdings(Structure):
    """What a protocol asks of a store: `engram.data.store.Store` has it."""

    info: Any

    @property
    def group_counts(self) -> Any: ...

    @property
    def n_classes(self) -> int: ...

    @property
    def views(self) -> Any: ...

    @property
    def window(self) -> str: ...

    @property
    def digest(self) -> str: ...


def sides_of(window: str) -> tuple[int, int]:
    """How much of an image is seen, and how large: "76:92" -> 76, 92."""
    crop, _, size = window.partition(":")
    if not (crop.isdecimal() and size.isdecimal() and 0 < int(crop) <= int(size) <= MOST_SIDE):
        raise EngramError(
            f"window = '{window}' but it is CROP:SIZE, two numbers of pixels from 1 to {MOST_SIDE}, the second at "
            f"least the first, such as 76:92"
        )
    return int(crop), int(size)


def check_fits(protocol: Protocol, store: Holdings) -> None:
    """One sentence for each way in which a store cannot serve this protocol."""
    if protocol.window:
        sides_of(protocol.window)
    where = f"{store.info.dataset} {store.info.split}"
    if protocol.dataset != store.info.dataset:
        raise EngramError(
            f"the protocol is for {protocol.dataset} but the store holds {store.info.dataset}: open "
            f"{protocol.dataset}, or ask for {store.info.dataset}"
        )
    _check_amount(protocol)
    pool = protocol.pool_classes or store.n_classes
    if pool > store.n_classes:
        raise EngramError(
            f"a pool of {pool} classes was asked for but {where} has {store.n_classes}: lower pool_classes"
        )
    if protocol.n_way > pool:
        raise EngramError(f"{protocol.n_way} ways were asked for but {where} offers {pool} classes: lower n_way")
    _check_stream(protocol, pool, store.n_classes, where)
    needed = protocol.n_shot + (protocol.n_query if protocol.query_balance == "balanced" else 1)
    smallest = int(store.group_counts.argmin())
    if store.group_counts[smallest] < needed:
        raise EngramError(
            f"class '{store.info.class_names[smallest]}' of {where} has {store.group_counts[smallest]} images but "
            f"{protocol.n_shot} shots + {needed - protocol.n_shot} queries need {needed}: "
            f"lower n_shot or n_query, or remove the class"
        )
    total = protocol.n_way * protocol.n_query
    room = sum(sorted(store.group_counts - protocol.n_shot)[: protocol.n_way])
    if protocol.query_balance == "dirichlet" and room < total:
        raise EngramError(
            f"{total} unbalanced queries were asked for but {protocol.n_way} classes of {where} may offer only {room}: "
            f"lower n_query"
        )


def _check_amount(protocol: Protocol) -> None:
    """Tasks are drawn before the first is asked: more than memory holds are refused before they are begun."""
    tasks = protocol.n_sequences * protocol.stream_length
    images = tasks * protocol.n_way * (protocol.n_shot + protocol.n_query)
    if images > MOST_IMAGES:
        raise EngramError(
            f"{protocol.n_sequences} sequences of {protocol.stream_length} task(s) would draw {images:,} images where "
            f"{MOST_IMAGES:,} are admitted: lower n_sequences or stream_length"
        )


def _check_stream(protocol: Protocol, pool: int, n_classes: int, where: str) -> None:
    """Recurrence, drift and revisits that a stream of this length and pool cannot have."""
    period = protocol.recurrence_gap + 1
    if protocol.recurrence_gap and pool != protocol.n_way * period:
        raise EngramError(
            f"a recurrence_gap of {protocol.recurrence_gap} at {protocol.n_way} ways needs a pool of exactly "
            f"{protocol.n_way * period} classes but {where} offers {pool}: set pool_classes, n_way or recurrence_gap"
        )
    if protocol.recurrence_gap and protocol.stream_length <= period:
        raise EngramError(
            f"with a recurrence_gap of {protocol.recurrence_gap} a class returns from task {period + 1} on but the "
            f"stream has {protocol.stream_length}: raise stream_length or lower recurrence_gap"
        )
    if not 0 <= protocol.drift <= 1:
        raise EngramError(f"drift = {protocol.drift} but a chance lies between 0 and 1")
    if protocol.drift and pool >= n_classes:
        raise EngramError(
            f"drift brings in classes from outside the pool but the pool has {pool} of the {n_classes} classes of "
            f"{where}: lower pool_classes"
        )
    if protocol.revisit > protocol.stream_length:
        raise EngramError(
            f"{protocol.revisit} tasks were to be asked again but the stream has {protocol.stream_length}: "
            f"lower revisit"
        )
