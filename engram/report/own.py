"""Own pictures: what `benchmarks/own_images.py` measured, as tables.

``<!-- own:begin NAME -->`` takes engines.KIND (validation classes), test.KIND, rounds.KIND (test classes) or speed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engram import spellings
from engram.errors import EngramError, nearest
from engram.ledger import RunRecord
from engram.report.columns import markdown_table
from engram.report.rows import percent

KINDS = ("imagenet", "photographs", "glyphs")
NAMES = (*(f"{what}.{kind}" for what in ("engines", "test", "rounds") for kind in KINDS), "speed")
NOT_MEASURED = "Not measured yet."
FILES = {"engines": "fit", "test": "test", "rounds": "test"}
ROWS = {
    "default": "inductive, the default",
    "temperature 1": "the same without temperature",
    "transductive": "transductive",
}


def check_own_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    if name not in NAMES:
        raise EngramError(f"{where}: there is no section of own pictures '{name}'{nearest(name, NAMES)}")


def own_section(name: str, records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """The newest measurement as a table, with a link to its file."""
    what, _, kind = name.partition(".")
    found = newest(folder, f"{FILES[what]}.{kind}" if kind else what)
    if found is None:
        return NOT_MEASURED
    path, content = found
    source = f"[{path.name}]({runs.removesuffix('runs')}own/{path.name})"
    table = {"engines": _engines, "test": _test, "rounds": _rounds, "speed": _speed}[what](content)
    return f"{table}\n\nMeasured {content['measured'][:10]}: {source}"


def newest(folder: Path, stem: str) -> tuple[Path, dict[str, Any]] | None:
    """The file of that stem that was measured last."""
    files = [(path, json.loads(path.read_text())) for path in folder.glob(f"{stem}.*.json")]
    return max(files, key=lambda pair: (pair[1]["measured"], pair[0].name), default=None)


def _engines(content: dict[str, Any]) -> str:
    shots = sorted(next(iter(content["engines"].values())), key=int)
    header = ["Engine", *(f"{s} picture{'s' if s != '1' else ''} of each class" for s in shots)]
    at, rows = str(content["chosen_at"]), []
    ordered = sorted(content["engines"].items(), key=lambda item: -item[1][at]["accuracy"])
    for name, found in sorted(ordered, key=lambda item: item[0].endswith(" transductive")):
        label = f"`{_engine(name)}`".replace(" transductive`", "`, transductive")
        label += ", **the default**" if name == content["chosen"] else ""
        rows.append([label, *(percent(found[s]["accuracy"], found[s]["interval"]) for s in shots)])
    asked = content["protocols"][at]
    note = (
        f"Accuracy in %, ± 95 % interval over {content['tasks']} tasks of {asked['n_way']} validation classes, "
        f"{asked['n_query']} queries of each."
    )
    return f"{markdown_table(header, rows)}\n\n{note}"


def _engine(name: str) -> str:
    """Its name today: no CML-BGNN but content memory was ever an engine with weights in the box."""
    return name.replace(spellings.FIRST, spellings.TODAY, 1)


def _test(content: dict[str, Any]) -> str:
    rows = []
    for shots in sorted(content["shots"], key=int):
        for key, label in ROWS.items():
            figures = content["shots"][shots][key]
            accuracy = percent(figures["accuracy"], figures["interval"])
            rows.append([shots, label, accuracy, f"{100 * figures['ece']:.1f}", f"{figures['nll']:.3f}"])
    reject = content["rejection"]
    note = (
        f"`{_engine(content['engine'])}`, {content['tasks']} tasks of 5 test classes; ECE: expected calibration "
        f"error. Pictures of the task told from those of five other classes, with 5 pictures of each class: area "
        f"under the ROC curve of familiarity {reject['auroc']:.3f} ± {reject['interval']:.3f}, of the largest class "
        f"probability {reject['auroc_of_probability']:.3f}."
    )
    header = ["Pictures of each class", "Answers", "Accuracy, %", "ECE, %", "NLL"]
    return f"{markdown_table(header, rows)}\n\n{note}{_ways(content)}"


def _ways(content: dict[str, Any]) -> str:
    """More classes at once, the plain nearest centroid beside them, and other pictures; "" where not asked."""
    if "ways" not in content:
        return ""
    rows = []
    for ways in sorted(content["ways"], key=int):
        found = content["ways"][ways]
        shares = [percent(found[n]["accuracy"], found[n]["interval"]) for n in ("default", "transductive", "centroids")]
        rows.append([ways, *shares, f"{100 * found['default']['ece']:.1f}"])
    header = ["Classes at once", "The default, %", "Transductive, %", "Nearest centroid, %", "ECE, %"]
    plain = ", ".join(
        f"{percent(f['accuracy'], f['interval'])} % from {shots}" for shots, f in sorted(content["centroids"].items())
    )
    note = (
        f"5 pictures of each class. The plain nearest centroid of 5 classes: {plain}. Birds told from photographs "
        f"of no birds, both of 84 x 84 pixels: area under the ROC curve {content['rejection']['auroc_no_birds']:.3f}."
    )
    return f"\n\n{markdown_table(header, rows)}\n\n{note}"


def _rounds(content: dict[str, Any]) -> str:
    found = content["rounds"]
    header = ["Round", *(str(n + 1) for n in range(len(found)))]
    gain = 100 * (found[-1] - found[0])
    note = (
        f"Each round `partial_fit` adds one picture of each of 5 test classes; from the first to the last that is "
        f"worth {gain:.1f} points."
    )
    return f"{markdown_table(header, [['Accuracy, %', *(f'{100 * a:.1f}' for a in found)]])}\n\n{note}"


def _speed(content: dict[str, Any]) -> str:
    side = content.get("setting", {}).get("size", 84)
    rows = [
        ["First call of a cold process, import and fit and predict", f"{content['cold_seconds']:.2f} s"],
        ["Warm `fit` + `predict`", f"{content['warm_seconds']:.3f} s"],
        [f"Pictures per second from files of {side}x{side}", f"{content['pictures_per_second']:.0f}"],
    ]
    if "cached_seconds" in content:
        rows.append(["1,000 pictures that were seen before, answered", f"{content['cached_seconds']:.2f} s"])
    if "page_seconds" in content:
        rows.append(["`engram demo` usable in the browser", f"{content['page_seconds']:.2f} s"])
    if "slowest_action_seconds" in content:
        rows.append(["Slowest action on the page", f"{content['slowest_action_seconds']:.2f} s"])
    note = f"5-way 5-shot, 75 queries; {content['device']}, load average {content['load_average']:.1f}."
    return f"{markdown_table(['What', 'Measured'], rows)}\n\n{note}"
