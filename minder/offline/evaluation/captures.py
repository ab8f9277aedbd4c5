"""The captures of a recording, read one by one when their time comes: a later one is never opened."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from minder.model.errors import BadInputError
from minder.model.evidence import CaptureFinding, Suspect

if TYPE_CHECKING:
    from minder.diagnose.stacks import Capture
    from minder.ingest.sources.captures import CaptureFolder
    from minder.ingest.sources.recording import Recording

__all__ = ["CaptureReader"]

_log = logging.getLogger(__name__)


class CaptureReader:
    """Statements of a recording's captures, in time order. A capture that cannot be read is one warning, and left out."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        due = [("stacks", item) for item in recording.stacks] + [("collectives", item) for item in recording.collectives]
        self._due = sorted(due, key=lambda pair: pair[1].time_s)
        self._next = 0
        self._stacks: list[Capture] = []
        self.times_s = tuple(sorted({item.time_s for _, item in due}))

    def __bool__(self) -> bool:
        return bool(self._due)

    def until(self, now_s: float, rank_machine: Mapping[int, str]) -> tuple[CaptureFinding, ...]:
        """What became known since the last call. rank_machine: where the ranks are now."""
        return tuple(self._read(now_s, rank_machine))

    def _read(self, now_s: float, rank_machine: Mapping[int, str]) -> Iterator[CaptureFinding]:
        while self._next < len(self._due) and self._due[self._next][1].time_s <= now_s + 1e-6:
            source, capture = self._due[self._next]
            self._next += 1
            try:
                if source == "stacks":
                    yield CaptureFinding(capture.time_s, "stacks", self._clamped(self._from_stacks(capture)))
                else:
                    yield CaptureFinding(capture.time_s, "collectives", self._clamped(self._from_collectives(capture, rank_machine)))
            except (BadInputError, OSError, ValueError, RecursionError) as error:
                _log.warning("capture left out: %s", " ".join(str(error).split()) or capture.path)

    def _from_stacks(self, folder: CaptureFolder) -> tuple[Suspect, ...]:
        """Of all captures so far: several that agree are surer than one, and what the newest does not confirm is dropped."""
        from minder.diagnose.stacks import analyse_captures, place_ranks, read_captures, suspects_from_stacks

        pid_ranks = {(place.machine, place.pid): place.rank for place in self._recording.ranks if place.pid is not None}
        read = [replace(capture, time_s=folder.time_s) for capture in read_captures(folder.path)]
        self._stacks += place_ranks(read, self._recording.topology, pid_ranks)
        return suspects_from_stacks(analyse_captures(self._stacks, self._recording.topology), folder.time_s)

    def _from_collectives(self, folder: CaptureFolder, rank_machine: Mapping[int, str]) -> tuple[Suspect, ...]:
        from minder.diagnose.flight_recorder.analyse import analyse
        from minder.diagnose.flight_recorder.folder import read_folder
        from minder.diagnose.flight_recorder.suspects import suspects_from_collectives

        collection = read_folder(folder.path, self._recording.job.parallelism)
        return suspects_from_collectives(collection, analyse(collection), folder.time_s, rank_machine)

    def _clamped(self, suspects: tuple[Suspect, ...]) -> tuple[Suspect, ...]:
        """A dump's own clock may be anything: nothing began before the recording did."""
        start_s = self._recording.start_s
        return tuple(
            replace(item, since_s=item.time_s if start_s is None else min(item.time_s, max(item.since_s, start_s))) for item in suspects
        )
