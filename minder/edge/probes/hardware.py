"""What must be equal on two machines for their measurements to be compared: processor, number of them, kernel, library."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["cpu_facts", "cpus", "kernel_facts"]

_CPUINFO = Path("/proc/cpuinfo")
_MODEL_KEYS = ("model name", "Model", "cpu model", "CPU part")


def cpu_facts(cpuinfo: Path = _CPUINFO) -> dict[str, str]:
    """The processor's model, and how many of them are online. A quota or an affinity is no hardware: a machine that has less of its
    processors than its equals is slow."""
    return {"processor": _model(cpuinfo), "processors": str(os.cpu_count() or 0)}


def kernel_facts() -> dict[str, str]:
    return {"kernel": platform.release()}


def cpus() -> int:
    """How many this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def _model(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    fields = dict(reversed([(key.strip(), text.strip()) for key, _, text in (line.partition(":") for line in lines)]))
    return next((fields[key] for key in _MODEL_KEYS if fields.get(key)), platform.machine())
