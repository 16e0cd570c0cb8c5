"""What a whole run of tests found, kept as a file from which docs/security.md is built."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from engram.ledger import current_commit, new_run_id, readable, software_versions, utc_now


def keep(name: str, **found: Any) -> Path | None:
    """Write one JSON into the folder that ENGRAM_RECORDS names; without it nothing, for a sample is no result."""
    if not (folder := os.environ.get("ENGRAM_RECORDS")):
        return None
    path = Path(folder) / f"{name}.{new_run_id()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)}
    about = {"commit": current_commit(), "measured": utc_now(), "versions": software_versions(), **machine}
    path.write_text(readable(found | about))
    return path
