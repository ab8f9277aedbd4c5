"""Jobs as factors of metric levels: physically plausible, seeded, small. Also the generator of many tests.

A job trains in iterations over pipeline stages; checkpoints, evaluations and restarts move all machines; a fault changes the culprit's own
metrics and, through the collectives, everybody's. Nuisances are what healthy clusters do. Tuning uses some kinds, and holds others out.
Legend: T seconds of true time, M machines, K metrics, N samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minder.simulate.worlds.world import NO_FAULT, Truth, World

NAME = "classic"


@dataclass(frozen=True)
class Levels:
    """How a metric follows the job: factors of its base iterating (swing), checkpointing, spinning in a stalled collective, dark."""

    base: tuple[float, float]
    swing: float
    checkpoint: float
    spin: float
    dark: float
    noise: float
    group: str
    spread: float = 0.02  # standing differences between machines
    bound: float = np.inf


METRICS: dict[str, Levels] = {
    "cpu_usage_ratio": Levels((0.2, 0.4), 0.10, 1.1, 1.0, 0.12, 0.05, "cpu", 0.05, 1.0),
    "memory_usage_ratio": Levels((0.4, 0.6), 0.0, 1.0, 1.0, 1.0, 0.004, "memory", 0.06, 1.0),
    "disk_usage_ratio": Levels((0.25, 0.4), 0.0, 1.0, 1.0, 1.0, 0.0005, "disk", 0.15, 1.0),
    "gpu_duty_cycle_ratio": Levels((0.7, 0.99), 0.02, 0.3, 1.4, 0.12, 0.006, "duty", 0.005, 1.0),
    "gpu_power_draw_watts": Levels((450.0, 650.0), 0.12, 0.4, 0.42, 0.22, 0.02, "power", 0.02, 720.0),
    "gpu_temperature_celsius": Levels((50.0, 65.0), 0.0, 0.98, 0.95, 0.9, 0.008, "temperature", 0.06),
    "gpu_sm_activity_ratio": Levels((0.65, 0.8), 0.12, 0.14, 0.3, 0.08, 0.02, "compute", 0.01, 1.0),
    "gpu_tensor_activity_ratio": Levels((0.3, 0.5), 0.18, 0.13, 0.12, 0.04, 0.03, "compute", 0.015, 1.0),
    "gpu_graphics_activity_ratio": Levels((0.82, 0.95), 0.02, 0.3, 1.02, 0.1, 0.012, "duty", 0.008, 1.0),
    "gpu_clock_hertz": Levels((1.3e9, 1.7e9), 0.01, 1.02, 1.01, 0.95, 0.012, "clock", 0.01),
    "gpu_memory_used_ratio": Levels((0.6, 0.85), 0.0, 1.0, 1.0, 1.0, 0.004, "gpu_memory", 0.03, 1.0),
    "gpu_memory_bandwidth_ratio": Levels((0.25, 0.45), 0.15, 0.13, 0.1, 0.05, 0.03, "compute", 0.015, 1.0),
    "nvlink_bandwidth_bytes_per_second": Levels((1.5e11, 2.5e11), 0.15, 0.14, 0.08, 0.05, 0.03, "fabric", 0.02),
    "pcie_bandwidth_bytes_per_second": Levels((1.5e10, 3e10), 0.2, 1.8, 0.3, 0.1, 0.04, "pcie", 0.02),
    "rdma_throughput_bytes_per_second": Levels((8e10, 2e11), -0.25, 0.1, 0.09, 0.05, 0.04, "fabric", 0.02),
    "tcp_throughput_bytes_per_second": Levels((3e7, 8e7), 0.0, 12.0, 1.0, 0.3, 0.25, "tcp", 0.1),
    "pfc_tx_packets_per_second": Levels((30.0, 80.0), 0.1, 0.8, 0.5, 0.3, 0.7, "congestion", 0.25),
    "ecn_packets_per_second": Levels((150.0, 400.0), 0.2, 0.8, 0.5, 0.3, 0.5, "congestion", 0.2),
    "cnp_packets_per_second": Levels((100.0, 300.0), 0.2, 0.8, 0.5, 0.3, 0.55, "congestion", 0.2),
}
TRAINING = ("duty", "power", "compute", "fabric", "pcie")

# (what the job does, groups that may show it with their probability, factor range of the culprit's own change)
STALLS: dict[str, dict[str, float]] = {
    "ecc_error": {"cpu": 0.8, "duty": 0.65, "power": 0.65, "compute": 0.65, "fabric": 0.4},
    "cuda_execution_error": {"cpu": 0.6, "duty": 0.8, "power": 0.7, "compute": 0.7},
    "gpu_execution_error": {"cpu": 0.5, "duty": 0.7, "power": 0.6, "compute": 0.5},
    "hdfs_error": {"cpu": 0.8, "duty": 0.6, "tcp": 0.8},
    "nic_dropout": {"fabric": 0.9, "congestion": 0.6, "tcp": 0.5, "power": 0.3},
    "gpu_card_drop": {"duty": 0.8, "power": 0.9, "compute": 0.9, "cpu": 0.4},
    "hang": {"cpu": 0.7, "duty": 0.5, "power": 0.8, "compute": 0.7, "fabric": 0.6},
}
SLOWS: dict[str, dict[str, float]] = {
    "pcie_downgrade": {"pcie": 0.9, "congestion": 1.0},
    "nvlink_error": {"fabric": 0.9, "compute": 0.3, "power": 0.3},
    "optical_cable": {"fabric": 0.6, "congestion": 0.9},
    "slow_gpu": {"clock": 1.0, "power": 0.8, "compute": 0.5},
    "thermal": {"clock": 1.0, "temperature": 1.0, "power": 0.6},
}
KINDS = (*STALLS, *SLOWS, "machine_unreachable")
FAULTS = {
    "ecc_error": "memory errors of a GPU stop its work",
    "cuda_execution_error": "a kernel fails and the process stands",
    "gpu_execution_error": "a GPU stops in the middle of its work",
    "hdfs_error": "a machine waits for storage that does not answer",
    "nic_dropout": "a network card is gone",
    "gpu_card_drop": "a GPU falls off the bus",
    "hang": "a process stands for no visible reason",
    "machine_unreachable": "a machine is gone with its exporters",
    "pcie_downgrade": "a PCIe link runs at a part of its width",
    "nvlink_error": "NVLink retries cost bandwidth",
    "optical_cable": "a bad cable costs bandwidth and congests",
    "slow_gpu": "a GPU clocks low",
    "thermal": "a GPU is hot and throttles",
}
CAUSES = {
    "congestion": "the network is slow for all, for minutes",
    "evaluation": "all but one stage rest",
    "restart": "all end together and come back one by one",
    "outage": "the monitoring hears no machine",
}
NUISANCES = {
    "wander": "work moves between machines within minutes",
    "drift": "levels drift over the recording",
    "warm_slot": "one machine grows warmer",
    "sidecar": "one host gets busier",
    "page_cache": "one host's memory fills",
    "other_hardware": "some machines have other levels",
    "stuck_sensor": "a gauge repeats itself for minutes",
    "skewed_clock": "a clock is seconds off",
    "link_flap": "a link is down for seconds",
    "restart": "all end together and come back one by one",
    "evaluation": "all but one stage rest",
    "exporter_dies": "an exporter is silent for minutes",
    "outage": "the monitoring hears no machine",
    "late_dark": "exporters go silent minutes after a fault",
    "congestion": "the network is slow for all, for minutes",
}


# Benign changes that last: metric group, smallest and largest relative change, seconds until it is complete.
LASTING = {"warm_slot": ("temperature", 0.08, 0.25, 120.0), "sidecar": ("cpu", 0.3, 0.9, 3.0), "page_cache": ("memory", 0.1, 0.5, 900.0)}


@dataclass(frozen=True)
class Recipe:
    """One recording. machines must be divisible by pipeline."""

    seed: int
    fault: str | None = None
    machines: int = 16
    pipeline: int = 2
    interval_s: float = 1.0
    duration_s: int = 1200
    onset_s: float | None = None
    weak: bool = False
    nuisances: tuple[str, ...] = ()
    metrics: tuple[str, ...] = tuple(METRICS)
    split_rows: bool = False
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
    devices: tuple[str, ...] = field(default=())


START_S = 1_772_430_000.0


def plain(seed: int, fault: str | None = None) -> Recipe:
    """A plain recording: 1 Hz, jitters, checkpoints, gaps, some metrics missing."""
    rng = np.random.default_rng([seed, 1])
    pipeline = int(rng.choice([1, 2, 4]))
    machines = max(4, pipeline * int(rng.choice([2, 4, 6, 8, 12])))
    kept = tuple(name for name in METRICS if rng.random() > 0.15) if rng.random() < 0.5 else tuple(METRICS)
    onset_s = float(rng.uniform(400, 800)) if fault else None
    return Recipe(seed, fault, machines, pipeline, 1.0, 1300, onset_s, False, (), kept)


def hard(seed: int, fault: str | None = None, nuisances: Sequence[str] = tuple(NUISANCES)) -> Recipe:
    """A hard recording: slow scrapes, few metrics, weak and early faults, three or four nuisances at once."""
    rng = np.random.default_rng([seed, 2])
    pipeline = int(rng.choice([1, 2, 4]))
    machines = max(4, pipeline * int(rng.choice([1, 2, 4, 6, 12])))
    count = int(rng.integers(3, 11)) if rng.random() < 0.7 else len(METRICS)
    drawn = set(rng.choice(list(METRICS), size=count, replace=False).tolist())
    drawn.add(str(rng.choice(["gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_sm_activity_ratio"])))
    names = tuple(name for name in METRICS if name in drawn)
    chosen = tuple(rng.choice(list(nuisances), size=min(len(nuisances), int(rng.integers(1, 5))), replace=False).tolist())
    onset_s = (float(rng.uniform(120, 180)) if rng.random() < 0.3 else float(rng.uniform(300, 900))) if fault else None
    interval_s = float(rng.choice([5.0, 10.0, 15.0]))
    weak = bool(rng.random() < 0.4)
    return Recipe(seed, fault, machines, pipeline, interval_s, 1500, onset_s, weak, chosen, names, bool(rng.random() < 0.3))


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (see world.py): two of three seeds have a fault, seven of ten are hard."""
    rng = np.random.default_rng([seed, 4])
    kind = str(rng.choice(KINDS)) if seed % 3 else None
    recipe = (hard if rng.random() < 0.7 else plain)(seed, kind if fault in (None, NO_FAULT) else fault)
    if machines is not None:
        recipe = replace(recipe, machines=max(1, machines // recipe.pipeline) * recipe.pipeline)
    if duration_s is not None:
        onset_s = None if recipe.onset_s is None else min(recipe.onset_s, 0.6 * duration_s)
        recipe = replace(recipe, duration_s=int(duration_s), onset_s=onset_s)
    columns = generate(replace(recipe, without_fault=fault == NO_FAULT))
    faulty = columns.fault is not None and fault != NO_FAULT
    cause = next((name for name in recipe.nuisances if name in CAUSES), None)
    truth = Truth(cause=cause, nuisances=recipe.nuisances)
    if faulty and columns.culprit is not None:
        truth = Truth((columns.culprit,), (), columns.fault, columns.onset_s, None, recipe.weak, cause, recipe.nuisances)
    return World(
        NAME, seed, columns.machines, columns.metrics, columns.interval_s, 0.0, columns.times_N, columns.machine_N, columns.device_N,
        columns.values_NK, truth, stages=columns.stages,
    )  # fmt: skip


def generate(recipe: Recipe) -> Columns:
    """The recording of a recipe; the same seed gives the same bytes."""
    job = _Job(recipe)
    return job.scrape(job.run())


class _Job:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.rng = np.random.default_rng([recipe.seed, 3])
        self.T, self.M, self.K = recipe.duration_s, recipe.machines, len(recipe.metrics)
        self.levels = [METRICS[name] for name in recipe.metrics]
        self.stage_M = np.arange(self.M) * recipe.pipeline // self.M
        self.culprit = int(self.rng.integers(self.M)) if recipe.fault else -1
        self.silent_TM = np.zeros((self.T, self.M), dtype=bool)
        self.skew_M = np.zeros(self.M)

    def run(self) -> np.ndarray:
        self.factor_TMK = self._iterate()
        self._checkpoints()
        for name in self.recipe.nuisances:
            if name in ("evaluation", "restart"):
                getattr(self, f"_{name}")()
        if self.recipe.fault:
            healthy = self.factor_TMK.copy(), self.silent_TM.copy()
            self._fault(self.recipe.fault)
            if self.recipe.without_fault:
                self.factor_TMK, self.silent_TM = healthy
        self._jitters()
        for name in self.recipe.nuisances:
            if name in LASTING:
                self._lasting(*LASTING[name])
            elif name not in ("evaluation", "restart", "stuck_sensor"):
                getattr(self, f"_{name}")()
        values_TMK = self.factor_TMK * self._bases() * self._noise()
        self._temperature(values_TMK)
        bound_K = np.array([level.bound for level in self.levels])
        values_TMK = np.minimum(values_TMK, bound_K)
        if "stuck_sensor" in self.recipe.nuisances:
            m, k = self.rng.integers(self.M), self.rng.integers(self.K)
            at = int(self.rng.uniform(150, self.T - 100))
            values_TMK[at : at + int(self.rng.uniform(100, 600)), m, k] = values_TMK[at, m, k]
        return np.asarray(values_TMK)

    def _of(self, *groups: str) -> np.ndarray:
        return np.array([level.group in groups for level in self.levels]).nonzero()[0]

    def _bases(self) -> np.ndarray:
        base_K = np.array([self.rng.uniform(*level.base) for level in self.levels])
        spread_MK = np.exp(self.rng.normal(0, [level.spread for level in self.levels], (self.M, self.K)))
        stage_SK = np.exp(self.rng.normal(0, 0.06, (self.recipe.pipeline, self.K)))
        stage_SK[:, self._of("memory", "disk", "duty", "clock", "temperature")] = 1.0
        return base_K * spread_MK * stage_SK[self.stage_M]

    def _iterate(self) -> np.ndarray:
        period_s = self.rng.uniform(5, 25)
        lag_M = self.stage_M * self.rng.uniform(0, 0.1) * period_s
        phase_TM = 2 * np.pi * (np.arange(self.T)[:, None] - lag_M) / period_s
        wave_TM = np.tanh(2.0 * np.sin(phase_TM))
        swing_K = np.array([level.swing for level in self.levels]) * self.rng.uniform(0.6, 1.4)
        return np.asarray(1.0 + wave_TM[:, :, None] * swing_K)

    def _noise(self) -> np.ndarray:
        size_K = np.array([level.noise for level in self.levels])
        white_TMK = self.rng.normal(0, 1, (self.T, self.M, self.K))
        memory_K = np.where(size_K > 0.2, 0.7, 0.3)
        for t in range(1, self.T):
            white_TMK[t] = memory_K * white_TMK[t - 1] + np.sqrt(1 - memory_K**2) * white_TMK[t]
        return np.asarray(np.exp(white_TMK * size_K))

    def _set(self, rows: slice, machines: np.ndarray | slice | int, attribute: str, share: float = 1.0) -> None:
        """Metrics take the factor of a state ("checkpoint", "spin", "dark")."""
        factor_K = np.array([getattr(level, attribute) for level in self.levels])
        self.factor_TMK[rows, machines] *= 1.0 + share * (factor_K - 1.0)

    def _checkpoints(self) -> None:
        every, lasts = self.rng.uniform(220, 600), self.rng.uniform(8, 30)
        for at in np.arange(self.rng.uniform(60, every), self.T, every):
            self._set(slice(int(at), int(at + lasts)), slice(None), "checkpoint")

    def _jitters(self) -> None:
        for _ in range(self.rng.poisson(self.M * self.T / 8000)):
            m, k = self.rng.integers(self.M), self.rng.integers(self.K)
            at, lasts = int(self.rng.uniform(0, self.T)), int(self.rng.uniform(5, 35))
            self.factor_TMK[at : at + lasts, m, k] *= self.rng.choice([self.rng.uniform(0.4, 0.8), self.rng.uniform(1.3, 3.0)])
        for _ in range(self.rng.poisson(0.8)):  # housekeeping on one host
            m, at, lasts = self.rng.integers(self.M), int(self.rng.uniform(0, self.T)), int(self.rng.uniform(60, 200))
            self.factor_TMK[at : at + lasts, m, self._of("cpu")] *= 1.6
            self.factor_TMK[at : at + lasts, m, self._of("tcp")] *= 4.0

    def _fault(self, fault: str) -> None:
        at, m = int(self.recipe.onset_s or 0), self.culprit
        others = np.arange(self.M) != m
        end = self.T
        after = slice(at, end)
        echo = slice(at + int(self.rng.choice([0, 2, self.rng.uniform(5, 40)])), end)
        strength = self.rng.uniform(0.3, 0.5) if self.recipe.weak else self.rng.uniform(0.8, 1.0)
        if fault == "machine_unreachable":
            self.silent_TM[after, m] = True
            self._set(echo, others, "spin")
            return
        shows = STALLS.get(fault) or SLOWS[fault]
        visible = [group for group, chance in shows.items() if self.rng.random() < chance] or [next(iter(shows))]
        chosen = self._of(*visible)
        if not len(chosen):  # a fault that no exported metric shows cannot be found: let one show
            chosen = self._of(*shows)[:1] if len(self._of(*shows)) else self._of(*TRAINING, "cpu", "congestion")[:1]
        if fault in STALLS:
            self._set(echo, others, "spin", 1.0)
            follows = np.setdiff1d(self._of(*TRAINING), chosen) if self.rng.random() < 0.5 else np.array([], dtype=int)
            spin_K = np.array([level.spin for level in self.levels])
            self.factor_TMK[echo, m, follows[:, None]] *= spin_K[follows][:, None]
            dark_K = np.array([self.rng.uniform(0.8, 2.5) * level.dark for level in self.levels])
            dark_K[self._of("congestion")] = self.rng.uniform(5, 50)
            own_K = np.exp(strength * np.log(np.clip(dark_K, 0.02, None)))
        else:
            slow = 1.0 - strength * self.rng.uniform(0.25, 0.5)
            for k in self._of(*TRAINING):
                if self.levels[k].group != "duty":
                    self.factor_TMK[echo, :, k] *= slow
            ranges = {"congestion": (6, 60), "temperature": (1.15, 1.35), "clock": (0.5, 0.8)}
            own_K = np.array([self.rng.uniform(*ranges.get(level.group, (0.4, 0.7))) ** strength for level in self.levels])
        self.factor_TMK[after, m, chosen[:, None]] *= own_K[chosen][:, None]

    def _temperature(self, values_TMK: np.ndarray) -> None:
        """Temperature follows power slowly."""
        heat, power = self._of("temperature"), self._of("power")
        if not len(heat) or not len(power):
            return
        level_TM = self.factor_TMK[:, :, power[0]]
        slow_TM = np.ones_like(level_TM)
        for t in range(1, self.T):
            slow_TM[t] = slow_TM[t - 1] + (level_TM[t] - slow_TM[t - 1]) / 60.0
        values_TMK[:, :, heat[0]] *= 0.75 + 0.25 * slow_TM

    def _ou(self, size: float, tau_s: float, columns: int) -> np.ndarray:
        x_TM = self.rng.normal(0, size, (self.T, columns))
        keep = np.exp(-1 / tau_s)
        for t in range(1, self.T):
            x_TM[t] = keep * x_TM[t - 1] + np.sqrt(1 - keep**2) * x_TM[t]
        return x_TM

    def _wander(self) -> None:
        """Uneven experts or sequences: activity moves between machines within minutes, in all training metrics at once."""
        x_TM = self._ou(self.rng.uniform(0.04, 0.12), self.rng.uniform(30, 150), self.M)
        for k in self._of(*TRAINING):
            share = {"duty": 0.15, "power": 0.6}.get(self.levels[k].group, 1.0)
            self.factor_TMK[:, :, k] *= np.exp(share * x_TM)

    def _drift(self) -> None:
        slope_MK = self.rng.normal(0, 0.05, (self.M, self.K)) * (self.rng.random((self.M, self.K)) < 0.3)
        slope_MK += self.rng.normal(0, 0.05, self.K)
        slope_MK[:, self._of("congestion", "tcp")] *= 3
        self.factor_TMK *= np.exp(np.linspace(0, 1, self.T)[:, None, None] * slope_MK)

    def _lasting(self, group: str, low: float, high: float, ramp_s: float) -> None:
        m, at = self.rng.integers(self.M), int(self.rng.uniform(200, self.T - 200))
        ramp_T = np.clip((np.arange(self.T) - at) / ramp_s, 0, 1)
        size = self.rng.uniform(low, high)
        for k in self._of(group):
            self.factor_TMK[:, m, k] *= 1.0 + size * ramp_T

    def _other_hardware(self) -> None:
        chosen = self.rng.random(self.M) < 0.3
        for group, size in (("power", 0.15), ("clock", 0.1), ("temperature", 0.1), ("fabric", 0.15)):
            for k in self._of(group):
                self.factor_TMK[:, chosen, k] *= 1.0 + self.rng.uniform(-size, size)

    def _skewed_clock(self) -> None:
        self.skew_M[self.rng.integers(self.M)] = self.rng.choice([-1, 1]) * self.rng.uniform(3, 12)

    def _link_flap(self) -> None:
        m, at = self.rng.integers(self.M), int(self.rng.uniform(100, self.T - 60))
        rows = slice(at, at + int(self.rng.uniform(2, 9)))
        self.factor_TMK[rows, m, self._of("fabric")[:, None]] *= 0.05
        self.factor_TMK[rows, m, self._of("congestion")[:, None]] *= 20
        self.factor_TMK[rows] *= np.where(np.isin(np.arange(self.K), self._of("compute", "fabric", "power")), 0.5, 1.0)

    def _quiet_spot(self, lasts: float) -> int:
        """A time for a job-wide phase that ends a minute before the onset or starts well after it."""
        onset_s = self.recipe.onset_s
        spots = [
            at for at in range(150, int(self.T - lasts - 60), 30) if onset_s is None or at + lasts + 60 < onset_s or at > onset_s + 450
        ]
        return int(self.rng.choice(spots)) if spots else -1

    def _restart(self) -> None:
        """All end together; machines come back one by one."""
        down_s = self.rng.uniform(20, 60)
        back_M = down_s + self.rng.uniform(0, 90, self.M)
        at = self._quiet_spot(float(back_M.max()))
        if at < 0:
            return
        for m in range(self.M):
            self._set(slice(at, at + int(back_M[m])), m, "dark")
        if self.rng.random() < 0.5:
            self.silent_TM[at : at + 10] = True

    def _evaluation(self) -> None:
        lasts = self.rng.uniform(60, 240)
        at, stage = self._quiet_spot(lasts), self.rng.integers(self.recipe.pipeline)
        if at >= 0:
            idle = (self.stage_M != stage) | (self.recipe.pipeline == 1)
            self._set(slice(at, at + int(lasts)), idle, "checkpoint", 0.95)

    def _congestion(self) -> None:
        """All slow down for minutes, no two quite alike."""
        lasts = self.rng.uniform(60, 300)
        at = self._quiet_spot(lasts)
        if at < 0:
            return
        slow_M = self.rng.uniform(0.6, 0.9) * np.exp(self.rng.normal(0, 0.02, self.M))
        for k in self._of("power", "compute", "fabric", "pcie"):
            share = 0.5 if self.levels[k].group == "power" else 1.0
            self.factor_TMK[at : at + int(lasts), :, k] *= slow_M**share
        for k in self._of("congestion"):
            self.factor_TMK[at : at + int(lasts), :, k] *= self.rng.uniform(2, 8) * np.exp(self.rng.normal(0, 0.3, self.M))

    def _exporter_dies(self) -> None:
        m, at = int(self.rng.integers(self.M)), int(self.rng.uniform(100, self.T - 100))
        if m != self.culprit:
            self.silent_TM[at : at + int(self.rng.uniform(60, 900)), m] = True

    def _outage(self) -> None:
        at = int(self.rng.uniform(200, self.T - 150))
        self.silent_TM[at : at + int(self.rng.uniform(40, 120))] = True

    def _late_dark(self) -> None:
        onset_s = self.recipe.onset_s
        if not onset_s:
            return
        for m in self.rng.choice(self.M, max(1, self.M // 4), replace=False):
            if m != self.culprit:
                self.silent_TM[int(onset_s + self.rng.uniform(150, 400)) :, m] = True

    def scrape(self, values_TMK: np.ndarray) -> Columns:
        """Each machine is read every interval at its own offset; a few reads and values are lost."""
        recipe, rng = self.recipe, self.rng
        times, machines, rows = [], [], []
        for m in range(self.M):
            for part in ((0, 1), (1, 2)) if recipe.split_rows else ((0, 1),):
                at_N = np.arange(rng.uniform(0, recipe.interval_s), self.T - 1, recipe.interval_s)
                at_N = np.clip(at_N + rng.uniform(-0.05, 0.05, len(at_N)), 0, self.T - 1)
                at_N = at_N[rng.random(len(at_N)) > 0.01]
                seconds_N = at_N.astype(int)
                at_N, seconds_N = at_N[~self.silent_TM[seconds_N, m]], seconds_N[~self.silent_TM[seconds_N, m]]
                value_NK = values_TMK[seconds_N, m].copy()
                value_NK[rng.random(value_NK.shape) < 0.005] = np.nan
                if recipe.split_rows:
                    value_NK[:, part[1] % 2 :: 2] = np.nan
                times.append(at_N + self.skew_M[m] + START_S)
                machines.append(np.full(len(at_N), m))
                rows.append(value_NK)
        time_N, machine_N, value_NK = np.concatenate(times), np.concatenate(machines), np.concatenate(rows)
        order_N = np.argsort(time_N, kind="stable")
        names = tuple(f"m{m:03d}" for m in range(self.M))
        return Columns(
            np.round(time_N[order_N], 3), machine_N[order_N], np.full(len(time_N), -1), value_NK[order_N], names, recipe.metrics,
            {name: int(stage) for name, stage in zip(names, self.stage_M, strict=True)}, recipe.interval_s,
            names[self.culprit] if recipe.fault else None, START_S + recipe.onset_s if recipe.onset_s else None, recipe.fault,
        )  # fmt: skip
