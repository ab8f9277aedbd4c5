"""Jobs as ranks that work, talk, write and wait for each other at barriers.

It shares no model with other families or `minder simulate`. How a fault spreads is not written down: a job is a list of phases
(compute, all-reduce, checkpoint, evaluation, restart), each machine needs its own time for a phase, and none begins the next one before
all are done. A machine that is slow or stops makes the others wait, by itself. What a machine does in each half second becomes watts,
degrees, traffic and the rest.
Legend: H half seconds, T seconds of true time, M machines, A activities, K metrics, N samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from minder.ingest.sources.frames import Frames
from minder.simulate.worlds.world import NO_FAULT, Truth, World

NAME = "barriers"

STALLS = ("process_dies", "host_hangs", "storage_hangs", "nic_down", "gpu_lost", "unreachable")
SLOWS = ("clock_cap", "hot", "pcie_narrow", "nvlink_lane", "dirty_optic")
KINDS = (*STALLS, *SLOWS)
FAULTS = {
    "process_dies": "a process ends without a word",
    "host_hangs": "a host hangs",
    "storage_hangs": "a machine waits for its storage",
    "nic_down": "a network card is down",
    "gpu_lost": "one GPU of a machine is gone",
    "unreachable": "a machine is gone with its exporters",
    "clock_cap": "a clock is capped",
    "hot": "a GPU is hot and throttles",
    "pcie_narrow": "a PCIe link is narrow",
    "nvlink_lane": "an NVLink lane is lost",
    "dirty_optic": "a dirty optic costs bandwidth and congests",
}
CAUSES = {
    "congestion": "the network is slow for all, for minutes",
    "evaluation": "all but one stage rest",
    "restart": "all end together and come back one by one",
    "outage_reload": "storage is away for a minute, and all load again",
    "blackout": "the monitoring hears no machine",
}
NUISANCES = {
    "long_writer": "one rank writes on after each checkpoint",
    "evaluation": "all but one stage rest",
    "restart": "all end together and come back one by one",
    "outage_reload": "storage is away for a minute, and all load again",
    "wander": "work moves between machines within minutes",
    "hiccups": "a machine pauses for seconds",
    "new_level": "a healthy change of one machine that lasts",
    "stuck": "a gauge stands still",
    "clock_off": "a clock is seconds off",
    "flap": "a link is down for seconds",
    "exporter_dead": "an exporter is silent to the end",
    "blackout": "the monitoring hears no machine",
    "bursts": "seconds of odd readings",
    "congestion": "the network is slow for all, for minutes",
}
MISHAPS = (
    "long_writer", "evaluation", "restart", "outage_reload", "wander", "hiccups", "new_level", "stuck", "clock_off", "flap",
    "exporter_dead", "blackout", "bursts", "congestion",
)  # fmt: skip
METRICS = (
    "cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_temperature_celsius",
    "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_graphics_activity_ratio", "gpu_clock_hertz", "gpu_memory_used_ratio",
    "gpu_memory_bandwidth_ratio", "nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second",
    "rdma_throughput_bytes_per_second", "tcp_throughput_bytes_per_second", "pfc_tx_packets_per_second", "ecn_packets_per_second",
    "cnp_packets_per_second",
)  # fmt: skip
# What a site must export for a fault to be seen at all.
SEEN_IN: dict[str, tuple[int, ...]] = {
    "process_dies": (3, 4, 6, 10), "host_hangs": (0, 4, 6, 14), "storage_hangs": (0, 4, 6, 15), "nic_down": (14, 15, 16),
    "gpu_lost": (3, 4, 6, 10), "unreachable": (3, 4, 14), "clock_cap": (9, 4), "hot": (5, 9), "pcie_narrow": (13, 16),
    "nvlink_lane": (12, 7), "dirty_optic": (14, 17, 18),
}  # fmt: skip
WORK, TALK, SPIN, SAVE, LOAD, REST, GONE, HUNG = range(8)
# How much of each activity (columns, in the order above) a metric shows: levels between 0 and 1 of what the site's hardware can do.
SHOWS: dict[int, tuple[float, ...]] = {
    0: (0.25, 0.22, 0.28, 0.45, 0.5, 0.12, 0.05, 0.1), 3: (1.0, 1.0, 1.0, 0.15, 0.1, 0.02, 0.0, 0.02),
    4: (0.92, 0.6, 0.42, 0.2, 0.2, 0.16, 0.13, 0.16), 6: (0.85, 0.35, 0.2, 0.03, 0.02, 0.01, 0.0, 0.01),
    7: (0.55, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 8: (0.97, 0.98, 0.99, 0.1, 0.08, 0.02, 0.0, 0.01),
    10: (0.85, 0.85, 0.85, 0.85, 0.6, 0.85, 0.01, 0.85), 11: (0.5, 0.2, 0.04, 0.05, 0.05, 0.0, 0.0, 0.0),
    12: (0.6, 0.4, 0.01, 0.02, 0.02, 0.0, 0.0, 0.0), 13: (0.3, 0.5, 0.03, 0.6, 0.5, 0.01, 0.0, 0.01),
    14: (0.1, 0.9, 0.004, 0.01, 0.02, 0.002, 0.0, 0.002), 15: (0.03, 0.03, 0.03, 0.8, 0.9, 0.02, 0.01, 0.01),
    16: (0.3, 0.9, 0.15, 0.2, 0.2, 0.1, 0.05, 0.1), 17: (0.2, 0.9, 0.05, 0.1, 0.1, 0.05, 0.02, 0.05),
    18: (0.2, 0.9, 0.05, 0.1, 0.1, 0.05, 0.02, 0.05),
}  # fmt: skip
START_S = 1_790_000_000.0
SECONDS = 1560


@dataclass(frozen=True)
class Recipe:
    """One recording; `nuisances` are what healthy machines do in it."""

    seed: int
    fault: str | None
    machines: int
    pipeline: int
    interval_s: float
    onset_s: float | None
    weak: bool
    nuisances: tuple[str, ...]
    metrics: tuple[str, ...]
    split_rows: bool
    without_fault: bool = False  # the same world without what the fault does


@dataclass(frozen=True, slots=True)
class Labelled(Frames):
    """Samples with the truth about them."""

    stages: dict[str, int]
    interval_s: float
    culprit: str | None
    onset_s: float | None
    fault: str | None


def barriers(seed: int) -> Recipe:
    """A hard recording: two to six nuisances, three to ten metrics, scrapes every 1 to 15 s. Two of three seeds have a fault."""
    rng = np.random.default_rng([seed, 91])
    fault = str(rng.choice(KINDS)) if seed % 3 else None
    pipeline = int(rng.choice([1, 1, 2, 4]))
    machines = pipeline * max(int(rng.integers(1, 13)), -(-4 // pipeline))
    kept = set(rng.choice(len(METRICS), size=int(rng.integers(3, 11)), replace=False).tolist())
    if fault is not None:
        kept |= set(rng.choice(SEEN_IN[fault], size=2, replace=False).tolist())
    interval_s = float(rng.choice([1.0, 5.0, 10.0, 15.0], p=[0.1, 0.3, 0.3, 0.3]))
    nuisances = tuple(sorted(rng.choice(MISHAPS, size=int(rng.integers(2, 7)), replace=False).tolist()))
    onset_s = float(rng.uniform(120, 220) if rng.random() < 0.2 else rng.uniform(400, 1000)) if fault else None
    names = tuple(METRICS[k] for k in sorted(kept))
    weak, split = rng.random(2) < 0.25
    return Recipe(seed, fault, machines, pipeline, interval_s, onset_s, bool(weak), nuisances, names, bool(split))


def barriers_plain(seed: int) -> Recipe:
    """A plain recording: every second, most metrics, bursts and checkpoints, 4 to 96 machines. Two of three seeds have a fault."""
    rng = np.random.default_rng([seed, 92])
    fault = str(rng.choice(KINDS)) if seed % 3 else None
    pipeline = int(rng.choice([1, 2, 4]))
    machines = pipeline * max(int(rng.choice([1, 2, 4, 8, 12, 24])), -(-4 // pipeline))
    left_out = set(rng.choice(len(METRICS), size=int(rng.integers(0, 8)), replace=False).tolist()) - set(SEEN_IN.get(fault or "", ()))
    names = tuple(name for k, name in enumerate(METRICS) if k not in left_out)
    onset_s = float(rng.uniform(300, 1000)) if fault else None
    return Recipe(seed, fault, machines, pipeline, 1.0, onset_s, False, ("bursts", "hiccups"), names, False)


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (see world.py): two of three seeds have a fault, one of four is plain. Worlds last 1,560 s, whatever duration_s says."""
    rng = np.random.default_rng([seed, 94])
    recipe = (barriers if rng.random() < 0.75 else barriers_plain)(seed)
    if fault not in (None, NO_FAULT):
        kept = {METRICS.index(name) for name in recipe.metrics} | set(SEEN_IN[fault][:2])
        onset_s = recipe.onset_s or float(rng.uniform(400, 1000))
        recipe = replace(recipe, fault=fault, onset_s=onset_s, metrics=tuple(METRICS[k] for k in sorted(kept)))
    if machines is not None:
        recipe = replace(recipe, machines=max(1, machines // recipe.pipeline) * recipe.pipeline)
    columns = generate(replace(recipe, without_fault=fault == NO_FAULT))
    cause = next((name for name in recipe.nuisances if name in CAUSES), None)
    truth = Truth(cause=cause, nuisances=recipe.nuisances)
    if columns.culprit is not None and fault != NO_FAULT:
        truth = Truth((columns.culprit,), (), columns.fault, columns.onset_s, None, recipe.weak, cause, recipe.nuisances)
    return World(
        NAME, seed, columns.machines, columns.metrics, columns.interval_s, 0.0, columns.times_N, columns.machine_N, columns.device_N,
        columns.values_NK, truth, stages=columns.stages,
    )  # fmt: skip


def generate(recipe: Recipe) -> Labelled:
    """The recording of a recipe; the same seed gives the same bytes."""
    site = _Site(recipe)
    for name in recipe.nuisances:
        getattr(site, f"_{name}")()
    if recipe.fault and not recipe.without_fault:
        site.fail(recipe.fault)
    elif recipe.fault:
        return site.scrape(site.metrics(site.run_without(recipe.fault)))
    return site.scrape(site.metrics(site.run()))


class _Site:
    """What each machine can do at each moment, set by nuisances and the fault before the job runs."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.rng = rng = np.random.default_rng([recipe.seed, 93])
        self.M, self.H = recipe.machines, 2 * SECONDS
        self.stage_M = np.arange(self.M) // (self.M // recipe.pipeline)
        self.culprit = int(rng.integers(self.M)) if recipe.fault else -1
        self.onset = int(recipe.onset_s) if recipe.onset_s is not None else SECONDS
        self.work_HM, self.talk_HM, self.save_HM = (np.ones((self.H, self.M)) for _ in range(3))  # speeds
        self.silent_TM = np.zeros((SECONDS, self.M), bool)
        self.clock_M = rng.normal(0.0, 0.1, self.M)
        self.factor: dict[int, np.ndarray] = {}
        self.frozen: list[tuple[int, int, int]] = []  # metric, machine, from when a gauge stands still
        self.forced: list[tuple[float, str]] = []  # when, and what interrupts the job
        self.as_HM = np.full((self.H, self.M), -1)  # an activity that a fault forces on a machine
        self.write_M = rng.uniform(6, 30) * rng.uniform(0.8, 1.2, self.M)
        self.every_s = float(rng.uniform(150, 500))
        self.sleeps = bool(rng.random() < 0.3)  # a barrier after a checkpoint in which ranks sleep instead of spinning
        self.watchdog_s = float(rng.choice([180.0, 300.0, 600.0, 1800.0]))

    def bystander(self) -> int:
        chosen = int(self.rng.integers(self.M - (self.culprit >= 0)))
        return chosen + (0 <= self.culprit <= chosen)

    def shown(self, metric: int) -> np.ndarray:
        """Factors (T, M) of what a metric shows."""
        return self.factor.setdefault(metric, np.ones((SECONDS, self.M)))

    def _long_writer(self) -> None:
        """The rank that writes for all."""
        self.write_M[self.bystander()] += self.rng.uniform(5, 50)

    def _evaluation(self) -> None:
        self.forced.append((float(self.rng.uniform(250, 1200)), "evaluation"))

    def _restart(self) -> None:
        self.forced.append((float(self.rng.uniform(250, min(1200, max(260, self.onset - 150)))), "restart"))

    def _outage_reload(self) -> None:
        """The storage is away for a minute: all load from it again, some longer."""
        self.forced.append((float(self.rng.uniform(250, min(1200, max(260, self.onset - 150)))), "reload"))

    def _wander(self) -> None:
        knots = self.rng.normal(0, 0.08, (SECONDS // 100 + 2, self.M))
        at_H = np.arange(self.H) / 2
        self.work_HM /= 1.0 + np.stack([np.interp(at_H, np.arange(len(knots)) * 100, knot) for knot in knots.T], axis=1).clip(-0.2, 0.2)

    def _hiccups(self) -> None:
        """A machine pauses for seconds (garbage, a page fault storm); all wait for it."""
        for _ in range(int(self.rng.integers(2, 7))):
            a, m = int(self.rng.uniform(60, 2900)), self.bystander()
            b = a + int(self.rng.uniform(2, 16))
            self.work_HM[a:b, m], self.as_HM[a:b, m] = 0.0, HUNG

    def _new_level(self) -> None:
        a, m = int(self.rng.uniform(150, 1200)), self.bystander()
        k, size, over_s = [(5, 0.2, 100), (0, 0.8, 4), (1, 0.4, 700), (2, 0.3, 10), (10, 0.06, 20)][int(self.rng.integers(5))]
        self.shown(k)[:, m] *= 1.0 + size * float(self.rng.uniform(0.4, 1.3)) * np.clip((np.arange(SECONDS) - a) / over_s, 0, 1)

    def _stuck(self) -> None:
        self.frozen.append((int(self.rng.integers(len(METRICS))), self.bystander(), int(self.rng.uniform(50, 1300))))

    def _clock_off(self) -> None:
        self.clock_M[self.bystander()] += float(self.rng.choice([-1, 1]) * self.rng.uniform(3, 12))

    def _flap(self) -> None:
        a, m = int(self.rng.uniform(300, 2600)), self.bystander()
        b = a + int(self.rng.uniform(6, 28))
        self.talk_HM[a:b, m] = 0.0
        self.shown(16)[a // 2 : b // 2, m] *= 8.0

    def _exporter_dead(self) -> None:
        self.silent_TM[int(self.rng.uniform(200, 1300)) :, self.bystander()] = True

    def _blackout(self) -> None:
        a = int(self.rng.uniform(200, 1200))
        self.silent_TM[a : a + int(self.rng.uniform(40, 240))] = True

    def _bursts(self) -> None:
        for _ in range(int(self.rng.integers(3, 9))):
            a, m, k = int(self.rng.uniform(30, 1500)), self.bystander(), int(self.rng.integers(len(METRICS)))
            self.shown(k)[a : a + int(self.rng.uniform(2, 20)), m] *= float(self.rng.choice([0.5, 0.75, 1.3, 1.8]))

    def _congestion(self) -> None:
        a = int(self.rng.uniform(400, 2400))
        b = a + int(self.rng.uniform(60, 400))
        self.talk_HM[a:b] *= self.rng.uniform(0.3, 0.7)
        for k in (16, 17, 18):
            self.shown(k)[a // 2 : b // 2] *= self.rng.uniform(3, 12) * np.exp(self.rng.normal(0, 0.35, self.M))

    def fail(self, kind: str) -> None:
        """What the fault does to the culprit alone; what it does to the others follows from their waiting."""
        rng, m, t, h = self.rng, self.culprit, self.onset, 2 * self.onset
        if kind in STALLS:
            self.work_HM[h:, m] = self.talk_HM[h:, m] = self.save_HM[h:, m] = 0.0
            forced = {"process_dies": GONE, "gpu_lost": GONE, "host_hangs": HUNG, "storage_hangs": LOAD, "unreachable": GONE}
            if kind in forced:
                self.as_HM[h:, m] = forced[kind]
            if kind == "host_hangs":
                self.shown(0)[t:, m] *= float(rng.choice([0.3, 6.0]))
            if kind == "storage_hangs":
                self.shown(15)[t:, m] *= 0.05
            if kind == "nic_down":  # it works on to its next all-reduce, and waits there like everybody else
                self.work_HM[h:, m] = self.save_HM[h:, m] = 1.0
                self.shown(14)[t:, m] *= 0.02
                self.shown(15)[t:, m] *= 0.3
                self.shown(16)[t:, m] *= 0.1
            if kind == "gpu_lost":
                self.shown(4)[t:, m] *= 0.875
            if kind == "unreachable":
                self.silent_TM[t + 1 :, m] = True
            return
        left = 1.0 - (0.5 if self.recipe.weak else 1.0) * rng.uniform(0.2, 0.5)
        ramp_T = np.clip((np.arange(SECONDS) - t) / (60.0 if kind == "hot" else 3.0), 0, 1)
        speed_HM = self.talk_HM if kind == "dirty_optic" else self.work_HM
        speed_HM[h:, m] *= 1.0 - {"pcie_narrow": 0.4, "nvlink_lane": 0.6}.get(kind, 0.9) * (1.0 - left) * np.repeat(ramp_T, 2)[h:]
        surge = 1.0 / left**3
        for k, factor in {
            "clock_cap": {9: left, 4: 0.4 + 0.6 * left},
            "hot": {5: 1.0 + 0.7 * (1.0 - left), 9: left, 4: 0.6 + 0.4 * left},
            "pcie_narrow": {13: left, 16: surge**2},
            "nvlink_lane": {12: left, 7: 0.3 + 0.7 * left},
            "dirty_optic": {14: 0.4 + 0.6 * left, 17: surge, 18: surge},
        }[kind].items():
            self.shown(k)[:, m] *= 1.0 + (factor - 1.0) * ramp_T

    def run_without(self, kind: str) -> np.ndarray:
        """`run` as it would be without the fault; the random numbers after it are those of the faulty run, so that noise is the same."""
        healthy = self.work_HM.copy(), self.talk_HM.copy(), self.save_HM.copy(), self.silent_TM.copy(), self.as_HM.copy()
        factor = {k: factor_TM.copy() for k, factor_TM in self.factor.items()}
        self.fail(kind)
        before = self.rng.bit_generator.state
        self.run()
        after = self.rng.bit_generator.state
        self.work_HM, self.talk_HM, self.save_HM, self.silent_TM, self.as_HM = healthy
        self.factor = factor
        self.rng.bit_generator.state = before
        did_HM = self.run()
        self.rng.bit_generator.state = after
        return did_HM

    def run(self) -> np.ndarray:
        """What each machine did in each half second (H, M)."""
        did_HM = np.empty((self.H, self.M), int)
        job = self._phases()
        steps, done_M, waits = next(job), np.zeros(self.M), SPIN
        interrupts = sorted(item for item in self.forced if item[1] != "evaluation")
        stood, gone_first_M = 0, self.rng.permutation(self.M)
        for h in range(self.H):
            self.now_s = h / 2
            if interrupts and interrupts[0][0] <= self.now_s < self.onset:
                steps, done_M, waits = self._interruption(interrupts.pop(0)[1]), np.zeros(self.M), SPIN
            ends_M = np.cumsum([need_M for _, need_M in steps], axis=0)
            at_M = (done_M[None, :] >= ends_M).sum(0)
            codes = np.array([code for code, _ in steps] + [waits])
            did_HM[h] = codes[at_M]
            slowest = self.talk_HM[h].min()
            speed_M = np.select([did_HM[h] == TALK, did_HM[h] == WORK], [slowest, self.work_HM[h]], self.save_HM[h])
            done_M = done_M + 0.5 * speed_M
            stood = 0 if ((speed_M > 0) & (at_M < len(steps))).any() else stood + 1
            if stood > 2 * self.watchdog_s:  # one process after the other is ended
                did_HM[h, gone_first_M[: 1 + int(stood / 2 - self.watchdog_s)]] = GONE
            if (done_M >= ends_M[-1]).all():
                steps, done_M = next(job), np.zeros(self.M)
                waits = REST if self.sleeps and steps[0][0] == SAVE else SPIN
        return np.where(self.as_HM >= 0, self.as_HM, did_HM)

    def _phases(self) -> Iterator[list[tuple[int, np.ndarray]]]:
        """Phase after phase: each a list of (activity, seconds that each machine needs), one after the other."""
        rng = self.rng
        compute_s, talk_s = float(rng.uniform(4.0, 22.0)), float(rng.uniform(1.0, 5.0))
        uneven_M = (1.0 - 0.15 * rng.random(self.recipe.pipeline)[self.stage_M]) * rng.normal(1.0, 0.01, self.M)
        saved_s, evaluations = 0.0, sorted(at for at, name in self.forced if name == "evaluation")
        self.now_s = 0.0
        while True:
            if self.now_s - saved_s > self.every_s:
                saved_s = self.now_s
                yield [(SAVE, self.write_M * rng.uniform(0.9, 1.1, self.M))]
            elif evaluations and self.now_s > evaluations[0]:
                evaluations.pop(0)
                yield self._evaluate()
            else:
                yield [(WORK, compute_s * uneven_M * rng.normal(1.0, 0.02, self.M))]
                yield [(TALK, np.full(self.M, talk_s))]

    def _evaluate(self) -> list[tuple[int, np.ndarray]]:
        """One stage works on, the others wait for its loss."""
        busy_M = self.stage_M == self.recipe.pipeline - 1
        return [(WORK, np.where(busy_M, self.rng.uniform(40, 180), 0.0))]

    def _interruption(self, name: str) -> list[tuple[int, np.ndarray]]:
        rng = self.rng
        if name == "reload":
            load_M = rng.uniform(25, 60) * rng.uniform(0.9, 1.1, self.M)
            load_M[self.bystander()] += rng.uniform(5, 60)
            return [(LOAD, load_M)]
        boot_M = rng.uniform(20, 50) + rng.permutation(self.M) * rng.uniform(0.3, 3.0)
        return [(GONE, boot_M), (LOAD, rng.uniform(8, 25) * rng.uniform(0.8, 1.2, self.M))]

    def metrics(self, did_HM: np.ndarray) -> np.ndarray:
        """Values (T, M, K of METRICS)."""
        rng = self.rng
        share_TMA = (did_HM[:, :, None] == np.arange(8)).reshape(SECONDS, 2, self.M, 8).mean(1)
        pace_T = self.talk_HM.min(1).reshape(SECONDS, 2).mean(1)[:, None]  # all talk as fast as the slowest, and wait the rest of the time
        share_TMA[:, :, SPIN] += (1.0 - pace_T) * share_TMA[:, :, TALK]
        share_TMA[:, :, TALK] *= pace_T
        top = {0: 0.9, 3: 1.0, 4: 700.0, 6: 1.0, 7: 0.9, 8: 1.0, 10: 1.0, 11: 0.9, 12: 3e11, 13: 3e10, 14: 2e11, 15: 1e9}
        values_TMK = np.ones((SECONDS, self.M, len(METRICS)))
        for k, levels in SHOWS.items():
            values_TMK[:, :, k] = top.get(k, 200.0) * rng.uniform(0.75, 1.0) * (share_TMA @ np.array(levels))
        values_TMK[:, :, 4] = _lagged(values_TMK[:, :, 4] * self.shown(4), 1.5)
        values_TMK[:, :, 5] = rng.uniform(24, 32) + rng.normal(0, 2.5, self.M) + _lagged(values_TMK[:, :, 4], 45.0) / rng.uniform(14, 20)
        values_TMK[:, :, 9] = np.where(values_TMK[:, :, 4] < 200.0, 1.98e9, 1.98e9 - 6e5 * values_TMK[:, :, 4] * rng.uniform(0.6, 1.0))
        values_TMK[:, :, 1] = rng.uniform(0.3, 0.6) * (1.0 + 0.02 * share_TMA[:, :, SAVE])
        values_TMK[:, :, 2] = rng.uniform(0.2, 0.6) + np.cumsum(share_TMA[:, :, SAVE], axis=0) * 1e-5
        values_TMK *= 1.0 + rng.normal(0, 0.01, (self.M, len(METRICS)))
        for k in range(len(METRICS)):
            values_TMK[:, :, k] *= (self.factor.get(k, 1.0) if k != 4 else 1.0) * self._noise(k)
        return self._as_exported(np.maximum(values_TMK, 0.0))

    def _noise(self, k: int) -> np.ndarray:
        rng, shape = self.rng, (SECONDS, self.M)
        if k in (16, 17, 18):
            return rng.poisson(3.0, shape) * np.exp(rng.normal(0, 0.5, shape)) / 3.4
        if k == 0:
            return np.asarray(np.exp(_lagged(rng.normal(0, 0.3, shape), 5.0)))
        return 1.0 + {1: 0.002, 2: 0.0, 5: 0.004, 9: 0.004, 10: 0.001, 14: 0.06, 15: 0.3}.get(k, 0.02) * rng.normal(0, 1, shape)

    def _as_exported(self, values_TMK: np.ndarray) -> np.ndarray:
        ratios = [k for k, name in enumerate(METRICS) if name.endswith("_ratio")]
        values_TMK[:, :, ratios] = np.clip(values_TMK[:, :, ratios], 0.0, 1.0)
        values_TMK[:, :, 3] = np.round(values_TMK[:, :, 3], 2)
        values_TMK[:, :, 5] = np.round(values_TMK[:, :, 5])
        values_TMK[:, :, 9] = np.round(values_TMK[:, :, 9] / 1.5e7) * 1.5e7
        return values_TMK

    def scrape(self, values_TMK: np.ndarray) -> Labelled:
        """Rates as means since the last scrape, gauges of the second; each machine at its own offset and by its own clock."""
        rng, recipe, step = self.rng, self.recipe, self.recipe.interval_s
        rate_K = np.array(["_per_second" in name for name in METRICS])
        sums_TMK = np.concatenate([np.zeros((1, self.M, len(METRICS))), np.cumsum(values_TMK, axis=0)])
        kept_K = [METRICS.index(name) for name in recipe.metrics]
        times, machines, values = [], [], []
        for m in range(self.M):
            true_N = np.arange(step * (1.0 + rng.random()), SECONDS - 1, step)
            at_N = true_N.astype(int)
            back_N = np.maximum(at_N - max(round(step), 1), 0)
            mean_NK = (sums_TMK[at_N, m] - sums_TMK[back_N, m]) / (at_N - back_N)[:, None]
            read_NK = np.where(rate_K, mean_NK, values_TMK[at_N, m])
            for k, who, since in self.frozen:
                if who == m:
                    read_NK[at_N >= since, k] = read_NK[np.searchsorted(at_N, since), k]
            heard_N = ~self.silent_TM[at_N, m] & (rng.random(len(at_N)) > 0.005)
            times.append(true_N[heard_N] + self.clock_M[m])
            machines.append(np.full(int(heard_N.sum()), m))
            values.append(read_NK[heard_N][:, kept_K])
        return self._columns(np.concatenate(times), np.concatenate(machines), np.concatenate(values))

    def _columns(self, times_N: np.ndarray, machine_N: np.ndarray, values_NK: np.ndarray) -> Labelled:
        recipe = self.recipe
        values_NK[self.rng.random(values_NK.shape) < 0.004] = np.nan
        if recipe.split_rows:  # two exporters, each with its own metrics and its own moment
            one_K = np.arange(values_NK.shape[1]) % 2 == 0
            values_NK = np.concatenate([np.where(one_K, values_NK, np.nan), np.where(one_K, np.nan, values_NK)])
            times_N, machine_N = np.concatenate([times_N, times_N + 0.4 * recipe.interval_s]), np.tile(machine_N, 2)
        names = tuple(f"rank{m:03d}" for m in range(self.M))
        stages = {name: int(stage) for name, stage in zip(names, self.stage_M, strict=True)}
        who, onset_s = (names[self.culprit], START_S + self.onset) if recipe.fault else (None, None)
        order_N = np.argsort(times_N, kind="stable")
        return Labelled(
            START_S + times_N[order_N], machine_N[order_N], np.full(len(times_N), -1), values_NK[order_N], names, (), recipe.metrics,
            stages, recipe.interval_s, who, onset_s, recipe.fault,
        )  # fmt: skip


def _lagged(values_TM: np.ndarray, seconds: float) -> np.ndarray:
    """First-order lag."""
    out_TM = np.empty_like(values_TM)
    state_M = values_TM[0]
    for t, row_M in enumerate(values_TM):
        state_M = state_M + (row_M - state_M) / seconds
        out_TM[t] = state_M
    return out_TM
