"""What results were made with."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zoar


def cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def provenance(device: str | None = None) -> dict[str, Any]:
    """Versions and hardware, as plain data; `device` is where the runs are made if not on the CPU."""
    hardware = {"cpu": cpu_name(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}
    if device is not None:
        hardware["device"] = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {
        "versions": {
            "zoar": zoar.__version__,
            "zoar code": code_digest(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "hardware": hardware,
    }


def cpu_name() -> str:
    """The processor as it calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def code_digest() -> str:
    """A short digest of the code that computes: a checkout changes more often than its version number.

    The reports (this package) and the command line are left out: they change no number.
    """
    root = Path(zoar.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith("study/") and name != "cli.py":
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
