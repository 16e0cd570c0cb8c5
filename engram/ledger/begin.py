"""What a record states before anything has run: its name, the recipe, the code, the device and the time. No torch."""

from __future__ import annotations

import os
import platform
import subprocess
import time
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from engram.ledger.records import RunRecord
from engram.recipes.schema import Recipe


def new_record(
    kind: Literal["train", "bench", "audit"], recipe: Recipe, device: str, revision: int, **more: Any
) -> RunRecord:
    """A finished run of no seconds; ``more`` are further fields, or others in place of these."""
    stated = {
        "run_id": new_run_id(),
        "kind": kind,
        "status": "finished",
        "method": recipe.method,
        "recipe_name": recipe.name,
        "recipe": recipe.to_dict(),
        "recipe_digest": recipe.digest,
        "seed": recipe.train.seed,
        "started": utc_now(),
        "seconds": 0.0,
        "commit": current_commit(),
        "device": device,
        "versions": software_versions(),
        "revision": revision,
    }
    return RunRecord(**{**stated, **more})


def new_run_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def software_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("engram", "torch", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions


def current_commit() -> str:
    """The commit of the code that runs: ENGRAM_COMMIT where git is absent; "+changes" marks an unclean tree."""
    if given := os.environ.get("ENGRAM_COMMIT"):
        return given
    here = Path(__file__).parents[1]  # changes of the whole package count
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", "."], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+changes" if changed.stdout.strip() else "")
