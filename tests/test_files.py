"""Files as they are met on disk: what is no regular file, too long or nested too deeply is told, never waited for."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.files import (
    TIMES,
    WEIGHTS,
    check_overwritable,
    located,
    model_folder,
    read_bytes,
    read_json,
    read_squeezed,
    remove_own,
    squeezed,
)
from engram.models.checkpoint import load


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bytes(tmp_path / "link", 5) == b"12345"
    for name in ("pipe", "endless", "."):
        with pytest.raises(OSError, match="it is not a regular file"):
            read_bytes(tmp_path / name)
    with pytest.raises(OSError, match="it has 5 bytes where 4 are admitted"):
        read_bytes(tmp_path / "file", 4)


def test_a_squeezed_file_stands_for_so_much_and_no_more(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    file = tmp_path / "a.gz"
    file.write_bytes(squeezed(data))
    assert read_squeezed(file) == data and len(squeezed(data)) < len(data) and squeezed(data) == squeezed(data)
    assert squeezed(b"1") == b"" and squeezed(bytes(2**20)) == b""  # larger than it was; more times than is read
    file.write_bytes(gzip.compress(bytes(2**20)))
    with pytest.raises(ValueError, match=f"no whole gzip file, or stand for more than {TIMES} times as many"):
        read_squeezed(file)


def test_json_nested_without_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "a.json")


def test_only_files_of_ours_are_deleted(tmp_path: Path) -> None:
    for name in ("own/a.npy", "mixed/a.npy", "mixed/notes.txt", "far/a.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "far")
    for name in ("own", "mixed", "link", "nowhere"):
        remove_own(tmp_path / name, ("*.npy",))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if not path.is_relative_to("link"))
    assert "mixed/notes.txt" in left and "far/a.npy" in left and "mixed/a.npy" not in left
    assert not (tmp_path / "own").exists()


def test_only_files_of_ours_are_written_over(tmp_path: Path) -> None:
    page, ours = tmp_path / "page.html", "<title>Engram"
    check_overwritable(page, ".html", ours)
    for content in ("", f"<html>{ours}</title>"):
        page.write_text(content)
        check_overwritable(page, ".html", ours)
    page.write_text("<html>mine")
    (tmp_path / "link.html").symlink_to("/dev/zero")
    for name, told in (("page.html", "did not write it"), ("page.md", r"end in \.html"), ("link.html", "no.* regular")):
        with pytest.raises(EngramError, match=told):
            check_overwritable(tmp_path / name, ".html", ours)


def test_weights_of_a_recipe_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = Path("weights/stage_one.mini_conv4")
    assert located(name) == WEIGHTS / "stage_one.mini_conv4"
    assert load(name).state.method == "stage_one"
    name.mkdir(parents=True)  # a person's own folder of that name comes first
    assert located(name) == name
    assert located(Path("weights/none")) == Path("weights/none")


def test_an_empty_name_is_no_folder() -> None:
    assert model_folder(".") == Path()
    for empty in ("", " "):
        with pytest.raises(EngramError, match="the name of the MODEL is empty"):
            model_folder(empty)
