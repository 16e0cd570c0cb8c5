"""Where checkpoints lie: in a person's folders, or in the box that comes with the package; and what may be deleted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"
"""the box: small checkpoints in half precision"""


def located(path: Path) -> Path:
    """``weights/NAME`` is that of the box where the working directory has no such folder."""
    boxed = WEIGHTS.joinpath(*path.parts[1:])
    return boxed if path.parts[:1] == ("weights",) and not path.exists() and boxed.exists() else path


def remove_own(folder: Path, own: Iterable[str]) -> None:
    """Delete a folder of ours: the files that Engram writes there, ``own`` as patterns, then the folder.

    Whatever else lies in it stays, and so does a folder behind a link.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in [path for pattern in own for path in folder.glob(pattern)]:
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
