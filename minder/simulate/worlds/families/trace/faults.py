"""Faults as tables: what the culprit does, how far the others get, and which metrics are marked. One row a kind.

Legend: T seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.trace.job import Job, spread
from minder.simulate.worlds.families.trace.scene import Blemish, Mark, Scene, between, on_and_off, since
from minder.simulate.worlds.families.trace.tables import Phase

__all__ = ["FAULTS", "GROUPS", "Fault", "break_down", "draw_fault", "shown_faults"]

Range = tuple[float, float]
Marked = tuple[str, str, Range, Range]  # metric, how, value of a plain fault, value of a grey one


@dataclass(frozen=True, slots=True)
class _Kind:
    """own: what the culprit does (None: as before). pace and grey_pace: how far the others get. course: steady, recurring, or climb."""

    says: str
    own: Phase | None = None
    filler: Phase = Phase.COMPUTE  # what a slow culprit does with the time in which the others wait
    pace: Range = (0.5, 0.85)
    grey_pace: Range = (0.9, 0.98)
    marks: tuple[Marked, ...] = ()
    course: str = "steady"
    device: bool = False  # of one GPU
    silent: float = 0.0  # chance that its exporters are silent
    needs: tuple[str, ...] = field(default=())


_SLOW_PORT: tuple[Marked, ...] = (
    ("ecn_packets_per_second", "times", (5, 40), (2, 4)),
    ("cnp_packets_per_second", "times", (5, 40), (2, 4)),
    ("pfc_tx_packets_per_second", "times", (10, 100), (3, 8)),
    ("rdma_xmit_wait_per_second", "times", (5, 60), (2, 4)),
)
_WEAK: tuple[Marked, ...] = (
    ("gpu_tensor_activity_ratio", "times", (0.5, 0.8), (0.85, 0.95)),
    ("gpu_power_draw_watts", "times", (0.65, 0.85), (0.9, 0.97)),
)
_STARVING: tuple[Marked, ...] = (("gpu_sm_activity_ratio", "times", (0.3, 0.7), (0.8, 0.92)), *_WEAK)
_CONGESTION = ("ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second")

_STOP: Range = (0.0, 0.0)
_KINDS: dict[str, _Kind] = {
    "clock_capped": _Kind(
        "a GPU's clock is held low, and little else shows it",
        marks=(("gpu_clock_hertz", "times", (0.4, 0.7), (0.75, 0.92)), ("gpu_power_draw_watts", "times", (0.7, 0.9), (0.93, 0.99))),
        device=True, needs=("gpu_clock_hertz",),
    ),
    "thermal_throttling": _Kind(
        "a hot GPU throttles in spells",
        marks=(
            ("gpu_temperature_celsius", "plus", (14, 24), (8, 14)), ("gpu_clock_hertz", "times", (0.35, 0.65), (0.7, 0.85)),
            ("gpu_throttle_reasons", "at_least", (64, 64), (32, 32)), ("gpu_power_draw_watts", "times", (0.55, 0.8), (0.85, 0.95)),
        ),
        course="recurring", device=True, needs=("gpu_temperature_celsius", "gpu_clock_hertz"),
    ),
    "power_capped": _Kind(
        "a board gets less power",
        marks=(
            ("gpu_power_draw_watts", "times", (0.4, 0.7), (0.75, 0.88)), ("gpu_clock_hertz", "times", (0.6, 0.85), (0.88, 0.96)),
            ("gpu_throttle_reasons", "at_least", (4, 4), (4, 4)), ("gpu_temperature_celsius", "plus", (-14, -6), (-5, -2)),
        ),
        device=True,
    ),
    "nvlink_lane": _Kind(
        "one NVLink has lost lanes",
        marks=(("nvlink_bandwidth_bytes_per_second", "times", (0.3, 0.7), (0.8, 0.92)),
               ("gpu_sm_activity_ratio", "times", (0.9, 1.0), (0.97, 1.0))),
        device=True, needs=("nvlink_bandwidth_bytes_per_second",),
    ),
    "dirty_optics": _Kind(
        "a transceiver drops symbols",
        marks=(("link_errors_per_second", "plus", (5, 500), (0.5, 5)), ("tcp_retransmits_per_second", "times", (1, 5), (1, 2)),
               *_SLOW_PORT),
        needs=("link_errors_per_second",),
    ),
    "port_congestion": _Kind("one port is congested, its neighbours are not", marks=_SLOW_PORT, needs=_CONGESTION),
    "pcie_width": _Kind(
        "a PCIe link runs at fewer lanes",
        marks=(("pcie_link_width", "set", (1, 4), (8, 8)), ("pcie_bandwidth_bytes_per_second", "times", (0.2, 0.5), (0.55, 0.8))),
        device=True, needs=("pcie_link_width", "pcie_bandwidth_bytes_per_second"),
    ),
    "cpu_hog": _Kind(
        "something eats the processor and the GPUs of that machine get no work",
        filler=Phase.STARVED, marks=(("cpu_usage_ratio", "plus", (0.5, 0.85), (0.25, 0.45)), *_STARVING),
    ),
    "link_flap": _Kind(
        "a link goes down and comes back",
        pace=(0.0, 0.0), grey_pace=(0.0, 0.2), own=Phase.WAIT, course="recurring",
        marks=(("link_downs_total", "count", (1, 1), (1, 1)), ("link_errors_per_second", "plus", (10, 800), (1, 20))),
        needs=("link_downs_total", "link_errors_per_second"),
    ),
    "frozen_gauges": _Kind(
        "a GPU's driver hangs: its gauges repeat themselves, the others come to wait",
        own=Phase.STUCK, pace=_STOP, grey_pace=_STOP,
    ),
    "gpu_off_bus": _Kind(
        "a GPU is gone from the bus",
        own=Phase.STUCK, pace=_STOP, grey_pace=_STOP, device=True, marks=(("gpu_memory_used_ratio", "times", (0.0, 0.0), (0.5, 0.9)),),
    ),
    "two_slow": _Kind("two machines are slow at the same time", marks=_WEAK),
    "rack_dark": _Kind("a rack is gone, the rest notices minutes later", own=Phase.IDLE, pace=_STOP, grey_pace=_STOP, silent=0.7),
    "switch_dark": _Kind(
        "what hangs on one switch is gone, the rest notices minutes later",
        own=Phase.STUCK, pace=_STOP, grey_pace=_STOP, silent=0.5,
    ),
    "group_slow": _Kind("the machines of one stage or rack are slow", marks=_WEAK),
    "recurring_freezes": _Kind(
        "a machine freezes for seconds, again and again",
        own=Phase.STUCK, pace=(0.0, 0.1), grey_pace=(0.0, 0.3), course="recurring",
    ),
    "slow_storage": _Kind(
        "one machine's reads crawl",
        filler=Phase.STARVED,
        marks=(
            ("tcp_throughput_bytes_per_second", "times", (0.1, 0.4), (0.5, 0.75)), ("tcp_round_trip_seconds", "times", (3, 20), (1.5, 3)),
            ("tcp_receive_queue_bytes", "times", (2, 20), (1.3, 2)), *_STARVING,
        ),
    ),
    "full_disk": _Kind(
        "a disk is full when the checkpoint comes",
        own=Phase.IDLE, pace=_STOP, grey_pace=_STOP, needs=("disk_usage_ratio",),
    ),
    "hang": _Kind("a process hangs", own=Phase.STUCK, pace=_STOP, grey_pace=_STOP),
    "dead_machine": _Kind("a machine has died", own=Phase.IDLE, pace=_STOP, grey_pace=_STOP, silent=1.0),
    "memory_leak": _Kind(
        "memory fills up and the machine swaps",
        filler=Phase.STARVED, course="climb",
        marks=(("memory_usage_ratio", "plus", (0.4, 0.6), (0.25, 0.4)), ("cpu_usage_ratio", "plus", (0.05, 0.3), (0.02, 0.1)), *_STARVING),
        needs=("memory_usage_ratio",),
    ),
    "ecc_errors": _Kind(
        "memory errors pile up on a GPU",
        device=True, needs=("gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total"),
        marks=(("gpu_ecc_uncorrectable_total", "count", (0.05, 2), (0.01, 0.05)), ("gpu_rows_remapped_total", "count", (0.01, 0.1),
               (0.01, 0.02)), *_WEAK),
    ),
    "early_stall": _Kind("a process hangs in the first minutes", own=Phase.STUCK, pace=_STOP, grey_pace=_STOP),
    "slow_from_start": _Kind("a machine has been slow all along", marks=_WEAK),
}  # fmt: skip
FAULTS: Mapping[str, str] = MappingProxyType({name: kind.says for name, kind in _KINDS.items()})
GROUPS = frozenset({"rack_dark", "switch_dark", "group_slow"})
_LASTING = frozenset({"hang", "early_stall", "dead_machine", "full_disk", "gpu_off_bus", "frozen_gauges", "slow_from_start"}) | GROUPS


@dataclass(frozen=True, slots=True)
class Fault:
    """Which machines, when (seconds of the trace; end_s None: to the end), and whether it is a grey one."""

    name: str
    machines: tuple[int, ...]
    onset_s: float
    end_s: float | None
    grey: bool


def shown_faults(job: Job) -> tuple[str, ...]:
    """Kinds whose culprit this site's metrics can show."""
    return tuple(name for name, kind in _KINDS.items() if not kind.needs or set(kind.needs) & job.shown)


def _hit(name: str, job: Job, rng: np.random.Generator, free: np.ndarray) -> tuple[int, ...]:
    first = int(rng.choice(free))
    if name in GROUPS:
        by = job.stage_M if name == "group_slow" and job.stage_M.max() else job.switch_M if name == "switch_dark" else job.rack_M
        members = [int(m) for m in free if by[m] == by[first]]
        return tuple(members[: max(2, job.machines // 3)])
    pair = (name == "two_slow" or rng.random() < 0.05) and free.size > 4
    return tuple(sorted((first, int(rng.choice(free[free != first]))))) if pair else (first,)


def draw_fault(name: str, job: Job, rng: np.random.Generator, *, before_s: float, avoid: set[int], saves_s: np.ndarray) -> Fault:
    """One fault of this kind. before_s: its latest onset; saves_s: when checkpoints begin; avoid: machines that show nothing."""
    free = np.array([m for m in range(job.machines) if m not in avoid])
    machines, when, ends, grey = _hit(name, job, rng, free), rng.random(), rng.random(), bool(rng.random() < 0.33)
    onset = 0.0 if name == "slow_from_start" else 25 + 200 * when if name == "early_stall" else 240 + when * max(before_s - 240, 1)
    fits = saves_s[(saves_s > 245) & (saves_s < before_s)]
    if name == "full_disk" and fits.size:
        onset = float(fits[int(when * fits.size)])
    lasts = spread(rng, 420, 0.4)
    over = name not in _LASTING and ends < 0.3 and onset + lasts < job.duration_s - 60
    return Fault(name, machines, onset, onset + lasts if over else None, grey)


def _course(fault: Fault, kind: _Kind, job: Job, rng: np.random.Generator, end_s: float) -> np.ndarray:
    rise = float(rng.choice([1, 3, 10, 40])) if kind.own is None and fault.onset_s else 1.0
    if kind.course == "recurring":
        on, off = (rng.uniform(8, 20), rng.uniform(60, 160)) if fault.grey else (rng.uniform(15, 70), rng.uniform(30, 120))
        if fault.name == "link_flap":
            on /= 2
        return on_and_off(rng, (fault.onset_s, end_s), on, off, job.seconds)
    if kind.course == "climb":
        return since(fault.onset_s, rng.uniform(60, 240), end_s, job.seconds)
    return since(fault.onset_s if fault.onset_s else -99, rise, end_s, job.seconds)


def _lives(scene: Scene, fault: Fault, kind: _Kind, rng: np.random.Generator, course_T: np.ndarray) -> None:
    """What the culprit does, and how far the others get without it."""
    job, late = scene.job, rng.uniform(60, 260) if fault.name in GROUPS and kind.own is not None else rng.uniform(0, 4)
    owns = [scene.own_chart(m) for m in fault.machines]
    pace = float(rng.uniform(*(kind.grey_pace if fault.grey else kind.pace)))
    others = [chart for chart in scene.charts if not any(chart is own for own in owns)]
    felt_T = np.where(np.arange(job.seconds) >= fault.onset_s + (late if fault.onset_s else 0), course_T, 0.0)
    whole = kind.own is not None and kind.course != "recurring"
    for chart in others:
        if whole:
            works_T = ~np.isin(chart.phase_T, (Phase.IDLE, Phase.START)) & (felt_T > 0)
            chart.phase_T[works_T], chart.pace_T[works_T] = Phase.WAIT, 1.0
            chart.write(max(fault.onset_s, 1) + late + job.patience_s, job.seconds, Phase.IDLE)
        else:
            chart.slow(1 - felt_T * (1 - pace), Phase.WAIT)
    for own in owns:
        if kind.own is None:
            own.slow(1 - felt_T * (1 - pace), kind.filler)
            continue
        there_T = (course_T > 0) & (own.phase_T != Phase.IDLE)
        own.phase_T[there_T], own.pace_T[there_T] = kind.own, 1.0


def break_down(scene: Scene, fault: Fault, rng: np.random.Generator) -> None:
    """Write the fault into the scene. All random numbers are the fault's own."""
    kind, job = _KINDS[fault.name], scene.job
    end_s = fault.end_s or job.seconds + 1.0
    course_T = _course(fault, kind, job, rng, end_s)
    _lives(scene, fault, kind, rng, course_T)
    device = int(rng.integers(job.gpus)) if kind.device and job.gpus and rng.random() < 0.8 else None
    hit = np.array(fault.machines)
    for metric, how, plain, grey in kind.marks:
        low, high = grey if fault.grey else plain
        value = float(np.exp(rng.uniform(np.log(low), np.log(high)))) if low > 0 and high / low > 4 else float(rng.uniform(low, high))
        own = device if metric.startswith(("gpu", "pcie", "nvlink")) else None
        begins_T = course_T * (np.diff(course_T, prepend=0) > 0) if metric == "link_downs_total" else course_T
        scene.marks.append(Mark(metric, hit, how, value, begins_T, own))  # type: ignore[arg-type]
    if fault.name == "full_disk":
        scene.marks.append(
            Mark("disk_usage_ratio", hit, "at_least", 1.0, since(fault.onset_s - 1, 20 + 60 * fault.grey, end_s, job.seconds))
        )
    if fault.name == "frozen_gauges":
        scene.blemishes += [Blemish("gpu", m, "stuck", fault.onset_s, end_s) for m in fault.machines]
    if fault.name == "gpu_off_bus":
        missing_T = between(fault.onset_s, end_s, job.seconds)
        scene.marks.append(Mark("gone", hit, "set", 1.0, missing_T, device if device is not None else 0))
    if rng.random() < kind.silent:
        scene.blemishes += [Blemish("all", m, "silent", fault.onset_s + rng.uniform(0, 3), end_s) for m in fault.machines]
