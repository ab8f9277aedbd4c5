"""A folder of Flight Recorder dumps, and the job.toml in it if there is one, to who holds the job up. For the command and the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minder.diagnose.flight_recorder.analyse import analyse
from minder.diagnose.flight_recorder.folder import read_folder
from minder.diagnose.flight_recorder.report import as_document
from minder.ingest.sources.jobfile import read_job

__all__ = ["collectives_document"]


def collectives_document(folder: Path) -> dict[str, Any]:
    """Who holds the job up in its collectives, by its Flight Recorder dumps. Runs nothing that a dump contains. Raises BadInputError."""
    job = folder / "job.toml"
    collection = read_folder(folder, read_job(job).parallelism if job.is_file() else None)
    return as_document(collection, analyse(collection))
