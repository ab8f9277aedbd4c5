"""Jobs as schedules of work, talk, waiting and storage traffic, written from the requirements alone.

It shares no model with other families or `minder simulate`. Work, talk, waiting and storage traffic of each machine follow a schedule of
iterations second by second, and every metric is a physical function of these four (watts with inertia, degrees with more, clocks in steps
of 15 MHz, percent as whole numbers, packet counters with many zeros), read by scrapes at each machine's own offset and by its own clock.
Legend: T seconds of true time, M machines, K metrics, N samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minder.simulate.worlds.world import NO_FAULT, Truth, World

NAME = "foreign"

STALLS = ("xid", "host_lock", "cuda_abort", "storage", "nic_down", "gpu_lost", "unreachable")
SLOWS = ("clock_cap", "hot", "pcie_narrow", "nvlink_lane", "dirty_optic")
KINDS = (*STALLS, *SLOWS)
FAULTS = {
    "xid": "a GPU error stops the process",
    "host_lock": "a host locks up",
    "cuda_abort": "a process aborts and its GPU memory goes",
    "storage": "a machine waits for its storage",
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
    "congest": "the network is slow for all, for minutes",
    "evaluate": "all but one stage rest",
    "restart": "all end together and come back one by one",
    "blackout": "the monitoring hears no machine",
}
NUISANCES = {
    "save": "checkpoints, each machine done when its own part is written",
    "evaluate": "all but one stage rest",
    "restart": "all end together and come back one by one",
    "congest": "the network is slow for all, for minutes",
    "lean": "work leans to some machines for minutes",
    "creep": "levels drift over the recording",
    "new_level": "a healthy change of one machine that lasts",
    "stuck": "a gauge stands still",
    "clock_off": "a clock is seconds off",
    "clock_of_culprit": "the culprit's clock is seconds off",
    "flap": "a link is down for seconds, again and again",
    "exporter_dead": "an exporter is silent to the end",
    "blackout": "the monitoring hears no machine",
    "burst": "seconds of odd readings",
    "reread": "one machine reads its next shard",
}
MISHAPS = (
    "save", "evaluate", "restart", "congest", "lean", "creep", "new_level", "stuck", "clock_off", "flap", "exporter_dead", "blackout",
    "burst", "reread",
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
    "xid": (3, 4, 6, 7, 11), "host_lock": (0, 4, 6, 12, 14), "cuda_abort": (3, 4, 8, 9, 10), "storage": (0, 4, 6, 14, 15),
    "nic_down": (14, 15, 16), "gpu_lost": (3, 4, 6, 12), "unreachable": (3, 4, 14), "clock_cap": (9, 4), "hot": (5, 9),
    "pcie_narrow": (13, 16), "nvlink_lane": (12,), "dirty_optic": (14, 17, 18),
}  # fmt: skip
START_S = 1_780_000_000.0


@dataclass(frozen=True)
class Recipe:
    """One recording; `nuisances` are what its healthy machines do."""

    seed: int
    fault: str | None
    machines: int
    pipeline: int
    interval_s: float
    duration_s: int
    onset_s: float | None
    weak: bool
    nuisances: tuple[str, ...]
    metrics: tuple[str, ...]
    split_rows: bool
    without_fault: bool = False  # the same world, number for number, without what the fault does


@dataclass
class Columns:
    """Samples as `windows.align_columns` takes them, with the truth."""

    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray
    machines: tuple[str, ...]
    metrics: tuple[str, ...]
    stages: dict[str, int]
    interval_s: float
    culprit: str | None
    onset_s: float | None
    fault: str | None
    devices: tuple[str, ...] = ()


def foreign(seed: int, fault: str | None = None, nuisances: Sequence[str] = MISHAPS) -> Recipe:
    """Two of three seeds have a fault of their own choice, unless one is given."""
    rng = np.random.default_rng([seed, 77])
    if fault is None and seed % 3:
        fault = str(rng.choice(KINDS))
    pipeline = int(rng.choice([1, 2, 3, 4]))
    machines = max(4, pipeline * int(rng.integers(2, 13)))
    machines += -machines % pipeline
    interval_s = float(rng.choice([1.0, 5.0, 7.0, 10.0, 12.0, 15.0], p=[0.1, 0.2, 0.15, 0.2, 0.15, 0.2]))
    kept = set(rng.choice(len(METRICS), size=int(rng.integers(3, 11)), replace=False).tolist())
    if fault is not None:
        kept |= set(rng.choice(SEEN_IN[fault], size=min(2, len(SEEN_IN[fault])), replace=False).tolist())
    count = int(rng.integers(2, 6))
    chosen = ("save", *sorted(set(rng.choice(list(nuisances), size=min(count, len(nuisances)), replace=False).tolist()) - {"save"}))
    early = rng.random() < 0.2
    onset_s = float(rng.uniform(120, 200) if early else rng.uniform(350, 1000)) if fault else None
    names = tuple(METRICS[k] for k in sorted(kept))
    return Recipe(
        seed, fault, machines, pipeline, interval_s, 1560, onset_s, bool(rng.random() < 0.25), chosen, names, bool(rng.random() < 0.25)
    )


def skewed(seed: int) -> Recipe:
    """A site that exports little more than its network, where a clock is seconds off; one of three seeds has a fault, of that machine."""
    rng = np.random.default_rng([seed, 79])
    fault = str(rng.choice(KINDS)) if seed % 3 == 0 else None
    base = foreign(seed, fault or "xid", ("save", "evaluate", "restart", "congest", "flap"))
    network = {int(k) for k in rng.choice([12, 13, 14, 15, 16], size=int(rng.integers(2, 4)), replace=False)}
    seen = set(SEEN_IN[fault][:2]) if fault else set()
    names = tuple(METRICS[k] for k in sorted(network | seen))
    nuisances = (*base.nuisances, "clock_of_culprit" if fault else "clock_off")
    interval_s = float(rng.choice([1.0, 2.0, 5.0, 10.0]))
    onset_s = float(rng.uniform(400, 1000)) if fault else None
    return replace(base, fault=fault, onset_s=onset_s, nuisances=nuisances, metrics=names, interval_s=interval_s, weak=False)


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (see world.py): one of five seeds is of a site with little but its network and a clock that is off."""
    rng = np.random.default_rng([seed, 80])
    if seed % 5 == 4 and fault in (None, NO_FAULT):
        recipe = skewed(seed)
    else:
        kind = str(rng.choice(KINDS)) if fault in (None, NO_FAULT) else fault
        recipe = foreign(seed, kind if seed % 3 or fault not in (None, NO_FAULT) else None)
    if machines is not None:
        recipe = replace(recipe, machines=max(1, machines // recipe.pipeline) * recipe.pipeline)
    if duration_s is not None:
        onset_s = None if recipe.onset_s is None else min(recipe.onset_s, 0.6 * duration_s)
        recipe = replace(recipe, duration_s=int(duration_s), onset_s=onset_s)
    columns = generate(replace(recipe, without_fault=fault == NO_FAULT))
    cause = next((name for name in recipe.nuisances if name in CAUSES), None)
    truth = Truth(cause=cause, nuisances=recipe.nuisances)
    if columns.culprit is not None and fault != NO_FAULT:
        truth = Truth((columns.culprit,), (), columns.fault, columns.onset_s, None, recipe.weak, cause, recipe.nuisances)
    return World(
        NAME, seed, columns.machines, columns.metrics, columns.interval_s, 0.0, columns.times_N, columns.machine_N, columns.device_N,
        columns.values_NK, truth, stages=columns.stages,
    )  # fmt: skip


def generate(recipe: Recipe) -> Columns:
    """The recording of a recipe; the same seed gives the same bytes."""
    site = _Site(recipe)
    site.schedule()
    for name in recipe.nuisances:
        getattr(site, f"_{name}")()
    if recipe.fault:
        healthy = site.levels()
        site.fail(recipe.fault)
        if recipe.without_fault:
            site.work_TM, site.talk_TM, site.wait_TM, site.disk_TM, site.quiet_TM, site.scale = healthy
    return site.scrape(site.metrics())


class _Site:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.rng = np.random.default_rng([recipe.seed, 78])
        self.T, self.M = recipe.duration_s, recipe.machines
        self.stage_M = np.arange(self.M) // (self.M // recipe.pipeline)
        self.culprit = int(self.rng.integers(self.M)) if recipe.fault else -1
        self.onset = int(recipe.onset_s) if recipe.onset_s is not None else self.T
        self.quiet_TM = np.zeros((self.T, self.M), bool)
        self.clock_M = self.rng.normal(0.0, 0.05, self.M)
        self.scale: dict[int, np.ndarray] = {}
        self.fixed: list[tuple[int, int, int]] = []  # metric, machine, from when a gauge stands still

    def levels(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[int, np.ndarray]]:
        """A copy of all that a fault changes."""
        scale = {k: factor_TM.copy() for k, factor_TM in self.scale.items()}
        return self.work_TM.copy(), self.talk_TM.copy(), self.wait_TM.copy(), self.disk_TM.copy(), self.quiet_TM.copy(), scale

    def bystander(self) -> int:
        """A machine that is not the culprit."""
        chosen = int(self.rng.integers(self.M - (self.culprit >= 0)))
        return chosen + (0 <= self.culprit <= chosen)

    def times(self, metric: int) -> np.ndarray:
        return self.scale.setdefault(metric, np.ones((self.T, self.M)))

    def schedule(self) -> None:
        """Forward and backward in triangular bursts, stages one after another, all waiting for all once an iteration."""
        rng = self.rng
        period_s = float(rng.uniform(2.5, 35.0))
        talk = float(rng.uniform(0.08, 0.3))
        at_TM = (np.arange(self.T)[:, None] + 0.25 * period_s * self.stage_M[None, :] / self.recipe.pipeline) / period_s
        phase_TM = at_TM % 1.0
        burst_TM = 1.0 - 0.35 * np.abs(((phase_TM * rng.integers(2, 6)) % 1.0) - 0.5)
        self.work_TM = np.where(phase_TM < 1.0 - talk, burst_TM, 0.25)
        self.talk_TM = np.where(phase_TM < 1.0 - talk, 0.12 + 0.1 * burst_TM, 1.0)
        if period_s < 8.0:  # a scrape sees the mean of several iterations
            self.work_TM = 0.5 * (self.work_TM + self.work_TM.mean(0))
            self.talk_TM = 0.5 * (self.talk_TM + self.talk_TM.mean(0))
        self.work_TM *= 1.0 - 0.12 * rng.random(self.recipe.pipeline)[self.stage_M]
        self.wait_TM = np.clip(0.9 - self.work_TM, 0.0, 1.0) * 0.5
        self.disk_TM = np.zeros((self.T, self.M))

    def _pause(self, a: int, b: int, who: np.ndarray | slice = slice(None), wait: float = 0.05) -> None:
        self.work_TM[a:b, who], self.talk_TM[a:b, who], self.wait_TM[a:b, who] = 0.03, 0.03, wait

    def _save(self) -> None:
        at = int(self.rng.uniform(60, 300))
        every, long = self.rng.uniform(180, 520), self.rng.uniform(6, 28)
        while at < self.T:
            for m in range(self.M):  # each is done when its own part is written
                end = at + int(long * self.rng.uniform(0.85, 1.15))
                self._pause(at, end, np.array([m]))
                self.disk_TM[at:end, m] = 1.0
            at += int(every)

    def _evaluate(self) -> None:
        a = int(self.rng.uniform(250, 1100))
        b = a + int(self.rng.uniform(50, 200))
        idle = np.flatnonzero(self.stage_M != self.rng.integers(self.recipe.pipeline))
        self._pause(a, b, idle if len(idle) else slice(None), wait=float(self.rng.choice([0.05, 0.95])))

    def _restart(self) -> None:
        a = int(self.rng.uniform(250, 1000))
        up_M = a + self.rng.uniform(25, 60) + self.rng.permutation(self.M) * self.rng.uniform(0.5, 3.0)
        go = int(up_M.max() + 5)
        for m in range(self.M):
            self._pause(a, int(up_M[m]), np.array([m]))
            self._pause(int(up_M[m]), go, np.array([m]), wait=0.9)

    def _congest(self) -> None:
        a = int(self.rng.uniform(200, 1200))
        b = a + int(self.rng.uniform(30, 240))
        self.talk_TM[a:b] *= 0.75
        for k in (16, 17, 18):
            self.times(k)[a:b] *= self.rng.uniform(3, 15) * np.exp(self.rng.normal(0, 0.4, self.M))

    def _lean(self) -> None:
        """Work leans to some machines for minutes, then to others."""
        knots = self.rng.normal(0, 0.05, (self.T // 90 + 2, self.M))
        self.work_TM *= 1.0 + np.stack([np.interp(np.arange(self.T), np.arange(len(knots)) * 90, knot) for knot in knots.T], axis=1)

    def _creep(self) -> None:
        for k in (5, 0, 1, 4):
            self.times(k)[:] *= 1.0 + np.linspace(0, 1, self.T)[:, None] * self.rng.uniform(-0.06, 0.06, self.M)

    def _new_level(self) -> None:
        """A healthy change that lasts: a warmer slot, a sidecar, a cache that grows, a full disk's clean-up."""
        a, m = int(self.rng.uniform(200, 1200)), self.bystander()
        k, size, over = [(5, 0.15, 90), (0, 0.7, 5), (1, 0.3, 600), (2, -0.4, 20)][int(self.rng.integers(4))]
        ramp_T = np.clip((np.arange(self.T) - a) / over, 0, 1)
        self.times(k)[:, m] *= 1.0 + size * float(self.rng.uniform(0.5, 1.4)) * ramp_T

    def _stuck(self) -> None:
        self.fixed.append((int(self.rng.integers(len(METRICS))), self.bystander(), int(self.rng.uniform(50, 1300))))

    def _clock_off(self) -> None:
        self.clock_M[self.bystander()] += float(self.rng.choice([-1, 1]) * self.rng.uniform(4, 14))

    def _clock_of_culprit(self) -> None:
        self.clock_M[self.culprit] += float(self.rng.choice([-1, 1]) * self.rng.uniform(5, 13))

    def _flap(self) -> None:
        """A link is down for seconds, sometimes again and again; all wait, then all go on."""
        m, a = self.bystander(), int(self.rng.uniform(200, 1200))
        for _ in range(int(self.rng.integers(1, 4))):
            b = a + int(self.rng.uniform(3, 14))
            self._pause(a, b, wait=0.9)
            self.talk_TM[a:b, m] = 0.0
            self.times(16)[a:b, m] *= 6.0
            a = b + int(self.rng.uniform(20, 120))

    def _exporter_dead(self) -> None:
        self.quiet_TM[int(self.rng.uniform(200, 1300)) :, self.bystander()] = True

    def _blackout(self) -> None:
        a = int(self.rng.uniform(200, 1200))
        self.quiet_TM[a : a + int(self.rng.uniform(40, 300))] = True

    def _burst(self) -> None:
        """Seconds of odd readings on machines that are well."""
        for _ in range(int(self.rng.integers(3, 9))):
            a, m, k = int(self.rng.uniform(30, 1500)), self.bystander(), int(self.rng.integers(len(METRICS)))
            self.times(k)[a : a + int(self.rng.uniform(2, 25)), m] *= float(self.rng.choice([0.4, 0.7, 1.4, 2.0]))

    def _reread(self) -> None:
        """One machine reads its next shard: processor, storage and memory, for a minute or two."""
        a, m = int(self.rng.uniform(200, 1300)), self.bystander()
        b = a + int(self.rng.uniform(20, 120))
        self.disk_TM[a:b, m] = 0.7
        self.times(0)[a:b, m] *= 1.5

    def fail(self, kind: str) -> None:
        rng, a, m = self.rng, self.onset, self.culprit
        mild = 0.55 if self.recipe.weak else 1.0
        if kind in STALLS:
            self._stall(kind, a, m)
            return
        drop = 1.0 - mild * rng.uniform(0.2, 0.5)
        slower = 1.0 - mild * rng.uniform(0.08, 0.35)  # everybody waits for the slow one
        late = a + int(rng.uniform(0, 40))
        others = np.arange(self.M) != m
        self.work_TM[late:, others] *= slower
        self.talk_TM[late:] *= slower
        self.wait_TM[late:, others] = np.clip(self.wait_TM[late:, others] + 1.0 - slower, 0, 1)
        for k, factor in {
            "clock_cap": {9: drop, 4: 0.5 + 0.5 * drop},
            "hot": {5: 1.0 + mild * rng.uniform(0.15, 0.35), 9: 0.4 + 0.6 * drop},
            "pcie_narrow": {13: drop, 16: 1.0 + mild * rng.uniform(4, 40)},
            "nvlink_lane": {12: drop, 7: 0.5 + 0.5 * drop},
            "dirty_optic": {14: drop, 17: 1.0 + mild * rng.uniform(2, 8), 18: 1.0 + mild * rng.uniform(1, 6)},
        }[kind].items():
            over = 60.0 if kind == "hot" else 4.0
            self.times(k)[:, m] *= 1.0 + (factor - 1.0) * np.clip((np.arange(self.T) - a) / over, 0, 1)

    def _stall(self, kind: str, a: int, m: int) -> None:
        """The culprit stops at once, the others when they need it; they spin or sleep."""
        rng, mild = self.rng, self.recipe.weak
        lag = int(rng.uniform(2, 45))
        self._pause(a + lag, self.T, np.flatnonzero(np.arange(self.M) != m), wait=float(rng.choice([0.95, 0.95, 0.3])))
        residue = 0.35 if mild else float(rng.uniform(0.0, 0.1))
        self.work_TM[a:, m] *= residue
        self.talk_TM[a:, m] *= residue
        self.work_TM[a + lag :, m] = np.minimum(self.work_TM[a + lag :, m], 0.05)
        self.talk_TM[a + lag :, m] = np.minimum(self.talk_TM[a + lag :, m], 0.02)
        self.wait_TM[a:, m] = 0.95 if kind == "nic_down" else residue
        self.disk_TM[a:] = 0.0
        if kind in ("host_lock", "storage"):
            self.times(0)[a:, m] *= float(rng.choice([0.3, 2.2]))
        if kind == "cuda_abort":
            self.times(10)[a + 3 :, m] *= float(rng.uniform(0.02, 0.4))
        if kind == "nic_down":
            self.times(14)[a:, m] *= 0.02
            self.times(15)[a:, m] *= 0.3
        if kind == "gpu_lost":
            for k in (3, 4, 6, 7, 8, 12):
                self.times(k)[a:, m] *= 0.8
        if kind == "unreachable":
            self.quiet_TM[a + 1 :, m] = True

    def metrics(self) -> np.ndarray:
        """Values (T, M, K of METRICS)."""
        rng, work, talk, wait, disk = self.rng, self.work_TM, self.talk_TM, self.wait_TM, self.disk_TM
        spin = np.clip(work + talk * 0.5 + wait, 0, 1)
        idle_w, full_w = rng.uniform(70, 130), rng.uniform(380, 690)
        watts = _inert(idle_w + (full_w - idle_w) * np.clip(0.9 * work + 0.25 * wait + 0.1 * talk, 0, 1), 2.0)
        degrees = rng.uniform(22, 30) + rng.normal(0, 3, self.M) + (watts / full_w) * rng.uniform(25, 40)
        clean = [
            rng.uniform(0.1, 0.2) + 0.12 * work + 0.08 * talk + 0.15 * disk,
            rng.uniform(0.3, 0.7) + 0.03 * disk,
            rng.uniform(0.2, 0.6) + 0 * work,
            spin, watts, _inert(degrees, 40.0), 0.75 * work + 0.25 * wait, 0.5 * work, np.clip(1.05 * spin, 0, 1),
            1.98e9 - 3.5e8 * np.clip(watts / full_w - 0.55, 0, 1), rng.uniform(0.5, 0.9) + 0 * work, 0.45 * work + 0.05,
            rng.uniform(1e11, 3e11) * (0.6 * work + 0.4 * talk), 2.4e10 * (0.3 * work + 0.5 * talk + 0.3 * disk),
            rng.uniform(5e10, 2e11) * talk, 4e7 + 9e8 * disk, 40.0 * talk, 260.0 * talk, 190.0 * talk,
        ]  # fmt: skip
        values = np.stack(clean, axis=2) * (1.0 + rng.normal(0, 0.012, (self.M, len(METRICS))))
        for k in range(len(METRICS)):
            values[:, :, k] *= self.scale.get(k, 1.0)
            values[:, :, k] *= self._noise(k)
        return self._read(values)

    def _noise(self, k: int) -> np.ndarray:
        rng, shape = self.rng, (self.T, self.M)
        if k in (16, 17, 18):
            return rng.gamma(0.8, 1.25, shape) * (rng.random(shape) < 0.8)
        if k in (14, 15):
            return np.exp(rng.normal(0, 0.08 if k == 14 else 0.35, shape))
        if k in (1, 2, 10, 5):
            return 1.0 + 0.003 * rng.standard_t(5, shape)
        if k == 0:
            return 1.0 + _inert(0.25 * rng.standard_t(4, shape), 6.0)
        return 1.0 + 0.02 * rng.standard_t(4, shape)

    def _read(self, values: np.ndarray) -> np.ndarray:
        """As exporters round: whole percent, whole degrees, 15 MHz; ratios within 0..1, nothing negative."""
        values = np.maximum(values, 0.0)
        values[:, :, [0, 1, 2, 3, 6, 7, 8, 10, 11]] = np.clip(values[:, :, [0, 1, 2, 3, 6, 7, 8, 10, 11]], 0, 1)
        for k in (3, 6, 7, 8, 11):
            values[:, :, k] = np.round(values[:, :, k], 2)
        values[:, :, 5] = np.round(values[:, :, 5])
        values[:, :, 9] = np.round(values[:, :, 9] / 1.5e7) * 1.5e7
        return values

    def scrape(self, values_TMK: np.ndarray) -> Columns:
        """Counters as means since the last scrape, gauges as they stand; each machine by its own offset and clock."""
        rng, step = self.rng, self.recipe.interval_s
        k_K = np.array([METRICS.index(name) for name in self.recipe.metrics])
        sums = np.concatenate([np.zeros((1, self.M, len(METRICS))), np.cumsum(values_TMK, axis=0)])
        rows: list[tuple[np.ndarray, int, np.ndarray]] = []
        for m in range(self.M):
            true_N = np.arange(rng.uniform(0, step) + step, self.T - 1, step) + rng.normal(0, 0.02 * step)
            at_N = np.clip(true_N.astype(int), 0, self.T - 1)
            back_N = np.maximum(at_N - int(max(step, 1)), 0)
            mean_NK = (sums[at_N, m] - sums[back_N, m]) / np.maximum(at_N - back_N, 1)[:, None]
            read_NK = np.where(np.arange(len(METRICS)) >= 12, mean_NK, values_TMK[at_N, m])
            for k, who, since in self.fixed:
                after = np.flatnonzero(at_N >= since)
                if who == m and len(after):
                    read_NK[after, k] = read_NK[after[0], k]
            heard_N = ~self.quiet_TM[at_N, m] & (rng.random(len(at_N)) > 0.004)
            rows.append((true_N[heard_N] + self.clock_M[m], m, read_NK[heard_N][:, k_K]))
        return self._columns(rows)

    def _columns(self, rows: list[tuple[np.ndarray, int, np.ndarray]]) -> Columns:
        recipe = self.recipe
        names = tuple(f"host{m:03d}" for m in range(self.M))
        times_N = np.concatenate([times for times, _, _ in rows])
        machine_N = np.concatenate([np.full(len(times), m) for times, m, _ in rows])
        values_NK = np.concatenate([values for _, _, values in rows])
        values_NK[self.rng.random(values_NK.shape) < 0.003] = np.nan
        if recipe.split_rows:  # two exporters, each with its own metrics and its own moment
            first_K = np.arange(values_NK.shape[1]) % 2 == 0
            values_NK = np.concatenate([np.where(first_K, values_NK, np.nan), np.where(first_K, np.nan, values_NK)])
            times_N, machine_N = np.concatenate([times_N, times_N + 0.3 * recipe.interval_s]), np.concatenate([machine_N, machine_N])
        who = names[self.culprit] if recipe.fault else None
        onset_s = START_S + self.onset if recipe.fault else None
        stages = {name: int(stage) for name, stage in zip(names, self.stage_M, strict=True)}
        device_N = np.full(len(times_N), -1)
        return Columns(
            START_S + times_N, machine_N, device_N, values_NK, names, recipe.metrics, stages, recipe.interval_s, who, onset_s, recipe.fault
        )


def _inert(values_TM: np.ndarray, seconds: float) -> np.ndarray:
    """First-order lag."""
    out = np.empty_like(values_TM)
    state = values_TM[0]
    for t, row in enumerate(values_TM):
        state = state + (row - state) / seconds
        out[t] = state
    return out
