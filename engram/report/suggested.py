"""Labels that `suggest` saves: accuracy with the same number of labels, chosen and at random."""

from __future__ import annotations

from typing import Any

from engram.report.table import Column, Table, percent


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
