"""A recording that holds the job's own steps: a stall is named from it, a pause of everybody is not."""

from __future__ import annotations

import math

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Signal, Verdict
from minder.model.observation import JobView, Observation
from minder.model.telemetry import Window
from minder.model.topology import Parallelism, Topology
from minder.offline.evaluation.replay import build_judge

MACHINES = ("m0", "m1", "m2", "m3")


def run(frozen: str | None) -> list[Verdict]:
    """Thirty seconds of steps, then ten without any, at 1 Hz."""
    tracker = JobTracker()
    judge = build_judge(Topology(MACHINES, 1, Parallelism(data=4)), tracker)
    job = JobView("j", 0, "running", MACHINES, (), (), dict(enumerate(MACHINES)), -math.inf, -math.inf)
    found: list[Verdict] = []
    for t in range(40):
        step, stalled_s = min(4 * t, 120), max(0, t - 30)
        rows = [[float(step), 0.2 + (stalled_s if name == frozen else 0.0)] for name in MACHINES]
        window = Window(np.array([float(t)]), MACHINES, ("steps_total", "job_alive_age_seconds"), np.array([rows]), np.ones((1, 4), bool))
        observation = Observation(float(t), window, job=job)
        tracker.update(observation)
        found += judge.judge(observation)[0]
    return found


def test_the_machine_whose_process_no_longer_runs_is_named_once() -> None:
    assert [(item.kind, item.tier, item.machines, item.cause) for item in run("m2")] == [("machine", "evict", ("m2",), "stall")]


def test_a_pause_in_which_every_process_runs_names_no_machine() -> None:
    assert run(None) == []


def test_a_loss_that_jumps_is_told_once_and_names_no_machine() -> None:
    tracker = JobTracker()
    judge = build_judge(Topology(MACHINES, 1, Parallelism(data=4)), tracker)
    job = JobView("j", 0, "running", MACHINES, (), (), dict(enumerate(MACHINES)), -math.inf, -math.inf)
    found: list[Verdict] = []
    for t in range(120):
        signal = Signal(float(t), "step", data={"step": 100 + t, "loss": 12.5 if 60 <= t < 70 else 2.2, "grad_norm": 0.6, "seconds": 1.0})
        found += judge.judge(tracker.update(Observation(float(t), signals=(signal,), job=job)))[0]
    (verdict,) = found
    assert (verdict.kind, verdict.tier, verdict.machines, verdict.cause) == ("job", "page", (), "numeric")
    assert verdict.since_s == 60.0 and verdict.evidence[0].observed == 12.5 and verdict.evidence[0].expected == 2.2
