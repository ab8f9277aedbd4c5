"""Inside a watcher of a registered job: where its configuration comes from, and when it has to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from minder.config import JobConfig
from minder.model.errors import BadInputError, LedgerError
from minder.model.history import LedgerEvent
from minder.record.store.events import EventStore
from serve.job_index import JobIndex
from serve.settings_file import load_settings
from serve.watching.allowed import allow_config, watched_config
from serve.watching.settings import JobsSettings

__all__ = ["PARENT", "Registration"]

PARENT = "MINDER_WATCHED_BY"  # the service that started this process, which ends with it
_LOOK_S = 2.0


class Registration:
    """The registration of one job in a ledger. Raises BadInputError where there is none."""

    def __init__(self, ledger: str, job: str, settings: Path | None) -> None:
        jobs = None if settings is None else load_settings(settings).jobs
        if jobs is None:
            raise BadInputError("a registered job is watched within the [jobs] table of a service.toml: give --settings service.toml")
        self.settings: JobsSettings = jobs
        self._job = job
        self._index = JobIndex(EventStore(ledger))
        found = self._event()
        if found is None:
            raise BadInputError(f'no job "{job}" is registered in this ledger: `minder job register` does that')
        self._registered = found

    @property
    def acts(self) -> bool:
        return self.settings.act and "engine" in self._registered.payload.get("config", {})

    def config(self) -> JobConfig:
        """Checked once more: the service's settings may have changed. Raises BadInputError."""
        return watched_config(allow_config(self._registered.payload["config"], self.settings), self.settings)

    def end_with(self) -> None:
        """From now on this process is ended (SIGTERM) when the registration does, or the service that started it."""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        parent = int(os.environ.get(PARENT, "0"))
        while self._holds() and parent in (0, os.getppid()):
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    def _holds(self) -> bool:
        try:
            found = self._event()
        except LedgerError:
            return True  # it cannot be known
        return found is not None and found.id == self._registered.id

    def _event(self) -> LedgerEvent | None:
        past = self._index.pasts().get(self._job)
        return None if past is None else past.watched
