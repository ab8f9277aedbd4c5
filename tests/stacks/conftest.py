from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dumps import Job

from minder.diagnose.stacks import Finding, analyse_captures, find_job_file, place_ranks, read_captures
from minder.ingest.sources.jobfile import read_job


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    """make_job(machines, ranks=1, dump="py-spy text"): a folder to put processes into."""
    return lambda machines, ranks=1, dump="py-spy text": Job(tmp_path / "dumps", machines, ranks, dump)


@pytest.fixture
def judge() -> Callable[[Job | Path], Finding]:
    def look(job: Job | Path) -> Finding:
        folder = job if isinstance(job, Path) else job.folder
        captures = read_captures(folder)
        job_file = find_job_file(folder)
        topology = read_job(job_file).topology() if job_file else None
        return analyse_captures(place_ranks(captures, topology, {}), topology)

    return look
