"""What a run takes of its device, and who else is on it: without that the seconds of a record say little."""

from __future__ import annotations

import os
import resource
import subprocess
from typing import Any

import torch

MIB = 2**20


class DeviceUse:
    """Looks at the device when a run begins and when it ends; `summary` is what its record keeps."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.others: int | None = None
        self.used = self.load = 0.0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self.look()

    def look(self) -> None:
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            self.used = max(self.used, (total - free) / MIB)
            if (others := _other_processes()) is not None:
                self.others = max(self.others or 0, others)
        else:
            self.load = max(self.load, os.getloadavg()[0])

    def summary(self) -> dict[str, Any]:
        """GPU: own peak, all that was taken, other processes (None: unknown). CPU: own peak, load average, cores."""
        self.look()
        if self.device.type == "cuda":
            own = torch.cuda.max_memory_reserved(self.device) / MIB
            taken = round(max(self.used, own))
            return {"peak_memory_mib": round(own), "device_memory_used_mib": taken, "other_processes": self.others}
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"peak_memory_mib": round(own), "load_average": round(self.load, 2), "cores": os.cpu_count()}


def _other_processes() -> int | None:
    """Processes on the machine's GPUs beside this one, which has a context by now; None where nobody can tell."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return max(0, len(set(listed)) - 1) if listed else None
