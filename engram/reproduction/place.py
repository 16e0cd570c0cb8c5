"""Where runs are made and what lies there: folders of a job, the checkpoint it can go on from, the device."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.data.catalogue import find_form
from engram.data.formats.folder import FolderOptions
from engram.errors import EngramError
from engram.studies.jobs import Job


@dataclass(frozen=True)
class Place:
    """The folders and the device of a call."""

    results: Path = Path("results/runs")
    runs: Path = Path("runs")
    data: Path | None = None
    device: str = "auto"

    def folder(self, job: Job) -> Path:
        return Path(job.folder) if job.folder else self.runs / job.key

    def features(self, job: Job) -> Path:
        return self.runs / "features" / Path(job.recipe.backbone_weights).name

    @property
    def on_gpu(self) -> bool:
        """Told without torch: whether the device files of a GPU are there."""
        if self.device == "auto":
            return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()
        return self.device != "cpu"


def checkpoint_state(folder: Path) -> dict[str, Any] | None:
    """The state of a run folder's newest checkpoint: iteration, seconds, run_id; None where there is none."""
    steps = sorted(folder.glob("step-*/state.json"))
    try:
        return dict(json.loads(steps[-1].read_text())) if steps else None
    except (OSError, ValueError):
        return None


def why_no_data(dataset: str, data: Path | None) -> str:
    """Why a dataset cannot be read here; "" where it can."""
    try:
        find_form(dataset, data, FolderOptions())
    except EngramError as error:
        return str(error).split(": ")[0] if data is None else str(error).split(": looked")[0]
    return ""
