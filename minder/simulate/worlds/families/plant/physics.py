"""The plant itself, tick by tick: air, dies and sinks, governors, work, queues of input, the step that waits for its slowest machine.

Each GPU is two heat capacities in a row (die and sink) in the air of its rack. Its clock is the lowest of what the power cap, the
temperature and a lock allow. How long a machine takes for a step follows from clocks and rates; the job's pace from the slowest.
Legend: T ticks, M machines, G GPUs of a machine, R racks. Suffix _w: watts; _c: degrees Celsius. Fractions are of the tick's time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.plant.changes import DEAD, KERNEL, SPINNING, WAITING, Changes
from minder.simulate.worlds.families.plant.site import Site, stream

__all__ = ["SPIN", "Trace", "correlated", "operate"]

_STEEP = 2.4  # power of work goes with the clock to this: voltage falls with it
_DIE_S, _SINK_S, _AIR_S = 8.0, 90.0, 300.0
SPIN = {"nvlink": 0.36, "net": 0.24, "wait": 0.2, "kernel": 0.3}  # power above idle, of full power


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened inside, by tick. phase_T: steps done so far, T + 1 numbers. pause_TM: nothing for the GPU to do.

    Fractions of time: work_TMG, lane_TMG, net_T, pause_TM; the rest waits in collectives. draw_TMG: watts above idle while working.
    """

    phase_T: np.ndarray
    step_T: np.ndarray
    work_TMG: np.ndarray
    lane_TMG: np.ndarray
    net_T: np.ndarray
    pause_TM: np.ndarray
    clock_TMG: np.ndarray
    draw_TMG: np.ndarray
    die_TMG: np.ndarray
    hot_TMG: np.ndarray


def correlated(law: np.random.Generator, shape: tuple[int, ...], step_s: float, memory_s: float) -> np.ndarray:
    """Noise of deviation 1 along the first axis, with a memory and now and then a large shock."""
    keep = float(np.exp(-step_s / memory_s))
    noise = law.standard_normal(shape, dtype=np.float32)
    shock = law.random(shape[0], dtype=np.float32)
    noise[1:] *= np.sqrt(1.0 - keep**2) * np.where(shock[1:] > 0.985, 2.5, 1.0).reshape(-1, *([1] * (len(shape) - 1))).astype(np.float32)
    for t in range(1, shape[0]):
        noise[t] += np.float32(keep) * noise[t - 1]
    return noise


def operate(site: Site, changes: Changes, seed: int) -> Trace:
    """Run the plant from a settled (now and then a cold) start."""
    plant = _Plant(site, changes, seed)
    if stream(seed, 11).random() < 0.88:
        for _ in range(24):
            plant.tick(0, 30.0, keep=False)
        plant.phase, plant.limit = 0.0, np.inf
    for t in range(site.ticks):
        plant.tick(t, site.tick_s, keep=True)
    return plant.trace()


class _Plant:
    def __init__(self, site: Site, changes: Changes, seed: int) -> None:
        self.site, self.changes = site, changes
        ticks, many, gpus = site.ticks, len(site.names), site.gpus
        law = stream(seed, 10)
        self.uneven_TM = np.exp(0.006 * site.noise * correlated(law, (ticks, many), site.tick_s, 70.0))
        self.weather_T = 0.5 * correlated(law, (ticks,), site.tick_s, 600.0)
        late_T = np.exp(0.012 * correlated(law, (ticks,), site.tick_s, 90.0))
        self.late_T = late_T + np.where(law.random(ticks) < 0.01, law.pareto(2.5, ticks) * 0.15, 0.0).clip(0.0, 1.0)
        self.load_TM = np.exp(0.08 * correlated(law, (ticks, many), site.tick_s, 60.0))
        self.die_MG = np.full((many, gpus), site.cold_c + 10.0)
        self.sink_MG = self.die_MG.copy()
        self.air_R = np.zeros(int(site.rack_M.max()) + 1)
        self.heat_MG = np.ones((many, gpus))
        self.queue_M = np.full(many, site.demand.buffered)
        self.phase, self.limit = 0.0, np.inf
        self.usual_MG = np.minimum(1.0, self._capped(1.0))
        self.usual = float(np.median(self.usual_MG))
        self.racks_R = np.bincount(site.rack_M, minlength=len(self.air_R))
        # Stages and roles do unlike work, the slower one decides: their sizes differ a little, their kinds more.
        stage_M = np.where(site.stage_M >= 0, site.stage_M, 0)
        self.part_M = (1.0 + 0.05 * np.cos(1.7 * stage_M + seed % 7)) * np.where(site.role_M == 1, 0.55, 1.0)
        self.bytes_M = np.where(site.role_M == 1, 1.9, 1.0)
        self.kept: dict[str, list[np.ndarray]] = {}
        self.phases = [0.0]

    def tick(self, t: int, span_s: float, *, keep: bool) -> None:
        """One stretch of time: clocks from temperatures, pace from clocks, fractions of time from the pace, heat from them."""
        changes = self.changes
        clock_MG = self._clocks(t, span_s)
        work_MG, lane_MG, own_M = self._times(t, clock_MG)
        exposed_s = self._exchange_s(t)
        halt_M = np.broadcast_to(changes.now("halt", t), own_M.shape)
        frozen_M = np.broadcast_to(changes.now("frozen", t), own_M.shape)
        step_s = (float(own_M[halt_M == 0].max(initial=0.01)) + exposed_s + self.site.step_s * self.site.demand.bubble) * self.late_T[t]
        run = float(changes.now("run", t))
        write = 0.0 if self.phase >= self.limit else float(changes.now("write", t))  # a job that hangs writes no checkpoint
        rate = run * (1.0 - write) * (1.0 - float(changes.now("jam", t))) * (1.0 - float(np.clip(frozen_M, 0.0, 1.0).max())) / step_s
        done = self._advance(rate, span_s, bool(halt_M.any()))
        rate = done / span_s
        gpu_M = work_MG.max(axis=1) + lane_MG.max(axis=1)
        # A machine that waits for input waits alone: it has no work to hand to its GPUs.
        pause_M = np.clip(rate * np.maximum(own_M - gpu_M, 0.0) + np.maximum(frozen_M, 1.0 - run * (1.0 - write)), 0.0, 1.0)
        if halt_M.any():
            work_MG = np.where(halt_M[:, None] > 0, 0.0, work_MG)
            lane_MG = np.where(halt_M[:, None] > 0, 0.0, lane_MG)
            pause_M = np.where(np.isin(halt_M, [DEAD, SPINNING, WAITING]), 1.0, pause_M)
        busy_MG, lanes_MG = work_MG * rate, lane_MG * rate
        net = exposed_s * rate
        reference = self.site.demand.intensity * float(np.clip(changes.now("flop", t), 0.5, 1.15))
        draw_MG = reference * self.site.silicon_MG * (self.site.board.full_w - self.site.board.idle_w) * clock_MG**_STEEP
        wait_MG = np.clip(1.0 - busy_MG - lanes_MG - net - pause_M[:, None], 0.0, 1.0)
        spin_MG = SPIN["wait"] * wait_MG + SPIN["nvlink"] * lanes_MG + SPIN["net"] * net
        spin_MG = spin_MG + np.where(halt_M == KERNEL, SPIN["kernel"], 0.0)[:, None]
        self._heat(t, span_s, self.site.board.idle_w + busy_MG * draw_MG + spin_MG * self.site.board.full_w)
        self._feed(t, span_s, rate)
        if keep:
            self.phases.append(self.phase)
            named = {
                "step": step_s, "work": busy_MG, "lane": lanes_MG, "net": net, "pause": pause_M, "clock": clock_MG, "draw": draw_MG,
                "die": self.die_MG, "hot": self.heat_MG < 0.97,
            }  # fmt: skip
            for name, value in named.items():
                self.kept.setdefault(name, []).append(np.asarray(value, dtype=np.float32))

    def trace(self) -> Trace:
        """All that was kept."""
        held = {name: np.stack(rows) for name, rows in self.kept.items()}
        return Trace(
            np.array(self.phases), held["step"], held["work"], held["lane"], held["net"], held["pause"], held["clock"], held["draw"],
            held["die"], held["hot"],
        )  # fmt: skip

    def _capped(self, cap: np.ndarray | float) -> np.ndarray:
        """(M, G): the clock at which work draws just what the cap leaves."""
        board, demand = self.site.board, self.site.demand
        room_MG = np.maximum(cap * board.full_w - board.idle_w, 0.05 * board.full_w)
        return np.asarray((room_MG / (demand.intensity * self.site.silicon_MG * (board.full_w - board.idle_w))) ** (1.0 / _STEEP))

    def _clocks(self, t: int, span_s: float) -> np.ndarray:
        over_MG = self.die_MG - self.site.board.limit_c
        self.heat_MG = np.clip(self.heat_MG * (1.0 - 0.001 * min(span_s, 8.0) * over_MG), 0.33, 1.0)
        free_MG = np.minimum(1.0, self._capped(self.changes.now("cap", t)))
        return np.asarray(self.site.clock_MG * np.minimum(free_MG * self.heat_MG, self.changes.now("lock", t)))

    def _times(self, t: int, clock_MG: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds of a step: GPU work and NVLink by GPU, and all that a machine needs before it can join the others."""
        site, changes = self.site, self.changes
        demand, step_s = site.demand, site.step_s
        part_M = self.part_M * site.share_M * self.uneven_TM[t] * changes.now("share", t)
        flop_MG = step_s * demand.flop * changes.now("flop", t) * part_M[:, None] * self.usual / clock_MG
        memory_MG = step_s * demand.memory * (part_M * self.bytes_M)[:, None] / changes.now("hbm", t)
        lane_MG = step_s * demand.nvlink * part_M[:, None] / changes.now("lanes", t)
        work_MG = flop_MG + memory_MG
        gpu_M = work_MG.max(axis=1) + lane_MG.max(axis=1)
        host_M = step_s * (demand.flop + demand.memory) * demand.launch * part_M / self._processor(t)
        own_M = np.maximum(gpu_M, host_M)
        own_M = np.where(self.queue_M < 1e-3, np.maximum(own_M, self._load_s(t)), own_M)
        return work_MG, lane_MG, own_M

    def _processor(self, t: int) -> np.ndarray | float:
        """The processor's speed that is left to the job."""
        hog = np.asarray(self.changes.now("hog", t))
        return np.asarray(self.changes.now("cpu", t) * (1.0 - np.clip(hog - 0.4, 0.0, 0.75)))

    def _load_s(self, t: int) -> np.ndarray:
        """(M,): seconds that the input of one step takes."""
        changes, site = self.changes, self.site
        rate = changes.now("disk", t) * changes.now("storage", t) / changes.now("loader", t) * np.minimum(1.0, self._processor(t))
        return np.asarray(site.step_s * site.demand.load * self.load_TM[t] / np.maximum(rate, 0.02))

    def _feed(self, t: int, span_s: float, rate: float) -> None:
        self.queue_M = np.clip(self.queue_M + span_s * (1.0 / self._load_s(t) - rate), 0.0, self.site.demand.buffered)

    def _exchange_s(self, t: int) -> float:
        """Seconds of a step that the exchange of gradients leaves uncovered; the ring runs at the pace of its narrowest link."""
        changes, demand = self.changes, self.site.demand
        good = changes.now("nic", t) / (1.0 + 60.0 * np.asarray(changes.now("loss", t)))
        narrow = float(np.min(np.minimum(good, np.minimum(1.0, changes.now("pcie", t) * np.asarray(self.site.pcie_head)))))
        whole = (demand.exposed + demand.hidden) * float(changes.now("traffic", t)) / max(narrow * float(changes.now("net", t)), 0.02)
        return float(self.site.step_s * max(whole - demand.hidden, 0.15 * whole))

    def _advance(self, rate: float, span_s: float, halted: bool) -> float:
        """Steps done in the stretch. A machine that stopped is waited for at the end of the step that runs."""
        if not halted:
            self.limit = np.inf
        elif np.isinf(self.limit):
            self.limit = np.floor(self.phase) + 1.0
        before = self.phase
        self.phase = min(self.phase + rate * span_s, self.limit)
        return self.phase - before

    def _heat(self, t: int, span_s: float, power_MG: np.ndarray) -> None:
        """Die and sink follow their power; the air of a rack follows the power of all that blow into it."""
        site, changes, board = self.site, self.changes, self.site.board
        load_R = np.bincount(site.rack_M, weights=power_MG.mean(axis=1), minlength=len(self.air_R)) / self.racks_R / board.full_w
        self.air_R += (4.0 * load_R - self.air_R) * -np.expm1(-span_s / _AIR_S)
        inlet_M = site.cold_c + self.weather_T[t] + site.inlet_c_M + self.air_R[site.rack_M] + changes.now("inlet", t)
        fan_MG = np.clip(0.55 + (self.die_MG - 50.0) / 40.0, 0.45, 1.0) * changes.now("airflow", t)
        share_MG = power_MG / board.full_w
        sink_MG = inlet_M[:, None] + board.sink_c * site.cooling_MG * share_MG / np.maximum(fan_MG, 0.05) ** 0.7
        self.sink_MG += (sink_MG - self.sink_MG) * -np.expm1(-span_s / _SINK_S)
        die_MG = self.sink_MG + board.die_c * share_MG * changes.now("paste", t)
        self.die_MG = self.die_MG + (die_MG - self.die_MG) * -np.expm1(-span_s / _DIE_S)
