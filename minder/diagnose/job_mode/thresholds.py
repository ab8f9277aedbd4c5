"""Every threshold by which it is decided what the job is doing: unit in the name, source beside it.

Units: `_s` seconds, `_steps` optimiser steps, `_rows` grid rows, `_gaps` times between two steps, `_share` a part of one, `_times` a
factor, `_power` an exponent. "ours" is a choice of this project that replays and the lab bore out; docs/rules.md shows the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["ACTIVITY_FLOORS", "THRESHOLDS", "Thresholds"]


def _real(value: float, source: str) -> float:
    found: float = field(default=value, metadata={"source": source})
    return found


def _count(value: int, source: str) -> int:
    found: int = field(default=value, metadata={"source": source})
    return found


@dataclass(frozen=True, slots=True)
class Thresholds:
    """One set for all rules. `source` in a field's metadata says where its value is from."""

    # Steps (steps.py)
    warm_up_steps: int = _count(2, "of each generation: compilation, first all-reduce, lazy initialisation")
    fewest_timed_steps: int = _count(5, "before there are so many, no step time is usual")
    kept_steps: int = _count(400, "over so many steps the usual step time is learned")
    min_stall_s: float = _real(3.0, "separates a stall from a slow step")
    stall_times: float = _real(3.0, "of the job's own P99 step")
    reported_gap_times: float = _real(1.5, "of the P95 time between two steps that are reported: a log may report every tenth")
    heard_s: float = _real(5.0, "what a launcher said longer ago says nothing of the present")

    # Workers that ended (ends.py)
    under_way_steps: int = _count(1, "made before a worker's end and heard of after it: its peers were in that step")

    # Declared phases (phases.py)
    phase_limit_s: float = _real(3600.0, "a declared phase that lasts longer is a hang inside it")
    phase_settle_s: float = _real(15.0, "after a phase the levels of telemetry come back one by one")
    unknown_phase_s: float = _real(120.0, "patience of telemetry with a phase of which no end was seen yet")
    least_phase_s: float = _real(60.0, "the same, at least")
    most_phase_s: float = _real(240.0, "the same, at most: a verdict comes within seven minutes (docs/recordings.md)")
    phase_times: float = _real(3.0, "of the longest phase of its kind: the same, of a phase that was seen before")

    # Activity (activity.py)
    quiet_floor_s: float = _real(30.0, "no shorter quiet stretch is too long: steps of large jobs take as long")
    quiet_times: float = _real(2.0, "of the longest quiet stretch that the job survived at work")
    active_share: float = _real(0.1, "of what is usual: below it are heartbeats, the store's keys and monitors")
    level_s: float = _real(10.0, "a level is the mean over so long: single bursts are no activity")
    activity_usual_rows: float = _real(300.0, "over so many rows the usual level is forgotten")
    activity_fewest_rows: int = _count(10, "before there are so many, any level over the metric's floor counts")
    activity_pending_rows: int = _count(600, "so many rows of a quiet stretch are kept until it is known whether they are usual")
    memory_share: float = _real(0.01, "a change of memory by more is activity: allocators move less by themselves")
    begun_any_s: float = _real(60.0, "of any activity: then the generation has begun its work")
    begun_work_s: float = _real(20.0, "of training's own traffic or tensor work: the same")
    activity_heard_s: float = _real(60.0, "telemetry that is older says nothing of now: the scrape intervals of sites reach 60 s")
    longest_row_s: float = _real(60.0, "one row counts for no longer")
    no_step_reported_s: float = _real(90.0, "a generation at work that reported no step until then reports none")

    # Common level (common_level.py)
    standing_share: float = _real(0.35, "of the median machine's usual traffic and tensor work: less is a standstill, ours")
    level_usual_rows: int = _count(300, "over so many rows the usual level is learned")
    level_fewest_rows: int = _count(10, "before there are so many, no level is usual")
    level_stands_s: float = _real(15.0, "a pause between two steps, and most checkpoints, are shorter")

    # Halt (halt.py)
    fewest_step_gaps: int = _count(3, "before there are so many, events give no step time")
    halt_least_s: float = _real(10.0, "no stop of steps is called one before")
    halt_times: float = _real(3.0, "of the longest usual time between two steps")

    # Answers of agents and launchers (answers.py)
    silent_s: float = _real(3.0, "three looks without an answer: agents and launchers are asked every second")
    watched_silent_s: float = _real(15.0, "of a job without launchers: an agent that is only restarted is back by then")
    gone_s: float = _real(2.0, "a machine silent in a stall is looked at before the rest: two looks")
    answer_lag_s: float = _real(3.0, "what peers had done before is heard of this much later at most")
    unrelated_s: float = _real(10.0, "a silence that began so long before the last step of a watched job did not end it")
    outage_s: float = _real(2.0, "most of the job unheard for less is a controller that was held up")
    outage_return_s: float = _real(60.0, "machines that went dark together come back one after the other")
    in_phase_silent_s: float = _real(30.0, "a network blip during a checkpoint is shorter")

    # Pace (pace.py)
    slow_times: float = _real(1.5, "a step that takes so many times its usual is slow, ours")
    slow_least_s: float = _real(0.02, "shorter differences are the host's whims")
    slow_horizon_s: float = _real(15.0, "the median over so long, for what holds processes up (stacks)")
    slow_horizon_steps: float = _real(3.0, "or over so many steps, if that is longer")
    slow_relearn_s: float = _real(300.0, "so long the pace before the slowness stays the usual one; then the new one is")
    spell_horizon_s: float = _real(4.0, "the median over so long, for what only reads connections")
    spell_lead_s: float = _real(3.0, "a slow spell is dated back by so much: it is seen by a median")
    spell_calm_s: float = _real(4.0, "steps at their usual pace for so long end a slow spell")
    reaches_times: float = _real(1.3, "a deviation reaches the training from so many times the usual step")
    recent_s: float = _real(6.0, "the present step time is the median over so long")

    settle_s: float = _real(10.0, "at the usual pace for so long, a restarted job has settled: caches and spares are warm again")
    settle_most_s: float = _real(60.0, "after so long a restarted job is judged at whatever pace it has")

    # The mode (mode.py)
    mode_power: float = _real(4.0, "twice a threshold is 94 % sure, half of it 6 %")
    mode_doubt_share: float = _real(0.02, "of the probability goes to all modes alike: none is ever ruled out")


THRESHOLDS = Thresholds()

# Metric to the level below which it says nothing of activity, in the metric's base unit: less than keep-alives, the store's keys and a
# scrape take. What training moves comes first; files, logs and memory follow.
ACTIVITY_FLOORS: Mapping[str, float] = MappingProxyType(
    {
        "job_tcp_bytes_per_second": 500.0,
        "rdma_throughput_bytes_per_second": 10_000.0,
        "nvlink_bandwidth_bytes_per_second": 100_000.0,
        "tcp_throughput_bytes_per_second": 50_000.0,
        "gpu_tensor_activity_ratio": 0.01,
        "gpu_fp_activity_ratio": 0.01,
        "gpu_memory_bandwidth_ratio": 0.01,
        "job_io_bytes_per_second": 2_000.0,
        "job_log_bytes_per_second": 0.0,
        "job_memory_bytes": 0.0,
    }
)
