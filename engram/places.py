"""Where checkpoints lie: in a person's folders, or in the box that comes with the package."""

from __future__ import annotations

from pathlib import Path

from engram.errors import EngramError

WEIGHTS = Path(__file__).parent / "weights"
"""the box: small checkpoints in half precision"""


def located(path: Path) -> Path:
    """``weights/NAME`` is that of the box where the working directory has no such folder."""
    boxed = WEIGHTS.joinpath(*path.parts[1:])
    return boxed if path.parts[:1] == ("weights",) and not path.exists() and boxed.exists() else path


def model_folder(model: str) -> Path:
    """The folder that a person named; an empty name, as of a variable that was never set, is not the current one."""
    if not model.strip():
        raise EngramError("the name of the MODEL is empty: give a run or checkpoint folder, or . for this one")
    return Path(model)
