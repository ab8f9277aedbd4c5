"""A job: its machines and where they stand, what its site exports, and its semi-Markov sequence of regimes.

Legend: M machines, U units (a machine, or one of its devices), T scrapes, G seconds of the recording, P regimes, K metrics, R roles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.score.levels import REGIMES, Level, exported, rows_of

__all__ = ["Job", "draw_job"]

_CELLS = 2_500_000  # numbers in one recording at most, so that a draw stays cheap
_INTERVALS_S = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 30.0)
_SOJOURN_S = {"start": (30, 150), "warmup": (50, 250), "evaluation": (20, 140), "checkpoint": (5, 60), "stall": (6, 35)}
# What a rollout machine differs by from a trainer, as scores: less of every step's work, more of the host's.
_ROLLOUT = {"gpu_sm_activity_ratio": -0.7, "gpu_tensor_activity_ratio": -1.2, "gpu_power_draw_watts": -0.3, "gpu_clock_hertz": 0.08,
            "gpu_duty_cycle_ratio": -1.2, "gpu_memory_bandwidth_ratio": 0.7, "rdma_throughput_bytes_per_second": -1.6,
            "cpu_usage_ratio": 0.6, "gpu_temperature_celsius": -6.0, "nvlink_bandwidth_bytes_per_second": -1.0}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One job. start_s: UTC seconds of the first second; time_TU: true seconds since then of each scrape; device_U: -1 the machine.

    rows_RPK: typical levels by role. regime_RPG: weights of the regimes. window_s: over which gauges are averaged. comm: share of a step
    in which bytes move. stage_M and role_M are zeros without pipeline and roles; rack_M and switch_M exist even if they are not exported.
    """

    machines: tuple[str, ...]
    levels: tuple[Level, ...]
    devices: int
    interval_s: float
    step_s: float
    seconds: int
    start_s: float
    window_s: float
    comm: float
    time_TU: np.ndarray
    machine_U: np.ndarray
    device_U: np.ndarray
    stage_M: np.ndarray
    role_M: np.ndarray
    rack_M: np.ndarray
    switch_M: np.ndarray
    expert_M: np.ndarray
    rows_RPK: np.ndarray
    regime_RPG: np.ndarray
    exports: frozenset[str]

    def index(self, name: str) -> int | None:
        """Place of a metric, None if the site has it not."""
        return next((k for k, level in enumerate(self.levels) if level.name == name), None)

    def has(self, name: str) -> bool:
        """Whether the site exports a metric."""
        return self.index(name) is not None

    @property
    def second_TU(self) -> np.ndarray:
        """Index into G of each scrape."""
        return np.asarray(np.clip(self.time_TU, 0, self.seconds - 1), dtype=np.int64)

    @property
    def running_G(self) -> np.ndarray:
        """Share of each second in which the trainers' job makes steps."""
        share_G: np.ndarray = self.regime_RPG[0, 1:4].sum(axis=0)  # warm-up, training, evaluation
        return share_G


def draw_job(seed: int, machines: int | None, duration_s: float | None) -> Job:
    """A job by its seed; machines and seconds as asked for, or its own."""
    rng = np.random.default_rng([seed, 1])
    count = _machines(rng)
    levels = exported(rng)
    seconds = float(rng.choice([900, 1200, 1500, 1800, 2400, 3600], p=[0.2, 0.2, 0.15, 0.25, 0.1, 0.1])) + float(rng.integers(0, 60))
    interval = float(rng.choice(_INTERVALS_S, p=[0.15, 0.12, 0.08, 0.25, 0.2, 0.12, 0.08]))
    devices = int(rng.choice([4, 8])) if rng.random() < 0.3 else 0
    step_s = float(np.exp(rng.uniform(np.log(0.3), np.log(60.0))))
    count = count if machines is None else machines
    devices = devices if count * devices <= 200 else 0
    units = count * (1 + devices)
    levels = levels[:12] if units > 600 else levels  # large sites keep fewer series
    asked = duration_s is not None
    seconds = float(duration_s) if duration_s is not None else seconds
    for wider in _INTERVALS_S:
        if seconds / interval * units * len(levels) > _CELLS:
            interval = max(interval, wider)
    if not asked and seconds / interval * units * len(levels) > _CELLS:
        seconds = 900.0 + seconds % 60
    machine_U = np.concatenate([np.arange(count), np.repeat(np.arange(count), devices)])
    device_U = np.concatenate([np.full(count, -1), np.tile(np.arange(devices), count)])
    time_T = np.arange(0.0, seconds, interval)
    scraped_M = rng.uniform(0, interval, count) if rng.random() < 0.6 else np.zeros(count)
    jitter_TM = rng.normal(0, 0.02 * interval, (len(time_T), count)) if rng.random() < 0.5 else np.zeros((len(time_T), count))
    time_TM = np.maximum(time_T[:, None] + 0.9 * scraped_M + np.abs(jitter_TM), 0.0)
    stage_M, role_M, expert_M = _parallel(rng, count)
    rack = int(rng.choice([2, 4, 8, 16]))
    rack_M = np.arange(count) // max(2, min(rack, count // 3))
    switch_M = np.arange(count) // max(2, min(int(rng.choice([4, 8, 16, 32])), count // 3))
    if rng.random() < 0.5:  # the scheduler placed ranks without regard to racks
        rack_M, switch_M = rack_M[rng.permutation(count)], switch_M[rng.permutation(count)]
    scores_K = rng.normal(0, [2.5 * max(level.own, 0.08 if level.link != "log" else 0.02) for level in levels])
    for k, level in enumerate(levels):
        if level.name == "gpu_clock_hertz":
            scores_K[k] = -abs(scores_K[k])
    unlike_K = scores_K + np.array([_ROLLOUT.get(level.name, 0.0) for level in levels])
    rows_RPK = np.stack([rows_of(levels, scores_K), rows_of(levels, unlike_K)])
    length = int(np.ceil(seconds + interval)) + 1
    typical_s = float(rng.uniform(150, 1200))
    regime_RPG = np.stack([_regimes(rng, length, typical_s) for _ in range(2)])
    exports = frozenset(name for name, chance in (("racks", 0.6), ("switches", 0.45)) if rng.random() < chance)
    return Job(
        machines=_names(rng, count), levels=levels, devices=devices, interval_s=interval, step_s=step_s, seconds=length,
        start_s=1.76e9 + float(rng.integers(0, 20_000_000)), window_s=interval if rng.random() < 0.6 else min(1.0, interval),
        comm=float(rng.uniform(0.12, 0.35)), time_TU=time_TM[:, machine_U], machine_U=machine_U, device_U=device_U, stage_M=stage_M,
        role_M=role_M, rack_M=rack_M, switch_M=switch_M, expert_M=expert_M, rows_RPK=rows_RPK, regime_RPG=regime_RPG, exports=exports,
    )  # fmt: skip


def _machines(rng: np.random.Generator) -> int:
    low, high = ((4, 40), (40, 400), (400, 4000))[int(rng.choice(3, p=[0.5, 0.44, 0.06]))]
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def _names(rng: np.random.Generator, count: int) -> tuple[str, ...]:
    first = int(rng.integers(1, 400))
    style = int(rng.integers(0, 4))
    if style == 0:
        return tuple(f"gpu-{first + m:04d}" for m in range(count))
    if style == 1:
        return tuple(f"10.{first % 250}.{m // 250}.{m % 250 + 2}" for m in range(count))
    if style == 2:
        return tuple(f"r{first + m // 8:03d}-n{m % 8}" for m in range(count))
    return tuple(f"trainjob-{first}-worker-{m}" for m in range(count))


def _parallel(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stage, role and group of experts of each machine."""
    stages = [size for size in (2, 4, 8) if count % size == 0 and count // size >= 2]
    number = int(rng.choice(stages)) if stages and rng.random() < 0.5 else 1
    stage_M = np.arange(count) * number // count if rng.random() < 0.6 else np.arange(count) % number
    role_M, expert_M = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    if count >= 8 and number == 1 and rng.random() < 0.2:
        role_M[int(count * rng.uniform(0.5, 0.7)) :] = 1
    if count >= 8 and rng.random() < 0.25:
        expert_M = np.arange(count) % 4
    return stage_M, role_M, expert_M


def _regimes(rng: np.random.Generator, length: int, typical_s: float) -> np.ndarray:
    """(P, G): weights of the regimes, with ramps of a few seconds between them."""
    now = str(rng.choice(["training", "start", "warmup"], p=[0.72, 0.16, 0.12]))
    place, one_PG = 0, np.zeros((len(REGIMES), length), dtype=np.float32)
    while place < length:
        low, high = _SOJOURN_S.get(now, (0.5 * typical_s, 1.6 * typical_s))
        stay = int(rng.uniform(low, high) * (rng.random() if place == 0 else 1.0)) + 1  # the recording begins in the midst of it
        one_PG[REGIMES.index(now), place : place + stay] = 1.0
        place += stay
        if now == "start":
            now = "warmup"
        else:
            now = str(rng.choice(["evaluation", "checkpoint", "stall"], p=[0.35, 0.5, 0.15])) if now == "training" else "training"
    width = int(rng.integers(2, 8))
    padded_PG = np.pad(one_PG, ((0, 0), (width - 1, 0)), mode="edge")
    summed_PG = np.cumsum(padded_PG, axis=1, dtype=np.float64)
    summed_PG[:, width:] -= summed_PG[:, :-width].copy()
    return np.asarray((summed_PG[:, width - 1 :] / width).astype(np.float32))
