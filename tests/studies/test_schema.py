"""A study as dataclasses: what its rows hand to their cells, and names of studies."""

from __future__ import annotations

from minimal import STUDY

from engram.studies import study_names
from engram.studies.schema import studies_called, study_from_dict

WANTED = {"table1", "table2", "table3", "table4", "figure3", "figure4", "order_leak"}


def test_the_papers_tables_and_figures_and_our_own_studies_are_there() -> None:
    assert set(study_names()) >= WANTED
    assert studies_called("memory-stream") == ["memory_stream_anonymous", "memory_stream_named"]
    assert studies_called("all") == study_names() and studies_called("order-leak") == ["order-leak"]


def test_a_rows_settings_hold_for_its_cells_and_a_cells_own_go_first() -> None:
    cells = [{"column": "1-shot", "ask": {"n_way": 3}}]
    row = {"label": "a", "recipe": "r", "short": "s", "ask": {"n_way": 5, "n_query": 2}, "cells": cells}
    (cell,) = study_from_dict({**STUDY, "row": [row]}, "x", "x.toml").rows[0].cells
    assert (cell.recipe, cell.short, cell.ask) == ("r", ("s",), {"n_way": 3, "n_query": 2})
