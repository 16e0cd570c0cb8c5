"""The protocol: all that decides which questions a model is asked. Part of every number.

A key is declared here once: its type and choices, its default, what a flag says of it, the words a table has for it.
Recipes ([data] and [test]), studies, the flags of `engram bench`, records and reports take it from here; what is left
to write for a new key is the code that draws such tasks, in `engram.data`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from engram.errors import EngramError
from engram.protocol.fits import Holdings, check_fits

CLASS_ORDER_MARK = "class order: query order reveals the label, only to reproduce the paper"
Words = str | Callable[[Any], str]


@dataclass(frozen=True)
class Key:
    """What is known of a key beside its name, type and default."""

    says: str
    """one line for a person"""
    words: Words = ""
    """in a table, where the value is not the default: a template for the value and other keys, or a function of it"""
    title: str = ""
    """the key itself in words; "" = as it is written"""
    least: int | None = None
    choices: tuple[Any, ...] = ()
    """those of its type, unless given"""
    drawn: bool = True
    """decides which images a task has; false: only how it is asked, the images stay"""
    asked: bool = True
    """`engram bench` and studies can set it; false: only a recipe, or nobody"""
    later: bool = False
    """came after the first records: written only where it is used, so that they stay equal to those of now"""
    streams: bool = False
    """means nothing without a stream, and is told only with one"""
    warns: bool = False
    """a value other than the default makes a number no fair one"""
    always: bool = False
    """told at its default too"""


def _key(default: Any, says: str, **more: Any) -> Any:
    return field(default=default, metadata={"key": Key(says, **more)})


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """What a task is and how a sequence of them is drawn: shared by a protocol and a recipe's [data] and [test]."""

    n_way: int = _key(5, "classes of a task", least=2)
    n_shot: int = _key(1, "support images per class", least=1)
    query_balance: Literal["balanced", "dirichlet"] = _key(
        "balanced", "dirichlet draws unbalanced queries", words="unbalanced (Dirichlet {dirichlet_alpha})"
    )
    dirichlet_alpha: float = _key(2.0, "evenness of unbalanced queries", asked=False)
    labelled_fraction: float = _key(
        1.0,
        "share of each class's supports that carry their label",
        words=lambda share: f"{100 * share:.0f} % labelled",
        asked=False,
    )
    drop_unlabelled: bool = _key(
        False,
        'supports without a label are left out of the task ("LabeledOnly"), not shown without it ("Semi")',
        words="the rest left out",
        asked=False,
        later=True,
    )
    hidden_labels_shown: bool = _key(
        False,
        "tasks carry the labels of unlabelled supports too, as a leak of public code needs them: only to reproduce it",
        words="hidden labels shown, only to reproduce a leak",
        asked=False,
        later=True,
        warns=True,
    )
    slot_order: Literal["shuffled", "class-order"] = _key(
        "shuffled",
        "class-order only to reproduce the paper's protocol: query i is of class i in every task",
        words=lambda order: CLASS_ORDER_MARK if order == "class-order" else str(order),
        title="query order",
        drawn=False,
        warns=True,
        always=True,
    )
    stream_length: int = _key(1, "tasks of a sequence, T", words="T = {}", least=1)
    names: Literal["anonymous", "named"] = _key(
        "anonymous", "named streams carry the identity of each class", words="{}", streams=True
    )
    pool_classes: int = _key(
        0, "classes a stream draws from, 0 for all of the split", words="pool of {} classes", least=0, streams=True
    )
    recurrence_gap: int = _key(
        0,
        "tasks without a class until it returns, the same for every class; 0 for free recurrence",
        words="each class back after {} tasks",
        least=0,
        later=True,
        streams=True,
    )
    drift: float = _key(
        0.0,
        "chance, before every task but the first, that a class of the pool gives way to one outside it",
        words="drift {}",
        least=0,
        later=True,
        streams=True,
    )


@dataclass(frozen=True)
class Protocol(Tasks):
    """How tasks are drawn and asked. Stored in every run record and printed with every table."""

    dataset: str
    split: str = _key("test", "classes the tasks are drawn from", asked=False)
    _: KW_ONLY
    n_query: int = _key(1, "queries per class, their mean where unbalanced", title="queries per class", least=1)
    revisit: int = _key(
        0,
        "first tasks of a stream that are asked again at its end, with the history of all of it",
        words="the first {} asked again",
        least=0,
        later=True,
        streams=True,
    )
    erase_history: bool = _key(
        False,
        "answer every task with no past: the same model and tasks without its memory",
        words="history erased",
        drawn=False,
        later=True,
        streams=True,
    )
    test_samples: int = _key(
        0,
        "samples of the posterior averaged for an answer, where the method has a posterior; 0 as its settings say",
        words=lambda count: f"{count} sample{'s' if count > 1 else ''}",
        drawn=False,
        later=True,
    )
    views: Literal[1, 2] = _key(
        1,
        "2 gives the head the mean of each image's features and those of its mirror image",
        words="picture and mirror averaged",
        drawn=False,
        later=True,
    )
    window: str = _key(
        "", "CROP:SIZE enlarges the middle CROP x CROP pixels", words="middle enlarged ({})", drawn=False, later=True
    )
    batch_norm: str = _key(
        "running",
        "statistics BatchNorm uses: the model's card says it",
        words="BatchNorm: {}",
        title="BatchNorm",
        choices=("none", "running", "support", "task"),
        drawn=False,
        asked=False,
    )
    n_sequences: int = _key(600, "independent sequences", least=1)
    seed: int = _key(0, "of the draw", asked=False)
    dataset_digest: str = _key("", "of the images", asked=False)

    def to_dict(self) -> dict[str, Any]:
        """All fields, but a later one only where it is used: records from before it stay equal to those of now."""
        return {k: v for k, v in asdict(self).items() if k not in LATER or v != DEFAULTS[k]}

    @property
    def question(self) -> dict[str, Any]:
        """What a recipe decides, or who asks: all fields but those that a store, a card or a record adds."""
        return {k: v for k, v in asdict(self).items() if k not in ("batch_norm", "seed", "dataset_digest")}

    @property
    def n_labelled(self) -> int:
        """Labelled supports per class: at least one."""
        return max(1, round(self.labelled_fraction * self.n_shot))

    @property
    def n_shown(self) -> int:
        """Supports per class that a task shows, with or without their label."""
        return self.n_labelled if self.drop_unlabelled else self.n_shot

    def for_store(self, store: Holdings) -> Protocol:
        """The protocol bound to a store: checked against what it holds, with its digest and how features were seen."""
        self.check(store)
        views, window = max(self.views, store.views), self.window or store.window
        return replace(self, dataset_digest=store.digest, views=views, window=window)

    def check(self, store: Holdings) -> None:
        """One sentence for each way in which a store cannot serve this protocol."""
        if too_small := below_least(self):
            raise EngramError(too_small)
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise EngramError(f"{name} = {value!r} but it is {' or '.join(map(repr, choices))}")
        check_fits(self, store)


KEYS: dict[str, Key] = {f.name: f.metadata.get("key", Key(f.name, asked=False)) for f in fields(Protocol)}
DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(Protocol) if f.name != "dataset"}
"""what a protocol says where it says nothing"""
LATER = {name for name, key in KEYS.items() if key.later}
ASKED = tuple(name for name, key in KEYS.items() if key.asked)
"""keys that `engram bench` can set"""
NOT_DRAWN = tuple(name for name, key in KEYS.items() if not key.drawn)
"""keys that leave the images of a task as they are; every other one decides which tasks are drawn"""


def _choices(kind: Any, key: Key) -> tuple[Any, ...]:
    return key.choices or (get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ())


_TYPES = get_type_hints(Protocol)
CHOICES = {name: found for name, key in KEYS.items() if (found := _choices(_TYPES[name], key))}


def below_least(settings: Any) -> str:
    """A sentence for the first key of a protocol, or of a recipe's table, that is too small; "" where none is."""
    for name, least in ((name, key.least) for name, key in KEYS.items() if key.least is not None):
        value = getattr(settings, name, least)
        if not isinstance(value, tuple) and not value >= least:  # so that nan is refused too
            return f"{name} = {value} but at least {least} is needed"
    return ""


def agrees(protocol: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a record's protocol says all that is expected; a key that it does not have is at its default."""
    return all(protocol.get(name, DEFAULTS.get(name)) == value for name, value in expected.items())


def describe_protocol(protocol: Mapping[str, Any], markdown: bool = False) -> str:
    """``5-way 1-shot, 1 query per class, shuffled, T = 8``; the record has the rest. Markdown prints warnings bold."""
    n_query, values = protocol.get("n_query", 1), {**DEFAULTS, **protocol}
    words = [
        f"{protocol.get('n_way', '?')}-way {protocol.get('n_shot', '?')}-shot",
        f"{n_query} {'query' if n_query == 1 else 'queries'} per class",
    ]
    for name, key in KEYS.items():
        value, used = values.get(name), values.get(name) != DEFAULTS.get(name)
        if key.words and (used or key.always) and (not key.streams or values["stream_length"] > 1):
            told = key.words.format(value, **values) if isinstance(key.words, str) else key.words(value)
            words.append(f"**{told}**" if markdown and used and key.warns else told)
    return ", ".join(words)
