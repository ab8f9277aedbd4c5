"""What a job's controller wrote last, and whether it is heard now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve.heard import Heard
from serve.state import Service

__all__ = ["controller_heard", "is_dry_run", "job_status"]


def job_status(service: Service, name: str) -> Mapping[str, Any] | None:
    """What its controller wrote last; None where the service does not see that."""
    path = service.known.status_file(name)
    status = None if path is None else service.status_files.read(path)
    return status if status is not None and status.get("job") == name else None


def controller_heard(service: Service, name: str) -> Heard:
    """By its status and by its lease. Raises LedgerError."""
    written_s = (job_status(service, name) or {}).get("now_s")
    return service.listening.heard(name, float(written_s) if isinstance(written_s, (int, float)) else None)


def is_dry_run(service: Service, name: str) -> bool | None:
    """Whether its controller evicts nothing; None where that does not say."""
    said = (job_status(service, name) or {}).get("dry_run")
    return said if isinstance(said, bool) else None
