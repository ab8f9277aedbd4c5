"""Replay of a recording that our own controller made: its ticks, with all that they saw, through the rules of a live job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.live import live_rules
from minder.diagnose.verdicts.telemetry import GatedRule, TelemetryRule
from minder.edge.signals.xid import load_xid_rules
from minder.ingest.windows import cut_rows
from minder.model.evidence import Signal, Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window
from minder.offline.evaluation.captures import CaptureReader
from minder.offline.evaluation.failures import FailedRules
from minder.offline.evaluation.lines import Episodes

if TYPE_CHECKING:
    from minder.ingest.sources.recording import Recording

__all__ = ["replay_sightings"]


def replay_sightings(recording: Recording, window: Window, detector: Detector) -> Iterator[Verdict]:
    """One observation per tick, with the rows and signals since the last one. window: all rows of the recording.

    A job that was started again closes every episode, with its line: what fails then is another failure.
    """
    tracker, episodes, failed = JobTracker(), Episodes(), FailedRules()
    telemetry = GatedRule(TelemetryRule(detector), tracker)
    captures = CaptureReader(recording)
    rules = live_rules(tracker, telemetry, load_xid_rules(), recording.interval_s, recording.topology.parallelism)
    judge = Judge(rules)
    generation = None
    for observation in _observations(recording, window, captures):
        job = observation.job
        if job is not None and generation not in (None, job.generation):
            yield from episodes.close(observation.now_s)
        generation = None if job is None else job.generation
        verdicts, _ = judge.judge(tracker.update(observation))
        failed.note(judge.failures)
        yield from filter(episodes.is_news, verdicts)
    failed.check()


def _observations(recording: Recording, window: Window, captures: CaptureReader) -> Iterator[Observation]:
    next_row, next_signal, signals = 0, 0, recording.signals
    for sighting in recording.sightings:
        row = int(np.searchsorted(window.times_T, sighting.time_s + 1e-6, side="right"))
        end = next_signal
        while end < len(signals) and signals[end].time_s <= sighting.time_s + 1e-6:
            end += 1
        new: tuple[Signal, ...] = signals[next_signal:end]
        rows = cut_rows(window, next_row, row) if row > next_row else None
        statements = (*captures.until(sighting.time_s, sighting.job.rank_machine), *sighting.statements)
        seen = sighting.fleet, sighting.flows, sighting.clock_error_s
        yield Observation(sighting.time_s, rows, new, sighting.job, *seen, statements, sighting.attempts, studies=sighting.studies)
        next_row, next_signal = max(row, next_row), end
