"""Own pictures: engines, encoders beside each other, many classes at once, labels that `suggest` saves.

``<!-- own:begin NAME -->`` takes engines.KIND (validation classes), test.KIND, rounds.KIND, ways.KIND, encoders.WAYS,
confidence, suggest (test classes) or speed, from files of results/own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engram import spellings
from engram.report.measured import newest_section
from engram.report.table import Column, Table, percent

KINDS = ("imagenet", "imagenet-lite1", "photographs", "glyphs")
OWN = tuple(f"{what}.{kind}" for what in ("engines", "test", "rounds") for kind in KINDS)
OWN += ("ways.imagenet", "ways.imagenet-lite1", "encoders.5", "encoders.20", "confidence", "suggest", "speed")
ANSWERS = {"default": "inductive, the default", "temperature 1": "the same without temperature"}
ANSWERS |= {"transductive": "transductive"}


def own_section(name: str, runs: str, folder: Path) -> str:
    """The newest measurement as a table, with a link to its file."""
    what, _, kind = name.partition(".")
    tables: dict[str, tuple[str, Callable[[dict[str, Any]], Table[Any]]]] = {
        "engines": (f"fit.{kind}", engines_table),
        "test": (f"test.{kind}", shots_table),
        "rounds": (f"test.{kind}", rounds_table),
        "ways": (f"test.{kind}", ways_table),
        "encoders": ("encoders", partial(encoders_table, n_way=kind)),
        "confidence": ("confidence", confidence_table),
        "suggest": ("suggest", suggest_table),
        "speed": ("speed", speed_table),
    }
    stem, table = tables[what]
    return newest_section(folder, f"{stem}.*.json", f"{runs.removesuffix('runs')}own", table)


def _accuracy(name: str, cell: Callable[[Any], Mapping[str, float]]) -> Column[Any]:
    """With its interval, of the cell that a row has for it."""
    return Column(name, lambda row: percent(cell(row)["accuracy"], cell(row)["interval"]))


def _error(name: str, cell: Callable[[Any], Mapping[str, float]]) -> Column[Any]:
    """Expected calibration error; empty where a row has no such cell."""
    return Column(name, lambda row: percent(found["ece"], digits=1) if (found := cell(row)) else "")


def _by_number(cells: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(cells.items(), key=lambda item: int(item[0]))


def engines_table(content: dict[str, Any]) -> Table[Any]:
    """A row for each engine, the default ones by accuracy, then those that answer all queries together."""
    at = str(content["chosen_at"])
    ordered = sorted(content["engines"].items(), key=lambda item: -item[1][at]["accuracy"])
    rows = sorted(ordered, key=lambda item: item[0].endswith(" transductive"))

    def engine(row: tuple[str, Any]) -> str:
        label = f"`{_engine(row[0])}`".replace(" transductive`", "`, transductive")
        return label + (", **the default**" if row[0] == content["chosen"] else "")

    def pictures(shots: str) -> Column[Any]:
        return _accuracy(f"{shots} picture{'s' if shots != '1' else ''} of each class", lambda row: row[1][shots])

    asked = content["protocols"][at]
    note = (
        f"Accuracy in %, ± 95 % interval over {content['tasks']} tasks of {asked['n_way']} validation classes, "
        f"{asked['n_query']} queries of each."
    )
    return Table((Column("Engine", engine), *map(pictures, sorted(rows[0][1], key=int))), rows, note=note)


def _engine(name: str) -> str:
    """Its name today: no CML-BGNN but content memory was ever an engine with weights in the box."""
    return name.replace(spellings.FIRST, spellings.TODAY, 1)


def shots_table(content: dict[str, Any]) -> Table[Any]:
    columns: tuple[Column[Any], ...] = (
        Column("Pictures of each class", lambda row: row[0]),
        Column("Answers", lambda row: row[1]),
        _accuracy("Accuracy, %", lambda row: row[2]),
        _error("ECE, %", lambda row: row[2]),
        Column("NLL", lambda row: f"{row[2]['nll']:.3f}"),
    )
    shots = _by_number(content["shots"])
    reject = content["rejection"]
    note = (
        f"`{_engine(content['engine'])}`, {content['tasks']} tasks of 5 test classes; ECE: expected calibration "
        f"error. Telling pictures of the task from those of five other classes, with 5 pictures of each class: the "
        f"area under the ROC curve is {reject['auroc']:.3f} ± {reject['interval']:.3f} with familiarity and "
        f"{reject['auroc_of_probability']:.3f} with the largest class probability."
    )
    return Table(columns, [(n, label, found[key]) for n, found in shots for key, label in ANSWERS.items()], note=note)


def rounds_table(content: dict[str, Any]) -> Table[Any]:
    found = content["rounds"]

    def accuracy(place: int) -> Column[Sequence[float]]:
        return Column(str(place + 1), lambda row: percent(row[place], digits=1))

    note = (
        f"Each round `partial_fit` adds one picture of each of 5 test classes; from the first to the last round "
        f"accuracy rises by {100 * (found[-1] - found[0]):.1f} points."
    )
    return Table((Column("Round", lambda row: "Accuracy, %"), *map(accuracy, range(len(found)))), [found], note=note)


def encoders_table(content: dict[str, Any], n_way: str) -> Table[Any]:
    """A row for each kind of pictures and encoder, a column for each number of pictures of a class."""
    found, taught = content["encoders"], content["taught"]
    rows = [(kind, name, found[name][kind]) for kind in content["sizes"] for name in found]
    shots = sorted({key.split("x")[1] for _, _, cells in rows for key in cells}, key=int)

    def accuracy(count: str) -> Column[Any]:
        def shown(row: tuple[str, str, Any]) -> str:
            cell = row[2].get(f"{n_way}x{count}")
            mark = " *" if row[0] in taught.get(row[1], ()) else ""
            return percent(cell["accuracy"], cell["interval"]) + mark if cell else ""

        return Column(f"{count} of each", shown)

    def least_honest(name: str) -> str:
        cells = ((kind, key, cell) for kind, of in found[name].items() for key, cell in of.items())
        kind, key, cell = max((c for c in cells if c[1].startswith(f"{n_way}x")), key=lambda c: c[2]["ece"])
        return f"`{name}` {percent(cell['ece'], digits=1)} ({kind}, {key.split('x')[1]} of each)"

    columns: tuple[Column[Any], ...] = (
        Column("Pictures", lambda row: row[0]),
        Column("Encoder", lambda row: f"`{row[1]}`"),
        *map(accuracy, shots),
    )
    note = (
        f"Accuracy in %, ± 95 % interval over {5 * content['tasks'] // int(n_way)} tasks of {n_way} test classes; * "
        f"trained on these classes. The largest calibration error (ECE, %): {', '.join(map(least_honest, found))}."
    )
    return Table(columns, rows, note=note)


def confidence_table(content: dict[str, Any]) -> Table[Any]:
    """Calibration errors: a row for each encoder, kind of pictures and number of classes, a column for each number of
    pictures."""
    cells = {
        (name, kind, *map(int, key.split("x"))): cell
        for name, kinds in content["stated"].items()
        for kind, found in kinds.items()
        for key, cell in found.items()
    }
    rows = sorted({key[:3] for key in cells})

    def error(count: int) -> Column[Any]:
        return _error(f"{count} of each", lambda row: cells.get((*row, count), {}))

    columns: tuple[Column[Any], ...] = (
        Column("Encoder", lambda row: f"`{row[0]}`"),
        Column("Pictures", lambda row: row[1]),
        Column("Classes", lambda row: str(row[2])),
        *map(error, sorted({key[3] for key in cells})),
    )
    several = [cell["ece"] for key, cell in cells.items() if key[3] > 1]
    tasks, seconds = ([cell[name] for cell in cells.values()] for name in ("tasks", "fit_s"))
    note = (
        f"Expected calibration error in % on test classes, over {min(tasks)} tasks of most classes to {max(tasks)} of "
        f"fewest. With two pictures of each class or more, {sum(e <= 0.05 for e in several)} of {len(several)} are at "
        f"most 5 %. Fitting confidence took {max(seconds):.1f} s at most."
    )
    return Table(columns, rows, note=note)


def ways_table(content: dict[str, Any]) -> Table[Any]:
    """More classes at once, with the plain nearest centroid beside them, and pictures of another kind."""
    columns: tuple[Column[Any], ...] = (
        Column("Classes at once", lambda row: row[0]),
        _accuracy("The default, %", lambda row: row[1]["default"]),
        _accuracy("Transductive, %", lambda row: row[1]["transductive"]),
        _accuracy("Nearest centroid, %", lambda row: row[1]["centroids"]),
        _error("ECE of the default, %", lambda row: row[1]["default"]),
        _error("ECE, transductive, %", lambda row: row[1]["transductive"]),
    )
    plain = _by_number(content["centroids"])
    of_five = ", ".join(f"{percent(found['accuracy'], found['interval'])} % from {shots}" for shots, found in plain)
    note = (
        f"5 pictures of each class. The plain nearest centroid of 5 classes: {of_five}. Birds told from photographs of "
        f"none, both of 84 x 84 pixels: area under the ROC curve {content['rejection']['auroc_no_birds']:.3f}."
    )
    return Table(columns, _by_number(content["ways"]), note=note)


def suggest_table(content: dict[str, Any]) -> Table[Any]:
    """Accuracy with the same number of labels, chosen in two ways."""
    setting, labels, reached = content["setting"], content["labels"], content["reached"]

    def accuracy(name: str, how: str) -> Column[int]:
        return Column(name, lambda at: percent(content["accuracy"][how][at], content["interval"][how][at]))

    columns = (
        Column[int]("Labels", lambda at: str(labels[at])),
        accuracy("By `suggest`, %", "suggest"),
        accuracy("At random, %", "random"),
    )
    told = f"{reached} labels of `suggest` are as good as {labels[-1]} at random" if reached else "It saves no labels"
    note = (
        f"{setting['n_way']} test classes, {setting['batch']} labels at a time out of {setting['pool']} pictures of "
        f"each, asked about pictures held out; mean of {setting['seeds']} draws, ± 95 % interval. {told}."
    )
    return Table(columns, [at for at, count in enumerate(labels) if count % setting["n_way"] == 0], note=note)


def speed_table(content: dict[str, Any]) -> Table[Any]:
    side = content.get("setting", {}).get("size", 84)
    rows = (
        ("First call of a cold process, import and fit and predict", "cold_seconds", ".2f", " s"),
        ("Warm `fit` + `predict`", "warm_seconds", ".3f", " s"),
        (f"Pictures per second from files of {side}x{side}", "pictures_per_second", ".0f", ""),
        ("1,000 pictures that were seen before, answered", "cached_seconds", ".2f", " s"),
        ("`engram demo` usable in the browser", "page_seconds", ".2f", " s"),
        ("Slowest action on the page", "slowest_action_seconds", ".2f", " s"),
    )
    measured = Column[Any]("Measured", lambda row: f"{content[row[1]]:{row[2]}}{row[3]}")
    note = f"5-way 5-shot, 75 queries; {content['device']}, load average {content['load_average']:.1f}."
    return Table((Column[Any]("What", lambda row: row[0]), measured), [r for r in rows if r[1] in content], note=note)
