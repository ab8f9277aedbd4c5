"""The job that one trace is of, and its life as a semi-Markov chain: a grammar of phases, each of heavy-tailed length.

Legend: T seconds, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.trace.tables import METRICS, Phase

__all__ = ["Chart", "Job", "draw_job", "draw_life", "spread"]

# Phase: median seconds and spread of the logarithm of its length, and what may follow with which weight.
_GRAMMAR: dict[Phase, tuple[float, float, tuple[tuple[Phase, float], ...]]] = {
    Phase.START: (25, 0.5, ((Phase.COMPILE, 0.7), (Phase.WARM, 0.3))),
    Phase.COMPILE: (30, 0.6, ((Phase.WARM, 1.0),)),
    Phase.WARM: (25, 0.5, ((Phase.TRAIN, 1.0),)),
    Phase.TRAIN: (240, 0.9, ((Phase.SAVE, 0.5), (Phase.EVALUATE, 0.12), (Phase.STARVED, 0.13), (Phase.TRAIN, 0.25))),
    Phase.SAVE: (14, 0.7, ((Phase.TRAIN, 0.85), (Phase.EVALUATE, 0.15))),
    Phase.EVALUATE: (50, 0.7, ((Phase.TRAIN, 0.7), (Phase.SAVE, 0.3))),
    Phase.STARVED: (5, 0.8, ((Phase.TRAIN, 1.0),)),
}


@dataclass(frozen=True, slots=True)
class Job:
    """What does not change during a trace. Seconds, watts, hertz."""

    seed: int
    machines: int
    gpus: int  # rows of devices, 0 for none
    duration_s: float
    scrape_s: float
    step_s: float
    start_s: float
    layout: str
    shown: frozenset[str]
    stage_M: np.ndarray
    rollout_M: np.ndarray
    rack_M: np.ndarray
    switch_M: np.ndarray
    split: float  # share of a step before its exchange
    patience_s: float  # a collective that waits this long is aborted
    tdp_w: float
    nominal_hz: float

    def random(self, what: str) -> np.random.Generator:
        """The random numbers for one purpose."""
        return np.random.default_rng([0x7ACE, self.seed & 0xFFFFFFFF, *what.encode()])

    @property
    def seconds(self) -> int:
        return int(np.ceil(self.duration_s)) + 1


@dataclass(slots=True)
class Chart:
    """One life, second by second. pace_T: share of the time that the phase gets; the rest goes to filler_T."""

    phase_T: np.ndarray
    pace_T: np.ndarray
    filler_T: np.ndarray

    def copy(self) -> Chart:
        return Chart(self.phase_T.copy(), self.pace_T.copy(), self.filler_T.copy())

    def write(self, start_s: float, end_s: float, phase: Phase) -> None:
        """From start_s to end_s it is doing this and nothing else."""
        cut = slice(max(int(start_s), 0), max(int(end_s), 0))
        self.phase_T[cut], self.pace_T[cut] = phase, 1.0

    def slow(self, pace_T: np.ndarray, filler: Phase) -> None:
        """Wherever it trains, it gets on at this fraction of its pace."""
        where = (pace_T < 1.0) & np.isin(self.phase_T, (Phase.TRAIN, Phase.WARM, Phase.GENERATE, Phase.EVALUATE))
        self.pace_T[where] *= pace_T[where]
        self.filler_T[where] = filler


def spread(rng: np.random.Generator, median: float, sigma: float) -> float:
    """A heavy-tailed length: log-normal, and one in fifteen much longer."""
    return float(median * np.exp(sigma * rng.standard_normal()) * (1 + 3 * (rng.random() < 1 / 15)))


def _size(rng: np.random.Generator) -> int:
    top = rng.random()
    exponent = rng.uniform(np.log(4), np.log(128)) if top < 0.86 else rng.uniform(np.log(128), np.log(4000))
    return int(np.exp(exponent))


def _shown(rng: np.random.Generator) -> frozenset[str]:
    """Which metrics a site shows: by the age of its GPUs, its fabric, the agents that it runs."""
    shown = set(METRICS) | {"step_seconds", "steps_total"}
    fate = rng.random(6)
    profiling = {name for name in shown if name.endswith("activity_ratio")} | {
        "gpu_memory_bandwidth_ratio",
        "nvlink_bandwidth_bytes_per_second",
    }
    shown -= profiling if fate[0] < 0.25 else set()
    shown -= {"gpu_graphics_activity_ratio", "gpu_fp_activity_ratio"} if fate[1] < 0.6 else set()
    shown -= {"rdma_xmit_wait_per_second"} if fate[2] < 0.5 else {name for name in shown if name[:3] in ("pfc", "ecn", "cnp")}
    shown -= (
        {"gpu_throttle_reasons", "pcie_link_width", "gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total"} if fate[3] < 0.35 else set()
    )
    shown -= {name for name in shown if name.startswith("tcp_")} if fate[4] < 0.25 else set()
    shown -= {"step_seconds", "steps_total"} if fate[5] < 0.4 else set()
    off = rng.random(len(METRICS)) < 0.08
    kept = {"gpu_power_draw_watts", "gpu_duty_cycle_ratio", "cpu_usage_ratio", "rdma_throughput_bytes_per_second"}
    return frozenset(shown - {name for name, gone in zip(METRICS, off, strict=True) if gone and name not in kept})


def draw_job(seed: int, machines: int | None, duration_s: float | None) -> Job:
    """The job of this seed. machines, duration_s: in place of its own."""
    rng = np.random.default_rng([0x7ACE, seed & 0xFFFFFFFF])
    own_size, own_length = _size(rng), rng.uniform(15, 40) * 60
    n = machines or own_size
    rows = int(rng.choice([0, 0, 4, 8]))
    period = float(rng.choice([1, 2, 3, 5, 10, 15, 15, 30]))
    layout = str(rng.choice(["tensor", "pipeline", "expert", "roles"], p=[0.3, 0.35, 0.2, 0.15]))
    stages = min(int(rng.integers(2, 9)), n // 2) if layout == "pipeline" else 1
    index, per_rack = np.arange(n), int(rng.integers(2, 13))
    order = rng.permutation(n) if rng.random() < 0.3 else index  # a scheduler that does not care where machines stand
    return Job(
        seed=seed,
        machines=n,
        gpus=rows if n <= 32 else 0,
        duration_s=float(duration_s or own_length),
        scrape_s=max(period, 1.0 if n <= 16 else 2.0 if n <= 48 else 5.0 if n <= 300 else 15.0),
        step_s=float(0.3 * 200 ** rng.random()),
        start_s=1_770_000_000.0 + float(rng.integers(0, 10_000_000)),
        layout=layout,
        shown=_shown(rng),
        stage_M=index * stages // n,
        rollout_M=(index < n * rng.uniform(0.2, 0.6)) & (layout == "roles"),
        rack_M=order // per_rack,
        switch_M=order // (per_rack * int(rng.integers(1, 4))),
        split=float(rng.uniform(0.45, 0.85)),
        patience_s=spread(rng, 500, 0.5),
        tdp_w=float(rng.choice([350, 400, 500, 700, 1200])),
        nominal_hz=float(rng.choice([1.38e9, 1.62e9, 1.83e9, 2.1e9])),
    )


def draw_life(job: Job) -> Chart:
    """The job's own life: no fault, no trouble, but what every job goes through."""
    rng, seconds = job.random("life"), job.seconds
    chart = Chart(np.full(seconds, Phase.TRAIN, np.int8), np.ones(seconds), np.full(seconds, Phase.WAIT, np.int8))
    now, phase = 0.0, Phase.START if rng.random() < 0.3 else Phase.TRAIN
    paces = rng.uniform(0.75, 1.0, 3)
    while now < seconds:
        median, sigma, follow = _GRAMMAR[phase]
        until = now + max(spread(rng, median, sigma), 2.0)
        chart.write(now, until, phase)
        if phase is Phase.TRAIN:
            chart.pace_T[int(now) : int(until)] = paces[int(rng.integers(3))]
        now = until
        weights = np.array([weight for _, weight in follow])
        phase = follow[int(rng.choice(len(follow), p=weights / weights.sum()))][0]
    return chart
