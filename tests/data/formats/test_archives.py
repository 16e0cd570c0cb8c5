"""Zip and tar files read in place: no member from outside, none of an archive that was cut."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from engram.data.formats import archives
from engram.data.formats.archives import ZipSet, read_tar
from engram.errors import EngramError


def test_zips_are_one_folder_and_the_first_of_two_members_counts(tmp_path: Path) -> None:
    for number, members in enumerate(({"a/": b"", "a/x.png": b"first"}, {"a/x.png": b"second", "y.csv": b"list"})):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    files = ZipSet((tmp_path / "0.zip", tmp_path / "1.zip"))
    assert files.names == ("a/x.png", "y.csv")
    assert (files.read("a/x.png"), files.read("y.csv")) == (b"first", b"list")
    assert files.label("y.csv") == f"{tmp_path / '1.zip'}:y.csv"


def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ä.png", b"12345")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes().replace("ä".encode(), b"\xd9\xff"))
    with pytest.raises(EngramError, match=r"a\.zip cannot be opened as a zip .*: fetch the archive again"):
        ZipSet((tmp_path / "a.zip",))


def test_members_that_announce_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("big.png", b"12345")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.zip", "big.png")
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 4)
    with pytest.raises(EngramError, match=r"a\.zip:big\.png announces 5 bytes where 4 are admitted"):
        ZipSet((tmp_path / "a.zip",)).read("big.png")
    with pytest.raises(EngramError, match=r"a\.tar:big\.png announces \d+ bytes where 4 are admitted"):
        read_tar(tmp_path / "a.tar", ".png")


def test_archives_of_too_much_in_all_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(4):
            archive.writestr(f"{number}.png", b"12345")
            tar.add(__file__, f"{number}.txt")  # passed over, but unpacked on the way
    monkeypatch.setattr(archives, "MAX_HELD_BYTES", 19)
    with pytest.raises(EngramError, match=r"members of .*a\.zip announce more than the 19 bytes"):
        ZipSet((tmp_path / "a.zip",)).read_all(".png")
    with pytest.raises(EngramError, match=r"members of .*a\.tar announce more than the 19 bytes"):
        read_tar(tmp_path / "a.tar", ".png")
    monkeypatch.setattr(archives, "MAX_HELD_BYTES", 2**20)
    assert len(ZipSet((tmp_path / "a.zip",)).read_all(".png")) == 4
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    with pytest.raises(EngramError, match="holds 4 members where 3 are admitted"):
        ZipSet((tmp_path / "a.zip",))
    with pytest.raises(EngramError, match="holds more than 3 members"):
        read_tar(tmp_path / "a.tar", ".png")


@pytest.mark.parametrize("member", ["../evil.png", "/evil.png", "images_background/../../evil.png"])
def test_tar_members_that_point_outside_are_refused(tmp_path: Path, member: str) -> None:
    with tarfile.open(tmp_path / "omniglot.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(member), io.BytesIO())
    with pytest.raises(EngramError, match=r"omniglot\.tar holds the member '.*evil\.png', which points outside"):
        read_tar(tmp_path / "omniglot.tar", ".png")


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_a_cut_archive_is_never_read_in_part(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"omniglot.{ending}"
    mode = f"w:{path.suffix[1:]}" if ending != "tar" else "w"
    noise = random.Random(0)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for number in range(12):
            content = noise.randbytes(200)
            member = tarfile.TarInfo(f"./Lao/character01/0001_{number:02d}.png")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    whole = read_tar(path, ".png")
    assert len(whole) == 12 and "Lao/character01/0001_00.png" in whole
    content = path.read_bytes()
    refused = 0
    for length in range(0, len(content), max(1, len(content) // 61)):
        path.write_bytes(content[:length])
        try:
            assert read_tar(path, ".png") == whole  # only the padding at the end was cut
        except EngramError:
            refused += 1
    assert refused > 30
