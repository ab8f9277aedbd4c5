"""Whom the default detector learns nothing from: a machine whose score is over a third of what convicts."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.baseline import Baseline, Lesson
from minder.diagnose.detectors.default import DefaultConfig, DefaultDetector
from minder.diagnose.detectors.score import ScoreState
from minder.ingest.windows import rows_of
from minder.model.telemetry import Window


def score_of(detector: DefaultDetector) -> ScoreState:
    return next(part for part in detector._states.values() if isinstance(part, ScoreState))


@pytest.mark.parametrize("patience_s", [9.0, 90.0, 600.0])
@pytest.mark.parametrize(("share", "teaches"), [(0.25, True), (0.45, False)])
def test_a_suspicious_machine_teaches_nothing_whatever_convicts(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, share: float, teaches: bool
) -> None:
    """Suspicious: over a third of the threshold, not over a number of seconds that is a third at one patience only."""
    metrics, names = ("gpu_sm_activity_ratio", "gpu_power_draw_watts"), tuple(f"m{m}" for m in range(6))
    values_TMK = np.exp(np.random.default_rng(1).normal(0.0, 0.02, (80, len(names), 2))) * [0.6, 500.0]
    detector, lessons = DefaultDetector(config=DefaultConfig(patience_s=patience_s)), list[Lesson]()
    learn = Baseline.learn_usual
    monkeypatch.setattr(Baseline, "learn_usual", lambda *given: (lessons.append(given[3]), learn(*given)))
    for row in rows_of(Window(1.0 * np.arange(80), names, metrics, values_TMK, np.full((80, len(names)), True))):
        if row.times_T[0] >= 70.0:
            score_of(detector).score_M[2] = share * patience_s
        detector.score(row)
        detector.learn(row, frozenset())
    taught_KM = lessons[-1].taught_KM
    assert taught_KM[:, [0, 1, 3, 4, 5]].any() and taught_KM[:, 2].any() == teaches
