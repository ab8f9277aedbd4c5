"""Whether there is room in the folder that the disk probe writes to: bytes and inodes. Nothing is written, so it may run beside a job."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.disk import FAULTS, LEAST_BYTES, file_system_of
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="space",
    version=1,
    says="room in a folder: bytes and inodes that are left, and whether it can be written",
    limit_s=5.0,
    measures={
        "space_free": "B that may still be written",
        "space_inodes": "files that may still be made, where the file system counts them",
    },
    source="ByteRobust's disk fault",
    disturbs=False,
)


def measure(options: Mapping[str, Any]) -> Finding:
    """options: folder (the system's temporary one)."""
    folder = Path(str(options.get("folder") or tempfile.gettempdir()))
    try:
        found = os.statvfs(folder)
    except OSError as error:
        fault = FAULTS.get(error.errno or 0)
        return Finding("failed" if fault else "not_applicable", f"{folder}: {fault or error.strerror}")
    free = found.f_bavail * found.f_frsize
    measures = [Measurement("space_free", free, "B")]
    measures += [Measurement("space_inodes", found.f_favail, "")] if found.f_files else []
    fault = _fault(free, found)
    facts = {"folder": str(folder), "file_system": file_system_of(folder)}
    return Finding("failed" if fault else "measured", f"{folder}: {fault}" if fault else "", tuple(measures), facts)


def _fault(free: int, found: os.statvfs_result) -> str:
    """By the file system's own word."""
    if found.f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    if free < LEAST_BYTES:
        return "the disk is full"
    return "no inode is left" if found.f_files and not found.f_favail else ""


if __name__ == "__main__":
    run(PROBE, measure)
