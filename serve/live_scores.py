"""Machines' scores in the stream of events. They stand in no ledger: each event is what the job's controller wrote last, whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from minder.act.controller.reporting.status import status_age_s
from minder.model.clock import format_time
from serve.job_status import job_status
from serve.state import Service

__all__ = ["SCORES", "ScoreFeed"]

SCORES = "scores"  # the event's kind
_EVERY_S = 5.0
_SILENT_S = 15.0


class ScoreFeed:
    """The scores for one reader of the stream, of all jobs that `sees` lets through, or of one. At most one event per job in 5 s."""

    def __init__(self, service: Service, sees: Callable[[str | None], bool], job: str | None) -> None:
        self._service, self._sees, self._job = service, sees, job
        self._sent: dict[str, str] = {}
        self._next_s = time.monotonic()

    def wait_s(self) -> float:
        """Until something may be due."""
        return max(0.0, self._next_s - time.monotonic())

    def pieces(self, since_id: int) -> list[str]:
        """Server-sent events of what has changed. since_id: of the last event of the ledger; a reader that comes back with it misses
        none of those, and gets the newest scores at once. Raises LedgerError."""
        if self.wait_s() > 0.0:
            return []
        self._next_s = time.monotonic() + _EVERY_S
        found = []
        for job in self._jobs():
            part = self._service.parts.get((SCORES, job), partial(self._state, job), partial(self._build, job))
            if self._sent.get(job) != part.tag:
                self._sent[job] = part.tag
                found.append(f'id: {since_id}\nevent: {SCORES}\ndata: {{"id": {since_id}, {part.body.decode()[1:]}\n\n')
        return found

    def _jobs(self) -> list[str]:
        if self._job is not None:
            return [self._job] if self._sees(self._job) else []
        return sorted(job for job in self._service.known.status_files() if self._sees(job))

    def _state(self, job: str) -> Hashable:
        path = self._service.known.status_file(job)
        try:
            found = None if path is None else path.stat()
        except OSError:
            found = None
        if found is None:
            return None
        return found.st_ino, found.st_mtime_ns, abs(self._service.clock.now_s() - found.st_mtime) > _SILENT_S

    def _build(self, job: str) -> bytes:
        """An Event without its id."""
        now_s = self._service.clock.now_s()
        status = job_status(self._service, job) or {}
        written_s = status.get("now_s")
        data: dict[str, Any] = {"state": "no data", "scores": {}}
        if isinstance(written_s, (int, float)):
            heard = "silent" if status_age_s(status, now_s) > _SILENT_S else "fresh"
            state = "over" if status.get("phase") in ("finished", "failed") else heard
            rows = (status.get("machines") or ()) if state == "fresh" else ()
            data = {"state": state, "scores": {str(row["name"]): _rounded(row.get("score")) for row in rows}}
        time_s = float(written_s) if isinstance(written_s, (int, float)) else now_s
        highest = max((score for score in data["scores"].values() if score is not None), default=None)
        what = f"scores of {job}: {data['state']}" + (f", the highest is {highest:g} of the threshold" if highest is not None else "")
        event = {"time": format_time(time_s), "time_s": time_s, "operation_id": None, "kind": SCORES, "job": job, "incident": None}
        return json.dumps({**event, "what": what, "data": data}).encode()


def _rounded(score: Any) -> float | None:
    return round(float(score), 3) if isinstance(score, (int, float)) else None
