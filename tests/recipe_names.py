"""What the name of a recipe of the box says of it: which keys it changes, and which its last words allow it to change.

``mini_5w1s_10k`` is a variant of ``mini_5w1s``: the longest name of the same method that it goes on from.
"""

from __future__ import annotations

import re

from engram.errors import EngramError
from engram.recipes.loading import load_recipe, recipe_names
from engram.recipes.schema import ASKED, LENGTH, SCHEDULE, differences

STREAM = ("data.stream_length", "train.sequences", "train.validation_sequences", "test.stream_length", ASKED[1])
QUERIES = ("data.n_query", "data.n_query_range", "test.n_query", "train.sequences")
LABELS = ("data.labelled_fraction", "data.drop_unlabelled", "test.labelled_fraction", "test.drop_unlabelled")

SUFFIXES: dict[str, tuple[str, ...]] = {
    r"short|\d+k": LENGTH,
    r"class_order": ("data.slot_order", "test.slot_order", "test.n_query"),
    r"no_history": ("method.history", *STREAM),
    r"no_bayes": ("method.bayes", "method.gamma"),
    r"gamma\d+": ("method.gamma",),
    r"samples\d+": ("method.test_samples",),
    r"depth\d+": ("method.n_layers",),
    r"narrow": ("method.width",),
    r"temperature": ("method.temperature",),
    r"centred": ("method.centring",),
    r"directions": ("method.centring_of",),
    r"weight_rate\d+": ("method.weight_rate",),
    r"inductive": ("method.transductive",),
    r"vote_sum": ("method.vote",),
    r"t\d+": STREAM,
    r"batch\d+": ("train.sequences",),
    r"clipped": ("train.clip", "train.clip_value"),
    r"uniform_norms": ("train.norm_start",),
    r"by_slot": ("method.encoder_calls", "train.norm_start"),
    r"halving_rate": tuple(f"train.{key}" for key in SCHEDULE),
    r"crops": ("data.crop_area", "data.crop_aspect"),
    r"turned": ("method.turned",),
    r"mixup": ("method.mixup", "method.mixup_of"),
    r"dropblock": ("backbone.drop_block", "backbone.drop_block_size"),
    r"taught": ("train.teacher", "method.label_smoothing", "method.distillation", "method.distillation_temperature"),
    r"(?:\d+to)?\d+q": QUERIES,
    r"(?:labelled|semi)\d+": LABELS,
}
"""words that may end a name -> all that they may change. Other words (public, reference, frozen, quick ...) stand for a
set of choices, which the description tells."""
LENGTH_WORDS = next(iter(SUFFIXES))


def variant_of(name: str) -> str:
    """The recipe of the box whose name this one goes on from; "" where it stands for itself."""
    starts = [known for known in recipe_names() if name.startswith(f"{known}_")]
    return max(starts, key=len, default="")


def changes(name: str) -> list[str]:
    """Keys in which a recipe of the box differs from the one it is a variant of, such as ``train.iterations``."""
    plain = variant_of(name)
    return differences(load_recipe(name), load_recipe(plain)) if plain else []


def unsaid_changes(name: str) -> list[str]:
    """The changes that the words of its name do not tell; [] where they are told, or stand for a set of choices."""
    words = _ruled_words(name.removeprefix(variant_of(name)))
    allowed = {
        key for word in words for pattern, keys in SUFFIXES.items() if re.fullmatch(pattern, word) for key in keys
    }
    return [key for key in changes(name) if key not in allowed] if words else []


def check_name(name: str) -> None:
    """Refuse a recipe of the box that changes more than its name says, or is the short form of none."""
    plain = variant_of(name)
    rest = name.removeprefix(plain)
    if plain and not _ruled_words(rest) and re.search(rf"_(?:{LENGTH_WORDS})$", rest):
        whole = re.sub(rf"_(?:{LENGTH_WORDS})$", "", name)
        raise EngramError(
            f"{name} says how long {whole} is trained, but there is no such recipe; add it or rename this"
        )
    if unsaid := unsaid_changes(name):
        raise EngramError(
            f"{name} changes {', '.join(unsaid)} of {plain}, which '{rest.strip('_')}' does not say; "
            f"leave that as it is, or choose another name"
        )


def _ruled_words(rest: str) -> list[str]:
    """``_depth1_10k`` -> depth1, 10k; [] where any of the words has no rule."""
    word = "|".join(SUFFIXES)
    return re.findall(rf"_({word})(?=_|$)", rest) if re.fullmatch(rf"(?:_(?:{word}))+", rest) else []
