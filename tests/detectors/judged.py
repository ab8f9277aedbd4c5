"""Windows of many tests that begin alike: what they begin with is judged once."""

from __future__ import annotations

import copy

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.evidence import Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window

_BEGUN: dict[object, tuple[Judge, list[Verdict]]] = {}


def judged(window: Window, alike: int) -> list[Verdict]:
    """What a new default detector makes of it, row by row. alike: so many rows may be those of other windows too."""
    arrays = (window.times_T, window.values_TMK, window.present_TM)
    key = (window.machines, window.metrics, *(array[:alike].tobytes() for array in arrays))
    rows = list(rows_of(window))
    if key not in _BEGUN:
        new = Judge([TelemetryRule(DefaultDetector())])
        _BEGUN[key] = new, _say(new, rows[:alike])
    judge, found = copy.deepcopy(_BEGUN[key])
    return found + _say(judge, rows[alike:])


def _say(judge: Judge, rows: list[Window]) -> list[Verdict]:
    return [verdict for row in rows for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
