"""A recording of our own, replayed: what telemetry alone cannot name is named from what the controller saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.model.evidence import CaptureFinding, Evidence, Suspect, Verdict
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.telemetry import Flow, Sample
from minder.model.topology import Parallelism
from minder.offline.evaluation.replay import replay

MACHINES = tuple(f"m{index}" for index in range(6))
SICK, FAULT_S, END_S = "m2", 40, 70
START_S = 1_700_000_000.0


def ring_flows(at_s: float, dead: str | None) -> tuple[Flow, ...]:
    """Both ends of every connection of a ring. The dead machine's connections retransmit without an answer."""
    found = []
    for index, left in enumerate(MACHINES):
        right = MACHINES[(index + 1) % len(MACHINES)]
        broken = dead in (left, right)
        for machine, local, remote in ((left, f"10.0.0.{left}:1", f"10.0.0.{right}:2"), (right, f"10.0.0.{right}:2", f"10.0.0.{left}:1")):
            stuck = (4000, 3, 8, 4) if broken else (0, 0, 0, 0)
            found.append(Flow(machine, START_S + at_s, 1, local, remote, 0, *stuck, 0.001, 10_000, 10_000, 5.0, 5.0))
    return tuple(found)


def steps_done(at_s: int, fault: str | None) -> int:
    """Four a second; after the fault none, or one a second where it only slows."""
    if fault is None or at_s <= FAULT_S:
        return 4 * at_s
    return 4 * FAULT_S + (at_s - FAULT_S if fault == "slow-cpu" else 0)


def tick(at_s: int, fault: str | None, generation: int = 1) -> Observation:
    now_s, step = START_S + at_s, steps_done(at_s, fault)
    placed = dict(enumerate(MACHINES)) if generation == 1 else dict(enumerate((*(name for name in MACHINES if name != SICK), "s0")))
    phase = "running" if generation == 1 else "starting"
    started_s = START_S if generation == 1 else START_S + at_s
    job = JobView("lab", generation, phase, tuple(placed.values()), ("s0",), (), placed, 0.0, started_s)  # type: ignore[arg-type]
    stepped_s = now_s if fault in (None, "slow-cpu") or at_s <= FAULT_S else START_S + FAULT_S
    fleet = {}
    for rank, machine in placed.items():
        worker = WorkerView(0, 1, rank, "running", generation, step, stepped_s, now_s, first_step=1, first_step_time_s=started_s)
        age_s = at_s - FAULT_S if fault == "machine-lost" and machine == SICK and at_s > FAULT_S else 0.2
        fleet[machine] = MachineView(machine, float(age_s), float(age_s), (worker,))
    flows = ring_flows(at_s - 0.3, SICK) + ring_flows(at_s, SICK) if fault == "dead-link" and at_s > FAULT_S + 2 else ()
    return Observation(now_s, job=job, fleet=fleet, flows=flows, clock_error_s=0.01)


def samples(at_s: int, fault: str | None) -> list[Sample]:
    busy = {name: 0.95 if fault == "slow-cpu" and name == SICK and at_s > FAULT_S else 0.3 + 0.01 * (at_s % 3) for name in MACHINES}
    return [Sample(START_S + at_s - 0.1, name, {"job_busy_ratio": busy[name], "cpu_usage_ratio": 0.5}) for name in MACHINES]


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str | None], Path]:
    def make(fault: str | None, restarted_at: int = END_S) -> Path:
        folder = tmp_path / str(fault)
        job = RecordedJob("lab", MACHINES, ("s0",), parallelism=Parallelism(data=6), interval_s=1.0)
        with Recorder(folder, job) as recorder:
            for at_s in range(1, END_S):
                recorder.append_samples(samples(at_s, fault))
                recorder.append_sighting(tick(at_s, fault, 1 if at_s < restarted_at else 2))
        return folder

    return make


def named(verdicts: list[Verdict]) -> list[tuple[str, str, tuple[str, ...], str]]:
    return [(item.kind, item.tier, item.machines, item.cause) for item in verdicts]


@pytest.mark.parametrize(("fault", "cause"), [("dead-link", "stall"), ("machine-lost", "absence"), ("slow-cpu", "slowdown")])
def test_the_sick_machine_is_named_once_after_the_onset(recorded: Callable[..., Path], fault: str, cause: str) -> None:
    verdicts = list(replay(recorded(fault)))
    assert named(verdicts) == [("machine", "evict", (SICK,), cause)]
    assert START_S + FAULT_S < verdicts[0].time_s < START_S + END_S


@pytest.mark.parametrize(
    "fault", ["machine-lost", *(pytest.param(fault, marks=pytest.mark.release) for fault in ("dead-link", "slow-cpu"))]
)
def test_cut_at_the_verdict_it_stands_and_before_it_there_is_none(recorded: Callable[..., Path], fault: str) -> None:
    folder = recorded(fault)
    (verdict,) = replay(folder)
    assert list(replay(folder, verdict.time_s)) == [verdict]
    assert list(replay(folder, verdict.time_s - 0.5)) == []


def test_a_healthy_job_accuses_no_machine(recorded: Callable[..., Path]) -> None:
    assert list(replay(recorded(None))) == []


def test_a_restart_of_the_job_closes_the_episode(recorded: Callable[..., Path]) -> None:
    verdicts = list(replay(recorded("machine-lost", restarted_at=60)))
    assert named(verdicts) == [("machine", "evict", (SICK,), "absence"), ("recovered", "watch", (SICK,), "absence")]
    assert verdicts[1].time_s == START_S + 60


@pytest.mark.parametrize("name", ["states.jsonl", "fleet.parquet"])
def test_without_what_the_controller_saw_it_is_a_recording_like_anybody_elses(recorded: Callable[..., Path], name: str) -> None:
    folder = recorded("machine-lost")
    (folder / name).unlink()
    assert list(replay(folder)) == []


def round_of(at_s: float, machine: str | None) -> CaptureFinding:
    """A capture of a job that steps on: everybody waits for this machine."""
    where = (Evidence("stacks", machine, "outside any collective: in count_tokens (train.py)"),)
    reported = (
        () if machine is None else (Suspect(START_S + at_s, "stacks", "machine", (machine,), "stall", 0.7, START_S + at_s, "evict", where),)
    )
    return CaptureFinding(START_S + at_s, "round", reported)


@pytest.mark.parametrize(("until_s", "expected"), [(120, [("machine", "page", (SICK,), "slowdown")]), (90, [])], ids=["whole", "half"])
def test_rounds_of_a_slow_job_are_voted_on_again(tmp_path: Path, until_s: int, expected: list[tuple[str, ...]]) -> None:
    """Telemetry shows nothing: who holds the steps up waits too, for something else. A controller that dies in between has no vote."""
    job = RecordedJob("lab", MACHINES, ("s0",), parallelism=Parallelism(data=6), interval_s=1.0)
    with Recorder(tmp_path / "slow", job) as recorder:
        for at_s in range(1, until_s):
            seen = tick(at_s, "slow-cpu")
            said = (round_of(at_s, None if at_s == 80 else SICK),) if at_s > FAULT_S and at_s % 10 == 0 else ()
            recorder.append_samples(samples(at_s, None))
            recorder.append_sighting(replace(seen, statements=said))
    verdicts = list(replay(tmp_path / "slow"))
    assert named(verdicts) == expected
    assert all("flagged in 4 of 5 rounds" in item.evidence[1].message for item in verdicts)
