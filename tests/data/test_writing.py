"""Stores written whole or not at all, in place of stores alone."""

from pathlib import Path

import pytest
from toy_source import source

from engram.data.store import Store, verify
from engram.data.writing import build
from engram.errors import EngramError


def test_build_then_open_gives_the_same_images_in_class_order(tmp_path: Path) -> None:
    built = build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    opened = Store.open(tmp_path / "s")
    assert opened.n_classes == 3 and opened.class_sizes.tolist() == [3, 5, 4]
    assert opened.images[:, 0, 0, 0].tolist() == [0, 1, 2, 10, 11, 12, 13, 14, 20, 21, 22, 23]
    assert opened.digest == built.digest and verify(opened)


def test_a_class_with_fewer_images_than_announced_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="class 'b' of toy train gave 4 images where 5 were announced"):
        build(tmp_path / "s", "toy", "train", source(given=(3, 4, 4)), "made here", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rebuild_keeps_the_old_store(tmp_path: Path) -> None:
    old = build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    with pytest.raises(EngramError):
        build(tmp_path / "s", "toy", "train", source(given=(3, 4, 4)), "made here", quiet=True)
    assert Store.open(tmp_path / "s").digest == old.digest


def test_a_class_with_more_images_than_announced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="class 'c' of toy train gave 6 images where 4 were announced"):
        build(tmp_path / "s", "toy", "train", source(given=(3, 5, 6)), "made here", quiet=True)


@pytest.mark.parametrize("held", [("photo.png",), ("a/photo.png",), ("store.json",), ("store.json", "notes.txt")])
def test_only_a_store_of_ours_is_replaced(tmp_path: Path, held: tuple[str, ...]) -> None:
    for name in held:
        (tmp_path / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "s" / name).write_text("{}")
    with pytest.raises(EngramError, match=r"s is not a store that Engram wrote \(it holds '.*'\)"):
        build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]
    assert all((tmp_path / "s" / name).read_text() == "{}" for name in held)


def test_an_earlier_store_and_an_empty_folder_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    first = build(tmp_path / "s", "toy", "train", source(), "made here", quiet=True)
    again = build(tmp_path / "s", "toy", "train", source(), "made again", quiet=True)
    assert (first.info.source, again.info.source) == ("made here", "made again")
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(EngramError, match="link is a link or a file"):
        build(tmp_path / "link", "toy", "train", source(), "made here", quiet=True)
