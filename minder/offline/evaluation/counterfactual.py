"""What the detector thought at every row of a recording, and what other settings of it would have concluded.

Shape legend: T grid rows (time), M machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.default import DefaultConfig, DefaultDetector
from minder.diagnose.load_detector import MakeDetector
from minder.model.evidence import Scores
from minder.model.telemetry import Window
from minder.offline.evaluation.replay import peers_of, replay_recording
from minder.offline.evaluation.scoring import Judged, judge_recording

if TYPE_CHECKING:
    from minder.diagnose.detectors.contract import Detector
    from minder.ingest.sources.events import Truth
    from minder.ingest.sources.recording import Recording

__all__ = ["ScoreTrace", "Tried", "sweep_patience", "trace_scores"]


@dataclass(frozen=True, slots=True)
class ScoreTrace:
    """Scores of all machines over time. share_TM: of the threshold, so that 1 convicts; NaN where nothing was scored."""

    times_T: np.ndarray
    machines: tuple[str, ...]
    share_TM: np.ndarray


@dataclass(frozen=True, slots=True)
class Tried:
    """One recording under one setting."""

    patience_s: float
    judged: Judged


def trace_scores(recording: Recording, make: MakeDetector = DefaultDetector) -> ScoreTrace:
    """Replay a recording and keep every score that the detector gave; verdicts are the same as without looking."""
    watched = _Watched(make(peers_of(recording.topology, recording.job.roles)))
    for _ in replay_recording(recording, None, lambda stages: watched):
        pass
    machines = recording.machines
    place = {machine: index for index, machine in enumerate(machines)}
    share_TM = np.full((len(watched.scores), len(machines)), np.nan)
    for row, scores in enumerate(watched.scores):
        for machine, score in zip(scores.machines, scores.score_M, strict=True):
            if machine in place:
                share_TM[row, place[machine]] = score / scores.threshold
    return ScoreTrace(np.array([scores.time_s for scores in watched.scores]), machines, share_TM)


def sweep_patience(recording: Recording, truth: Truth, patience_s: Sequence[float]) -> list[Tried]:
    """Replay a recording once for each value of the default detector's threshold, the seconds of evidence that convict."""
    found = []
    for value in patience_s:
        config = replace(DefaultConfig(), patience_s=value)
        verdicts = list(replay_recording(recording, None, lambda stages, config=config: DefaultDetector(stages, config)))  # type: ignore[misc]
        found.append(Tried(value, judge_recording(truth, verdicts)))
    return found


class _Watched:
    """A detector whose scores are kept; else it is the detector itself (detectors/contract.py)."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.scores: list[Scores] = []
        self.learn, self.state, self.load = detector.learn, detector.state, detector.load

    def score(self, window: Window) -> list[Scores]:
        found = self._detector.score(window)
        self.scores.extend(found)
        return found
