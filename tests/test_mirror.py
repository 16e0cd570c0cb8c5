"""The tests are the same tree as the source: `engram/a/b.py` is tested by `tests/a/test_b.py`."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "engram"
GOAL = 0.9
REACHED = 0.9
"""share of source files with a test file of their own; it only rises, up to the goal"""


def mirror(source: Path) -> Path:
    """Where the test of a source file lies."""
    return TESTS / source.relative_to(PACKAGE).parent / f"test_{source.name}"


def test_source_files_have_a_test_file_in_the_same_place() -> None:
    sources = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    missing = [str(path.relative_to(PACKAGE)) for path in sources if not mirror(path).is_file()]
    share = 1 - len(missing) / len(sources)
    assert share >= min(REACHED, GOAL), f"{share:.1%} of {len(sources)} have a test; missing: {', '.join(missing)}"


def test_a_test_file_holds_tests() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if "\ndef test_" not in path.read_text(encoding="utf-8")]
    assert not files, f"no test in {', '.join(str(path.relative_to(TESTS)) for path in files)}"
