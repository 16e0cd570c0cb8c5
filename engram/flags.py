"""The flags of the command line: their types, the word that stands for a value, and what holds where none is given."""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from tyro.conf import Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from engram.errors import EngramError
from engram.protocol import ASKED, CHOICES, KEYS, Protocol

_OF_RECIPE = "(default: the recipe's)"
FLAT = arg(name="")
"""fields of a dataclass are flags of their own, without its name before them"""

NAMED = ConstructorRegistry()
"""how paths are read while a command line is: pathlib would take an empty one for this folder"""


@NAMED.primitive_rule
def _path(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
    def named(words: list[str]) -> Path:
        if not words[0].strip():
            raise EngramError("the name of a file or folder is empty: give one, or . for this folder")
        return Path(words[0])

    if kind.type is not Path:
        return None
    return PrimitiveConstructorSpec(1, "PATH", named, lambda value: isinstance(value, Path), lambda path: [str(path)])


Device = Annotated[str, arg(metavar="DEVICE", help="auto, cpu, cuda or cuda:1")]
Folder = Annotated[Path, arg(metavar="FOLDER")]
RunFolder = Annotated[Path | str | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/RECIPE)")]
DATA = arg(
    metavar="FOLDER", help="where the datasets lie, or the URL of shards", help_behavior_hint="(default: ENGRAM_DATA)"
)
Data = Annotated[Path | None, DATA]
RESULTS = arg(metavar="FOLDER", help="ledger folder of the run records")
Results = Annotated[Path, RESULTS]
Minutes = Annotated[float | None, arg(metavar="MINUTES", help_behavior_hint="(default: no limit)")]
Features = Annotated[
    Path | str | None,
    arg(metavar="FOLDER", help="frozen features in place of images, see engram features", help_behavior_hint=""),
]
Note = Annotated[str, arg(metavar="TEXT", help="a line for the record", help_behavior_hint="")]
Switch = Annotated[bool, arg(help_behavior_hint="")]
TrustCode = Annotated[
    bool, arg(help="import the class of your own that the run folder names: this runs code", help_behavior_hint="")
]

Url = Annotated[str | None, arg(metavar="URL", help_behavior_hint="")]
Size = Annotated[str | None, arg(metavar="SIZE", help_behavior_hint="(default: half of what is free)")]
Whole = Annotated[int | None, arg(metavar="N", help_behavior_hint=_OF_RECIPE)]
Name = Annotated[str | None, arg(metavar="NAME", help_behavior_hint=_OF_RECIPE)]
Precision = Annotated[Literal["fp32", "bf16"] | None, arg(metavar="{fp32,bf16}", help_behavior_hint=_OF_RECIPE)]
Statistics = Annotated[
    Literal["with_support", "queries"] | None, arg(metavar="{with_support,queries}", help_behavior_hint=_OF_RECIPE)
]
Split = Annotated[Literal["train", "val", "test"], arg(help="classes the tasks are drawn from")]
WhichWeights = Literal["chosen", "last", "average"]
Count = Annotated[int, arg(metavar="N")]
Answering = Annotated[
    int,
    arg(
        metavar="N",
        help="processes that answer together, each with a GPU of its own, or a core where there is none",
    ),
]
Bits = Literal[8, 16]
Views = Literal[1, 2]
Window = Annotated[str, arg(metavar="CROP:SIZE", help_behavior_hint="(default: the whole image)")]
Copies = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: each image once, as it is)")]
Figure = Annotated[Path | None, arg(metavar="FILE.svg", help_behavior_hint="(default: none)")]
AskedRecipe = Annotated[
    str | None,
    arg(
        metavar="RECIPE",
        help="whose data and tasks to ask about",
        help_behavior_hint="(default: the checkpoint's own)",
    ),
]
Untrained = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help="in place of a run folder: one that needs no training, or package.module:Class for your own",
        help_behavior_hint="",
    ),
]

Recipe = Annotated[Positional[str], arg(metavar="RECIPE")]
Model = Annotated[Positional[str], arg(metavar="MODEL")]
OptionalModel = Annotated[Positional[str], arg(metavar="[MODEL]", help_behavior_hint="")]
Dataset = Annotated[Positional[str | None], arg(metavar="[DATASET]", help_behavior_hint="(default: all)")]
Match = Annotated[Positional[str], arg(metavar="[MATCH]", help_behavior_hint="(default: every name)")]
First = Annotated[Positional[Path], arg(metavar="FIRST")]
Second = Annotated[Positional[Path], arg(metavar="SECOND")]
File = Annotated[Positional[Path], arg(metavar="FILE")]
Target = Annotated[Positional[Path], arg(metavar="FOLDER")]

Studies = Annotated[Positional[tuple[str, ...]], arg(metavar="STUDY...")]
Seeds = Annotated[tuple[int, ...], arg(metavar="N", help_behavior_hint="(default: the study's)")]
Scale = Literal["short", "paper"]
Launcher = Literal["local", "ray"]
Address = Annotated[str, arg(metavar="ADDRESS", help_behavior_hint="(default: the one Ray finds)")]
PerGpu = Annotated[str, arg(metavar="K|auto")]
Page = Annotated[Path, arg(metavar="FILE.html")]
OptionalPage = Annotated[Path | None, arg(metavar="FILE.html", help_behavior_hint="(default: none)")]
Images = Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE...", help_behavior_hint="")]
Support = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")]
GivenSupport = Annotated[Path, arg(metavar="FOLDER", help_behavior_hint="")]
Remembered = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")]
Weights = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help="imagenet, imagenet-lite1; photographs, glyphs, small ones; timm:NAME, hf:NAME, onnx:FILE; a run folder",
        help_behavior_hint="(default: imagenet)",
    ),
]
Engine = Annotated[
    str | None, arg(metavar="METHOD", help="a method of the library", help_behavior_hint="(default: the best one)")
]
Reject = Annotated[
    float | None,
    arg(
        metavar="P",
        help="say unknown where it is less probable that the picture is of one of the classes at all (familiar)",
        help_behavior_hint="(default: never)",
    ),
]
ClassName = Annotated[Positional[str], arg(metavar="CLASS")]
Host = Annotated[str, arg(metavar="ADDRESS", help="address to listen on; others can use the page if you change it")]
Port = Annotated[int | None, arg(metavar="N", help="port", help_behavior_hint="(default: a free one from 7860 on)")]


def _of_protocol(name: str) -> tuple[str, Any, Any]:
    """A field for a key of the protocol: None takes the recipe's value, a switch is off."""
    kind, says = get_type_hints(Protocol)[name], KEYS[name].says
    if kind is bool:
        return name, Annotated[bool, arg(help=says, help_behavior_hint="")], False
    value = (
        "{" + ",".join(map(str, CHOICES[name])) + "}" if name in CHOICES else {int: "N", float: "P"}.get(kind, "TEXT")
    )
    return name, Annotated[kind | None, arg(metavar=value, help=says, help_behavior_hint=_OF_RECIPE)], None


if TYPE_CHECKING:
    Asked = Any
    AskedInAudit = Any
else:  # a flag for every key of the protocol that can be asked for
    Asked = Annotated[make_dataclass("Asked", map(_of_protocol, ASKED)), FLAT]
    in_audit = ("n_way", "n_shot", "n_query", "names", "pool_classes")
    AskedInAudit = Annotated[make_dataclass("AskedInAudit", map(_of_protocol, in_audit)), FLAT]
