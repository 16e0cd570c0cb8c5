"""The least a recipe and a study can state, for tests that add one mistake to it."""

from __future__ import annotations

from typing import Any

RECIPE: dict[str, Any] = {
    "method": {"name": "proto_net"},
    "data": {"dataset": "glyphs"},
    "train": {"iterations": 10, "sequences": 2},
}
STUDY: dict[str, Any] = {
    "title": "t",
    "columns": ["1-shot"],
    "row": [{"label": "a", "cells": [{"column": "1-shot", "recipe": "proto_net/glyphs_quick"}]}],
}
