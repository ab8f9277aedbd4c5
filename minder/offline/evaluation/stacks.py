"""A folder of stack dumps, and the job.toml beside it if there is one, to who holds the job up. For the command and the service."""

from __future__ import annotations

from pathlib import Path

from minder.diagnose.stacks import Finding, analyse_captures, find_job_file, place_ranks, read_captures
from minder.ingest.sources.jobfile import read_job, read_ranks

__all__ = ["find_in_stacks"]


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
