"""Scoring sessions: rows that come piece by piece, kept as tables in a folder for as long as they are used. They end with the service."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError
from minder.record.api.scores import ScoreJob
from minder.record.store.tokens import new_id
from serve.scoring.layout import LAST, NEW, SEGMENTS, SESSION
from serve.settings import Limits

__all__ = ["ScoreSessions", "Session"]

_SEGMENT_ROWS = 50_000


@dataclass(slots=True)
class _Segment:
    number: int
    rows: int
    begin_s: float
    end_s: float


@dataclass(slots=True)
class Session:
    """One session. taken: rows since it began; the rows that it holds are those of its segments. used_s: by the sessions' clock.
    turn: rows are appended one request after the other."""

    id: str
    token: str
    name: str
    job: ScoreJob
    folder: Path
    used_s: float
    taken: int = 0
    machines: set[str] = field(default_factory=set)
    segments: deque[_Segment] = field(default_factory=deque)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def begin_s(self) -> float | None:
        return min((segment.begin_s for segment in self.segments), default=None)

    @property
    def end_s(self) -> float | None:
        return max((segment.end_s for segment in self.segments), default=None)

    def lend(self, folder: Path) -> None:
        """Give an upload's folder what rows are appended to: the newest segment while it is small."""
        if self.segments and self.segments[-1].rows < _SEGMENT_ROWS:
            os.link(self._path(self.segments[-1]), folder / LAST)

    def add(self, folder: Path, read: dict[str, Any], limits: Limits) -> None:
        """Take over what became of the rows in `folder`, and drop what is too old or too much. read: see serve.scoring.rows."""
        if not read["added"]:
            return
        grown = self.segments.pop() if (folder / LAST).exists() else None
        segment = _Segment(grown.number if grown else self.taken, read["added"], read["begin_s"], read["end_s"])
        if grown is not None:
            segment.rows, segment.begin_s = segment.rows + grown.rows, min(segment.begin_s, grown.begin_s)
        (folder / NEW).replace(self._path(segment))
        self.segments.append(segment)
        self.taken += read["added"]
        self.machines |= set(read["machines"])
        while self.segments[0] is not segment and self._is_past(limits):
            self._path(self.segments.popleft()).unlink()

    def _is_past(self, limits: Limits) -> bool:
        end_s = self.end_s
        return self.rows > limits.upload_rows or (end_s is not None and self.segments[0].end_s < end_s - limits.upload_span_s)

    def copy(self, folder: Path) -> None:
        """Make an upload's folder one of this session's rows as they are now."""
        (folder / SEGMENTS).mkdir()
        for segment in self.segments:
            os.link(self._path(segment), folder / SEGMENTS / self._path(segment).name)
        (folder / SESSION).write_text(self.job.model_dump_json(exclude_none=True))

    def _path(self, segment: _Segment) -> Path:
        return self.folder / f"{segment.number:012d}.parquet"


class ScoreSessions:
    """Those that are open, for the event loop only. clock: seconds that only grow."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._open: dict[str, Session] = {}

    def begin(self, token: str, name: str, job: ScoreJob) -> Session:
        """Raises BadInputError where too many are open."""
        self._end_idle()
        own = sum(item.token == token for item in self._open.values())
        if own >= self._limits.score_sessions_of_one or len(self._open) >= self._limits.score_sessions:
            raise BadInputError(f"{own} scoring sessions of this token are open, {len(self._open)} in all: end one with DELETE, or wait")
        folder = Path(tempfile.mkdtemp(prefix="minder-session-"))
        found = Session(new_id(), token, name, job, folder, self._clock())
        self._open[found.id] = found
        return found

    def of(self, token: str) -> list[Session]:
        """Oldest first."""
        self._end_idle()
        return [item for item in self._open.values() if item.token == token]

    def find(self, token: str, name: str) -> Session | None:
        """None where this token has none of that id, or has no more."""
        self._end_idle()
        found = self._open.get(name)
        if found is None or found.token != token:
            return None
        found.used_s = self._clock()
        return found

    def idle_s(self, session: Session) -> float:
        return self._clock() - session.used_s

    def end(self, session: Session) -> None:
        self._open.pop(session.id, None)
        shutil.rmtree(session.folder, ignore_errors=True)

    def close(self) -> None:
        for session in list(self._open.values()):
            self.end(session)

    def _end_idle(self) -> None:
        for session in list(self._open.values()):
            if self.idle_s(session) > self._limits.score_session_idle_s and not session.turn.locked():
                self.end(session)
