"""Kernels compiled once for a machine; a damaged file, and a machine without a compiler."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engram.nn.kernels import cpu
from engram.nn.kernels.cpu import library

needs_kernels = pytest.mark.usefixtures("compiled")


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing known of compilers before the test, nor after it; they are asked for no effort."""
    monkeypatch.setattr(library, "OPTIONS", tuple(option.replace("-O3", "-O0") for option in library.OPTIONS))
    for known in (library.missing, library.library):
        known.cache_clear()
    yield
    for known in (library.missing, library.library):
        known.cache_clear()


@needs_kernels
def test_kernels_are_compiled_once_for_a_cache(no_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not cpu.missing()
    library.library.cache_clear()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("compiled again"))
    library.library()


@needs_kernels
def test_a_damaged_file_is_compiled_again_by_a_compiler_with_arguments(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", f"{shutil.which('cc') or shutil.which('gcc') or shutil.which('clang')} -g0")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "one"))
    library.library()
    (made,) = (tmp_path / "one" / "kernels").glob("*.so")
    damaged = tmp_path / "two" / "kernels" / made.name
    damaged.parent.mkdir(parents=True, mode=0o700)
    damaged.write_bytes(made.read_bytes()[:20000])  # loaded, it would end the process
    damaged.with_suffix(".sha256").write_text(made.with_suffix(".sha256").read_text())
    library.library.cache_clear()
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "two"))
    library.library()
    assert damaged.stat().st_size > 20000


def test_no_compiler_is_told_in_words(no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "C compiler" in cpu.missing() or "x86-64" in cpu.missing()


@needs_kernels
@pytest.mark.parametrize(
    ("script", "says"), [("echo 'In a.c:' >&2; echo 'fatal error: omp.h' >&2; exit 1", "omp.h"), ("exit 3", "3")]
)
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, says: str
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "other"))
    assert says in cpu.missing() and "broken" in cpu.missing()
    assert not list((tmp_path / "other" / "kernels").iterdir())


@needs_kernels
def test_a_cache_that_cannot_be_written_is_told(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file"))
    assert "file" in cpu.missing()


@needs_kernels
@pytest.mark.parametrize("shared", ["kernels", "file", "above"])
def test_a_cache_that_others_may_write_to_is_refused(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: str
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    assert not cpu.missing()
    (made,) = (tmp_path / "cache" / "kernels").glob("*.so")
    place, mode = {"kernels": (made.parent, 0o775), "file": (made, 0o766), "above": (tmp_path / "cache", 0o777)}[shared]
    place.chmod(mode)
    for known in (library.missing, library.library):
        known.cache_clear()
    assert f"others may write to {place}: chmod go-w {place}" in cpu.missing()
    place.chmod(0o1777 if shared == "above" else 0o700)  # in a sticky folder nobody can exchange what others own
    for known in (library.missing, library.library):
        known.cache_clear()
    assert not cpu.missing()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    library.library.cache_clear()
    if made.stat().st_uid:
        with pytest.raises(OSError, match="belongs to another user: set ENGRAM_CACHE to a folder of your own"):
            library.library()


@needs_kernels
def test_a_compiler_that_hangs_is_told_of_and_remembered(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(library, "PATIENCE", 0.1)
    monkeypatch.setattr(library, "LIMIT", 0.3)
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    assert cpu.missing() == f"{slow} took more than 0 s"
    assert f"engram: waiting for {slow} to compile the kernels" in capfd.readouterr().err
    for known in (library.missing, library.library):
        known.cache_clear()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("waited again"))
    assert "took more than" in cpu.missing() and ".timeout to try again" in cpu.missing()
