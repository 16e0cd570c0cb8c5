"""Own pictures: encoders beside each other, many classes at once, a memory of a thousand to a million."""

from __future__ import annotations

from typing import Any

from engram.report.table import Column, Table, percent

ENGINES = ("proto_memory", "knn_memory")
"""one for each way to read a large memory: class means, nearest entries"""


def encoders_table(content: dict[str, Any], n_way: str) -> Table[Any]:
    """A row for each kind of pictures and encoder, a column for each number of pictures of a class."""
    found, taught = content["encoders"], content["taught"]
    kinds = content["sizes"]
    rows = [(kind, name, found[name][kind]) for kind in kinds for name in found]
    shots = sorted({key.split("x")[1] for _, _, cells in rows for key in cells}, key=int)

    def accuracy(count: str) -> Column[tuple[str, str, Any]]:
        def shown(row: tuple[str, str, Any]) -> str:
            cell = row[2].get(f"{n_way}x{count}")
            mark = " *" if row[0] in taught.get(row[1], ()) else ""
            return percent(cell["accuracy"], cell["interval"]) + mark if cell else ""

        return Column(f"{count} of each", shown)

    def least_honest(name: str) -> str:
        cells = ((kind, key, cell) for kind, of in found[name].items() for key, cell in of.items())
        kind, key, cell = max((c for c in cells if c[1].startswith(f"{n_way}x")), key=lambda c: c[2]["ece"])
        return f"`{name}` {percent(cell['ece'], digits=1)} ({kind}, {key.split('x')[1]} of each)"

    columns = (
        Column[tuple[str, str, Any]]("Pictures", lambda row: row[0]),
        Column[tuple[str, str, Any]]("Encoder", lambda row: f"`{row[1]}`"),
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

    def error(count: int) -> Column[tuple[Any, ...]]:
        def shown(row: tuple[Any, ...]) -> str:
            cell = cells.get((*row, count))
            return percent(cell["ece"], digits=1) if cell else ""

        return Column(f"{count} of each", shown)

    columns = (
        Column[tuple[Any, ...]]("Encoder", lambda row: f"`{row[0]}`"),
        Column[tuple[Any, ...]]("Pictures", lambda row: row[1]),
        Column[tuple[Any, ...]]("Classes", lambda row: str(row[2])),
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

    def accuracy(name: str, key: str) -> Column[tuple[str, Any]]:
        return Column(name, lambda row: percent(row[1][key]["accuracy"], row[1][key]["interval"]))

    def error(name: str, key: str) -> Column[tuple[str, Any]]:
        return Column(name, lambda row: percent(row[1][key]["ece"], digits=1))

    columns: tuple[Column[tuple[str, Any]], ...] = (
        Column("Classes at once", lambda row: row[0]),
        accuracy("The default, %", "default"),
        accuracy("Transductive, %", "transductive"),
        accuracy("Nearest centroid, %", "centroids"),
        error("ECE of the default, %", "default"),
        error("ECE, transductive, %", "transductive"),
    )
    plain = sorted(content["centroids"].items(), key=lambda item: int(item[0]))
    of_five = ", ".join(f"{percent(found['accuracy'], found['interval'])} % from {shots}" for shots, found in plain)
    note = (
        f"5 pictures of each class. The plain nearest centroid of 5 classes: {of_five}. Birds told from photographs of "
        f"none, both of 84 x 84 pixels: area under the ROC curve {content['rejection']['auroc_no_birds']:.3f}."
    )
    return Table(columns, sorted(content["ways"].items(), key=lambda item: int(item[0])), note=note)


def memory_table(content: dict[str, Any]) -> Table[Any]:
    """A memory by the number of its pictures: what it costs and, beside looking at all of them, how well it answers."""
    rates, setting = content["rates"], content["setting"]
    sizes = sorted({int(key.split(", ")[-1].split()[0]) for key in rates})

    def measured(name: str, key: str, digits: int) -> Column[int]:
        return Column(name, lambda size: f"{rates[f'{key}, {size} pictures']:,.{digits}f}")

    columns = (
        Column[int]("Pictures", lambda size: f"{size:,}"),
        measured("Open, s", "open_s", 2),
        measured("Answer by class means, ms", "answer_ms, proto_memory", 0),
        measured("Answer by nearest, ms", "answer_ms, knn_memory", 0),
        measured("Add 1,000, s", "add_1000_s", 2),
        measured("Build the index, s", "index_s", 1),
        measured("Resident memory, MiB", "resident_mib", 0),
    )

    def right(engine: str) -> str:
        exact, read = (rates[f"{how}, {engine}, 10000 pictures"] for how in ("exact", "read"))
        return f"`{engine}` {exact:.1f} % and {read:.1f} %"

    note = (
        f"Simulated pictures of {setting['width']:,} numbers in {setting['classes']} classes; {content['device']}, one "
        f"query, without its encoding. Right answers at 10,000, with all of them looked at and as above that number: "
        f"{', '.join(map(right, ENGINES))}."
    )
    return Table(columns, sizes, note=note)
