"""What the what-if analysis said of the job's steps, kept for people: `whatif.json` for the job's page, a line in the ledger for reports.

The ledger gets one when what the steps were changes, at most once a minute, and one an hour while it stays: a year of a job is some
thousand lines. A slow step without a single cause and a steady one are two things, and so is a study that is no longer to be trusted.
A change to a study that blames a machine is written at once: that machine may be gone within the minute, and the reason with it. So is the
first study of a generation: what was written of the one before says nothing of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from minder.model.evidence import StepStudy
from minder.model.private import replace_private
from minder.record.incidents import kinds
from minder.wire.codec import to_json

__all__ = ["FILE", "StudyNotes"]

FILE = "whatif.json"
_SOONEST_S, _EVERY_S = 60.0, 3600.0
_LONG = frozenset({"workers", "time_s"})  # no part of a ledger's line


class StudyNotes:
    """`note` once per tick. folder: where status.json is; note_down: the ledger's backlog."""

    def __init__(self, folder: Path, note_down: Callable[[str, dict[str, Any]], None]) -> None:
        self._path, self._note_down = folder / FILE, note_down
        self._said, self._noted_s, self._generation = "", -math.inf, -1

    def note(self, studies: Sequence[StepStudy], job: str, generation: int) -> None:
        """Raises OSError where the file cannot be written; the ledger has its line all the same."""
        for study in studies:
            since_s = study.time_s - self._noted_s
            changed = study.said != self._said
            wait_s = (0.0 if study.blamed else _SOONEST_S) if changed else _EVERY_S
            if generation != self._generation or not 0.0 <= since_s < wait_s:
                self._said, self._noted_s, self._generation = study.said, study.time_s, generation
                self._note_down(kinds.STEP_STUDY, {"generation": generation, **_short(study)})
        for study in studies[-1:]:
            replace_private(self._path, json.dumps({"job": job, "generation": generation, **to_json(study)}))


def _short(study: StepStudy) -> dict[str, Any]:
    return {item.name: to_json(getattr(study, item.name)) for item in fields(study) if item.name not in _LONG}
