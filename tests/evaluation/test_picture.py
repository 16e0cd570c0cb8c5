"""One answered task as arrays: the report can draw it without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from engram.data.store import Store
from engram.evaluation.picture import episode_arrays
from engram.models.build import build_method
from engram.recipes import load_recipe
from engram.report.episode import EpisodePicture
from engram.report.report_page import read_picture


def test_arrays_make_a_picture_with_a_graph_or_without(toy_store: Store, tmp_path: Path) -> None:
    for recipe, layers in (("cml_bgnn/glyphs_quick", 1), ("proto_net/glyphs_quick", None)):
        torch.manual_seed(0)
        method = build_method(load_recipe(recipe), toy_store.image_shape, torch.device("cpu"))
        arrays = episode_arrays(method, toy_store, torch.device("cpu"), n_way=3, n_query=1)
        picture = EpisodePicture(**arrays, title="t")
        assert picture.images_support.dtype == np.uint8 and picture.probabilities.shape == (3, 3)
        assert (picture.edges is None) == (layers is None)
        kept = {k: v for k, v in arrays.items() if v is not None}
        np.savez(tmp_path / "p.npz", **kept, title=np.array("t"))
        read = read_picture(tmp_path / "p.npz")
        assert read is not None and list(read.class_names) == list(picture.class_names)
    (tmp_path / "p.npz").write_text("broken")
    assert read_picture(tmp_path / "p.npz") is None
