"""Studies that cannot work are told before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from minimal import STUDY
from study_ledger import write_study

from engram.errors import EngramError
from engram.studies import load_study, study_names
from engram.studies.checks import check_recipes, missing_recipes
from engram.studies.schema import study_from_dict


@pytest.mark.parametrize("name", study_names())
def test_every_recipe_of_a_study_exists(name: str) -> None:
    study = load_study(name)
    assert study.description and not missing_recipes(study)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"titel": "x"}, "unknown key 'titel'; did you mean 'title'"),
        ({"columns": "1-shot"}, r"columns = '1-shot' does not fit; it takes a list of a text"),
        ({"columns": []}, "at least one column and one row"),
        ({"kind": "plot"}, "kind = 'plot' does not fit; it takes 'table' or 'training' or 'stream'"),
        ({"short": 3}, r"short = 3 does not fit; it takes a table, \[short\]"),
        ({"short": {"seeds": [1, 1]}}, r"seeds = \[1, 1\] but they must be different and at least 0"),
        ({"short": {"minutes": -1.0}}, "minutes = -1.0 but at least 0 is needed"),
        ({"row": {"label": "a"}}, "it takes a list of tables"),
        ({"row": STUDY["row"] * 2}, "two rows are called 'a'"),
        ({"row": [{"label": "a", "cells": [{"column": "2-shot"}]}]}, "row 'a': there is no column '2-shot'"),
        ({"row": [{"label": "a", "cells": [{"column": "1-shot", "paper": 101.0}]}]}, "lies between 0 and 100"),
        ({"row": [{"label": "a", "cells": [{"column": "1-shot", "papre": 1.0}]}]}, "unknown key 'papre'"),
        (
            {"row": [{"label": "a", "cells": [{"column": "1-shot", "ask": {"slot_order": "sorted"}}]}]},
            "ask has slot_order = 'sorted'; it takes 'shuffled' or 'class-order'",
        ),
        (
            {"row": [{"label": "a", "cells": [{"column": "1-shot", "ask": {"n_query": "many"}}]}]},
            "ask has n_query = 'many'; it takes a number",
        ),
        (
            {"row": [{"label": "a", "paper_ask": {"batch_norm": "batch"}, "cells": [{"column": "1-shot"}]}]},
            "paper_ask has batch_norm = 'batch'; it takes 'none' or 'running' or 'support' or 'task'",
        ),
        ({"row": [{"label": "a", "cells": [{"column": "1-shot"}] * 2}]}, "two cells stand in one column"),
        ({"row": [{"label": "a", "ask": {"n_wai": 5}, "cells": [{"column": "1-shot"}]}]}, "did you mean 'n_way'"),
        ({"compare": [{"first": "a", "second": "b"}]}, "there is no row 'b'"),
    ],
)
def test_bad_studies_get_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence) as caught:
        study_from_dict({**STUDY, **change}, "x", "x.toml")
    assert str(caught.value).startswith("x.toml")


def test_unknown_studies_and_unknown_recipes_are_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="there is no study 'tabel1'; did you mean 'table1'"):
        load_study("tabel1")
    with pytest.raises(EngramError, match=r"absent.toml cannot be read"):
        load_study(str(tmp_path / "absent.toml"))
    row = 'label = "mine"\ncells = [{ column = "1-shot", recipe = "proto_net/glyphs_quik" }]'
    own = load_study(str(write_study(tmp_path / "mine.toml", row)))
    with pytest.raises(
        EngramError, match=r"mine.toml, row 'mine': there is no recipe 'proto_net/glyphs_quik'; did you"
    ):
        check_recipes(own)


@pytest.mark.parametrize("name", study_names())
def test_published_protocols_of_the_box_can_be_followed(name: str) -> None:
    check_recipes(load_study(name))


@pytest.mark.parametrize(
    ("recipe", "asked", "sentence"),
    [
        ("gnn/mini_5w1s", 'batch_norm = "task"', "batch_norm = 'task' but gnn normalises by 'running' alone"),
        ("maml/mini_5w1s", 'batch_norm = "running"', "'running' but maml normalises by 'support' or 'task' alone"),
        ("gnn/mini_5w1s", "test_samples = 10", "test_samples = 10 but gnn has no posterior to sample"),
        ("gnn/mini_5w1s", "stream_length = 8", "stream_length = 8 but gnn carries nothing along a stream"),
    ],
)
def test_a_published_protocol_the_method_cannot_follow_is_refused(
    tmp_path: Path, recipe: str, asked: str, sentence: str
) -> None:
    cell = f'{{ column = "1-shot", recipe = "{recipe}", paper = 50.0 }}'
    row = f'label = "mine"\npaper_ask = {{ {asked} }}\ncells = [{cell}]'
    own = load_study(str(write_study(tmp_path / "mine.toml", row)))
    with pytest.raises(EngramError, match=f"mine.toml, row 'mine': paper_ask has .*{sentence}; change paper_ask or"):
        check_recipes(own)
