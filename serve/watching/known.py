"""The jobs whose configuration this service has: those of its command line, and those that were registered."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from minder.app.watch_folder import status_places
from minder.config import JobConfig, parse_config
from minder.model.errors import ConfigError
from minder.model.history import LedgerEvent
from serve.job_index import JobIndex
from serve.settings import Settings
from serve.status_files import StatusFiles
from serve.watching.settings import watch_dir

__all__ = ["KnownJobs", "registered_config"]


class KnownJobs:
    """Asked anew each time: registrations come and go. A job of the command line goes before a registered one of that name."""

    def __init__(self, settings: Settings, jobs: JobIndex, files: StatusFiles) -> None:
        self._settings, self._jobs, self._files = settings, jobs, files

    def config(self, job: str) -> JobConfig | None:
        """Without tokens, as far as it was registered. Raises LedgerError."""
        configured = self._settings.jobs.get(job)
        event = None if configured is not None else self.registered().get(job)
        return configured if event is None else registered_config(event)

    def configs(self) -> dict[str, JobConfig]:
        found = {job: config for job, event in self.registered().items() if (config := registered_config(event)) is not None}
        return found | self._settings.jobs

    def registered(self) -> dict[str, LedgerEvent]:
        """Job to the event by which it was registered, as long as it is to be watched."""
        return {job: past.watched for job, past in self._jobs.pasts().items() if past.watched is not None}

    def status_file(self, job: str) -> Path | None:
        """What the job's controller writes, or its watcher if that wrote last; None where this service cannot see it."""
        path = self._settings.status_files.get(job)
        if path is None:
            return watch_dir(job) / "watch" / "status.json" if job in self.registered() else None
        found = [each for each in status_places(path, job) if each.exists()]
        if len(found) > 1:  # several jobs may share one folder
            found = [each for each in found if (self._files.read(each) or {}).get("job") == job]
        return max(found, key=_written_s, default=path)

    def status_files(self) -> dict[str, Path]:
        names = {*self._settings.status_files, *self.registered()}
        return {job: path for job in names if (path := self.status_file(job)) is not None}


@lru_cache(maxsize=512)
def _parsed(job: str, event_id: int, content: str) -> JobConfig | None:
    try:
        return parse_config(json.loads(content), f"the registration of {job}")
    except ConfigError:  # written by another version
        return None


def registered_config(event: LedgerEvent) -> JobConfig | None:
    """The job as it was registered; None where this version cannot read it."""
    return _parsed(event.job or "", event.id, json.dumps(event.payload.get("config") or {}, sort_keys=True))


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
