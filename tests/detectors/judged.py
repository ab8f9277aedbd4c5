"""Windows of many tests that begin alike: what they begin with is judged once."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.evidence import Scores, Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window

_ROWS = 10  # beginnings of 10, 20, 30, ... rows are compared
_SEEN: set[bytes] = set()  # beginnings of the windows so far
_KEPT: dict[bytes, tuple[TelemetryRule, Judge, list[Verdict], list[Scores]]] = {}  # what was made of those that two windows had


def judged(window: Window, stages: Mapping[str, object] | None = None) -> tuple[list[Verdict], list[Scores]]:
    """What a new default detector makes of it, row by row: verdicts, and each row's scores. stages: of the machines, if not one."""
    begins = _beginnings(window, stages)
    kept = max((n for n, begin in enumerate(begins, 1) if begin in _KEPT), default=0)
    common = max((n for n, begin in enumerate(begins, 1) if begin in _SEEN), default=0)
    _SEEN.update(begins)
    if kept:
        rule, judge, found, scores = _copy(*_KEPT[begins[kept - 1]])
    else:
        rule = TelemetryRule(DefaultDetector(stages))
        judge, found, scores = Judge([rule]), [], []
    for at, row in enumerate(rows_of(window)):
        if at < kept * _ROWS:
            continue
        if at == common * _ROWS > kept * _ROWS:
            _KEPT[begins[common - 1]] = _copy(rule, judge, found, scores)
        found += judge.judge(Observation(float(row.times_T[0]), row))[0]
        assert rule.scores is not None
        scores.append(rule.scores)
    return found, scores


def _copy(
    rule: TelemetryRule, judge: Judge, found: list[Verdict], scores: list[Scores]
) -> tuple[TelemetryRule, Judge, list[Verdict], list[Scores]]:
    return *copy.deepcopy((rule, judge)), list(found), list(scores)


def _beginnings(window: Window, stages: Mapping[str, object] | None) -> list[bytes]:
    """What sets them apart: of the first 10 rows, of the first 20, ..."""
    digest = hashlib.blake2b(repr((window.machines, window.metrics, sorted((stages or {}).items()))).encode(), digest_size=16)
    begins = []
    for end in range(_ROWS, len(window.times_T) + 1, _ROWS):
        for array in (window.times_T, window.values_TMK, window.present_TM):
            digest.update(array[end - _ROWS : end].tobytes())
        begins.append(digest.digest())
    return begins
