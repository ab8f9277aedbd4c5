"""A folder of dumps, and the job.toml beside it if there is one, to what they say. For the commands and the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minder.collectives.analyse import analyse
from minder.collectives.folder import read_folder
from minder.collectives.report import as_document
from minder.stacks import Finding, analyse_captures, find_job_file, place_ranks, read_captures
from minder.telemetry.jobfile import read_job, read_ranks

__all__ = ["collectives_document", "find_in_stacks"]


def find_in_stacks(folder: Path) -> Finding:
    """Who holds the job up, by its stack dumps. Raises BadInputError."""
    captures = read_captures(folder)
    job_file = find_job_file(folder)
    topology, pid_ranks = None, {}
    if job_file is not None:
        job = read_job(job_file)
        places = read_ranks(job_file.with_name("ranks.json"), job)
        topology = job.topology({place.rank: place.machine for place in places})
        pid_ranks = {(place.machine, place.pid): place.rank for place in places if place.pid is not None}
    return analyse_captures(place_ranks(captures, topology, pid_ranks), topology)


def collectives_document(folder: Path) -> dict[str, Any]:
    """Who holds the job up in its collectives, by its Flight Recorder dumps. Runs nothing that a dump contains. Raises BadInputError."""
    job = folder / "job.toml"
    collection = read_folder(folder, read_job(job).parallelism if job.is_file() else None)
    return as_document(collection, analyse(collection))
