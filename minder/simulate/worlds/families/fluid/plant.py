"""The cluster as coupled differential equations, integrated second by second: heat, clocks, flows, queues, and the job's own progress.

Work is measured in nominal steps: a machine that is as fast as it should be needs `share_compute` of a step to compute. What a machine
does within a step has an order (compute, wait, exchange), and a tick that covers part of a step sees that part: long steps alias.
Legend: M machines, U units (GPUs), S switches; `now` is the mean over one tick.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.fluid.causes import Calendar
from minder.simulate.worlds.families.fluid.levers import Effect, Levers
from minder.simulate.worlds.families.fluid.nuisances import Nuisances
from minder.simulate.worlds.families.fluid.site import Site, stream

__all__ = ["Plant"]

_HOT_C, _COOL_C = 88.0, 78.0  # a governor throttles above, and lets go below
_IDLE_SHARE = 0.12  # of a board's power
_RISE_C = 35.0  # above the inlet, of a board at 0.6 of its power
_STAND_RATE = 0.05  # of the nominal rate: below it the job stands
_BLOCK = 128  # ticks for which random numbers are drawn at once
_LEAST = 1e-3


def _covered(start: np.ndarray, ahead: float, share: np.ndarray) -> np.ndarray:
    """Of the stretch from phase `start` on over `ahead` steps: how much lies in the first `share` of each step."""
    if ahead < 1e-4:
        return np.asarray((start % 1.0 < share) * 1.0)
    end = start + ahead
    whole_end, whole_start = np.floor(end), np.floor(start)
    inside = (whole_end - whole_start) * share + np.minimum(end - whole_end, share) - np.minimum(start - whole_start, share)
    return np.asarray(inside / ahead)


class Plant:
    """State of all machines and of the job. After `step(tick)`, `host` and `port` hold its rates by metric
    name; after `measure()` also its gauges, those of GPUs in `unit`.
    """

    def __init__(self, site: Site, calendar: Calendar, nuisances: Nuisances, effects: list[Effect]) -> None:
        n, u = site.machines, site.units
        own = stream(site.seed, 5)
        self.site, self._calendar, self._levers = site, calendar, Levers(site, effects)
        self._noise = stream(site.seed, 6)
        self._block = np.empty((0, 4, n), np.float32)
        self._owner_U = np.repeat(np.arange(n), site.per_machine)
        self._draw_machines(own, n, u, nuisances.uneven)
        self._draw_job(own, n)
        self.clock_U, self.power_U, self.temp_U = np.ones(u), self._watts_U * 0.5, np.full(u, 55.0)
        self._hot_U = np.zeros(u, bool)
        self._inject_M, self._portq_M = np.full(n, 0.8), np.zeros(n)
        self._queue_S = np.zeros(int(site.switch_M.max()) + 1)
        self._ports_S = np.bincount(site.switch_M, minlength=self._queue_S.size)
        self._buffer_M = np.full(n, self._buffer_s)
        self._read_M, self._full = np.ones(n), 0.5
        self._left_M = np.zeros(n)  # of the checkpoint that is being written, in seconds
        self._noise_M, self._busy_cpu_M, self._inlet_M = np.zeros(n), np.zeros(n), np.zeros(n)
        self._used_M, self._held_U = np.full(n, 0.4), np.full(u, 0.7)
        self._written_M, self.downs_M, self.ecc_U, self._was_down_M = np.zeros(n), np.zeros(n), np.zeros(u), np.zeros(n, bool)
        self.rate, self.phase, self._stood_s, self._aborted = 0.9 / site.step_s, 0.0, 0.0, False
        self._step_s, self._step_at, self._due = site.step_s, 0, list(calendar.checkpoints_s)
        self._generating, self._turn_left_s = False, self._train_s
        self._seen_3U = np.zeros((3, u))
        self.unit: dict[str, np.ndarray] = {}
        self.host: dict[str, np.ndarray] = {}
        self.port: dict[str, np.ndarray] = {}

    def _draw_machines(self, own: np.random.Generator, n: int, u: int, uneven: float) -> None:
        site = self.site
        self._able_U = (
            1 + 0.01 * own.standard_normal(u).clip(-2.5, 2.5) - np.repeat(np.abs(uneven * own.standard_normal(n)) / 2, site.per_machine)
        )
        self._watts_U = site.tdp_w * (1 + 0.04 * own.standard_normal(u).clip(-2.5, 2.5))
        self._rise_U = _RISE_C / (0.6 * site.tdp_w) * (1 + 0.08 * own.standard_normal(u).clip(-2.5, 2.5))
        self._slack_U = 0.97 + 0.03 * own.random(u)
        self._air_M = 26 + 3 * own.random() + own.normal(0, 1.2, int(site.rack_M.max()) + 1)[site.rack_M]
        self._dirt_M = (own.random(n) < 0.1) * own.exponential(0.2, n)  # link errors that every fabric has, and no training notices
        self._disk_M, self._memory_M = own.uniform(0.15, 0.75, n), 0.2 + 0.05 * own.random(n)
        stages = int(site.stage_M.max()) + 1
        self._part_M = 1 + own.uniform(-0.08, 0.05, stages)[site.stage_M]
        self._held_at_U = np.repeat((0.55 + 0.35 * own.random(stages))[site.stage_M], site.per_machine) + 0.01 * own.random(u)

    def _draw_job(self, own: np.random.Generator, n: int) -> None:
        site = self.site
        self._buffer_s, self._step_bytes = float(own.uniform(8, 60)), float(own.uniform(2e7, 8e8))
        self._link_bps, self._nv_bps = float(own.choice([5e10, 1e11, 4e11])), float(own.uniform(0.3e11, 3e11))
        self._tensor, self._dram = float(own.uniform(0.25, 0.6)), float(own.uniform(0.25, 0.7))
        self._spin_sm, self._base_cpu = float(own.uniform(0.05, 0.3)), float(own.uniform(0.03, 0.1))
        self._wander = float(own.uniform(0.05, 0.12)) if site.layout == "expert" else float(own.uniform(0.005, 0.02))
        self._train_s, self._generate_s = float(own.uniform(20, 120)), float(own.uniform(15, 90))
        self._behind_M = site.stage_M * float(own.uniform(0.02, 0.1))
        self._stumble_T = own.exponential(0.02, site.ticks) + (own.random(site.ticks) < 0.003) * own.pareto(1.5, site.ticks).clip(0, 4)

    # One tick

    def step(self, tick: int) -> None:
        """Integrate one second from `tick` on."""
        if tick % _BLOCK == 0:
            self._block = self._noise.standard_normal((_BLOCK, 4, self.site.machines), np.float32)
        drawn = self._block[tick % _BLOCK]
        levers = self._levers.turn(tick)
        self._wander_on(drawn)
        able_M = self._abilities(levers)
        own_M = self._own_share(levers, able_M)
        exchange = self._exchange_share(levers)
        self._advance(tick, levers, own_M, exchange)
        self._live_within_the_step(levers, able_M, own_M, exchange)
        self._heat(levers)
        self._flow(levers)
        self._read_and_write(tick, levers)
        self._keep_house(levers, drawn)

    def _wander_on(self, drawn: np.ndarray) -> None:
        self._noise_M += -self._noise_M / 40 + self._wander * 0.22 * drawn[0]
        self._busy_cpu_M += -self._busy_cpu_M / 8 + 0.008 * drawn[1]
        self._inlet_M += -self._inlet_M / 300 + 0.03 * drawn[2]

    def _abilities(self, levers: dict[str, np.ndarray]) -> np.ndarray:
        site = self.site
        able_U = self._able_U * self.clock_U * levers["speed"] * levers["present"]
        able_M = able_U.reshape(site.machines, -1).min(axis=1)
        return np.asarray(np.maximum(able_M * levers["feed"] ** 0.6 * (1 + self._noise_M), _LEAST))

    def _own_share(self, levers: dict[str, np.ndarray], able_M: np.ndarray) -> np.ndarray:
        """(M,) of a nominal step that each machine needs before it can exchange."""
        site = self.site
        lanes_M = np.minimum(levers["nvlink"], 4.0).reshape(site.machines, -1).min(axis=1)
        width_M = levers["pcie"].reshape(site.machines, -1).min(axis=1)
        host = max(1 - site.share_compute - site.share_exchange, 0.02)
        compute = site.share_compute * float(levers["work"][0])
        share_M = compute * self._part_M * (0.88 + 0.12 / lanes_M) / able_M + host * (0.8 + 0.2 / width_M) / levers["feed"]
        return np.asarray(share_M)

    def _exchange_share(self, levers: dict[str, np.ndarray]) -> float:
        """Of a nominal step: a ring is as fast as its slowest link."""
        loss_M = 1 / (1 + levers["loss"] / 2000)
        self._through_M = np.maximum(np.minimum(self._inject_M, levers["port"] * (1 - levers["tenant"])) * loss_M, _LEAST)
        counted = (levers["counts"] > 0.5) & (self.site.role_M == 0)
        self._ring = float(self._through_M[counted].min(initial=1.0))
        return self.site.share_exchange * float(levers["talk"][0]) / max(self._ring, 0.01) * 0.8

    def _advance(self, tick: int, levers: dict[str, np.ndarray], own_M: np.ndarray, exchange: float) -> None:
        site = self.site
        counted = levers["counts"] > 0.5
        trains, rolls = counted & (site.role_M == 0), counted & (site.role_M == 1)
        share = float(own_M[trains].max(initial=0.1)) + exchange + float(self._stumble_T[tick])
        target = 1 / share
        starved = self._buffer_M[trains] < 1.0
        if starved.any():
            target = min(target, float(self._read_M[trains][starved].min()))
        self._resident = float(levers["resident"][0]) * (not self._aborted)
        running = float(levers["run"][0]) * (not self._aborted)
        self._saving = bool((self._left_M[counted] > 0).any())
        if rolls.any():
            self._take_turns(running * (not self._saving), own_M, rolls)
        target *= running * (not self._saving) * (not self._generating)
        target /= site.step_s
        self.rate += (target - self.rate) * (0.75 if target < self.rate else 0.4)
        self._count_steps(tick, running)

    def _take_turns(self, running: float, own_M: np.ndarray, rolls: np.ndarray) -> None:
        """Rollout machines generate, then trainers train on it: the slowest rollout holds up all."""
        pace = 0.5 / max(float(own_M[rolls].max()), 0.5) if self._generating else self.rate * self.site.step_s
        self._turn_left_s -= pace * running
        if self._turn_left_s <= 0:
            self._generating = not self._generating
            self._turn_left_s = self._generate_s if self._generating else self._train_s

    def _count_steps(self, tick: int, running: float) -> None:
        before = int(self.phase)
        self._before = self.phase
        self.phase += self.rate
        done = int(self.phase) - before
        if done:
            self._step_s = self._step_s * 0.3 + 0.7 * (tick + 1 - self._step_at) / done
            self._step_at = tick + 1
        stands = self.rate * self.site.step_s < _STAND_RATE and not self._generating and self._resident > 0
        self._stood_s = self._stood_s + 1 if stands else 0.0
        self._aborted |= self._stood_s > self._calendar.abort_s

    def _live_within_the_step(self, levers: dict[str, np.ndarray], able_M: np.ndarray, own_M: np.ndarray, exchange: float) -> None:
        site, pace = self.site, self.rate * self.site.step_s
        busy_M = np.minimum(pace * own_M, 1.0)
        stopped_M = able_M <= 2 * _LEAST
        talking = min(pace * exchange, 1.0)
        start_M = self._before + 1 - self._behind_M
        busy_M = _covered(start_M, self.rate, busy_M)
        talk_M = 1 - _covered(start_M, self.rate, np.full(site.machines, 1 - talking))
        if site.layout == "roles":
            rolls = site.role_M == 1
            busy_M = np.where(rolls, 0.9 * self._generating, busy_M)
            talk_M = np.where(rolls, 0.05, talk_M)
        here_M = levers["member"] * self._resident
        self._talk_M = np.where(stopped_M, 0.0, np.minimum(talk_M, 1 - busy_M)) * here_M
        self._busy_U = (busy_M * here_M)[self._owner_U] * np.minimum(levers["speed"] * levers["present"] * 20, 1.0)
        wait_M = np.maximum(here_M - busy_M * here_M - self._talk_M, 0.0) * (self._left_M <= 0)
        wait_M = np.where(stopped_M, here_M, wait_M) * np.where(self._buffer_M < 1.0, 0.15, 1.0)  # for data no kernel spins
        self._wait_U = wait_M[self._owner_U] * levers["spin"] * levers["present"]

    def _heat(self, levers: dict[str, np.ndarray]) -> None:
        talk_U = self._talk_M[self._owner_U]
        drive_U = 0.72 * self._busy_U * self.clock_U**2 + 0.28 * talk_U + 0.17 * self._wait_U
        target_U = self._watts_U * (_IDLE_SHARE + drive_U) * (0.2 + 0.8 * levers["present"])
        self.power_U += (target_U - self.power_U) * 0.45
        air_M = self._air_M + self._inlet_M + levers["inlet"] + levers["inlet_all"][0]
        self.temp_U += (air_M[self._owner_U] + self._rise_U * levers["heat"] * self.power_U - self.temp_U) / 40
        self._hot_U = np.where(self._hot_U, self.temp_U > _COOL_C, self.temp_U > _HOT_C)
        limit_U = self.site.tdp_w * levers["power_cap"] * levers["power_all"][0]
        over_U = self.power_U / limit_U - 0.97
        wanted_U = np.minimum(self._slack_U, levers["clock_cap"])
        wanted_U = np.where(self._hot_U, np.minimum(wanted_U, 0.45), wanted_U)
        if self._resident < 0.5:
            wanted_U = wanted_U * 0.3
        self._capped_U = over_U > -0.02
        change_U = np.where(over_U > 0, -0.35 * over_U, np.clip(wanted_U - self.clock_U, -0.1, 0.05) * np.clip(-over_U * 8, 0.1, 1.0))
        self.clock_U = np.clip(np.minimum(self.clock_U + change_U, np.maximum(wanted_U, self.clock_U - 0.1)), 0.12, 1.0)

    def _flow(self, levers: dict[str, np.ndarray]) -> None:
        site = self.site
        carried_M = self._talk_M * self._inject_M
        load_S = np.bincount(site.switch_M, carried_M + levers["tenant"], self._queue_S.size) / (self._ports_S * site.oversubscription)
        self._queue_S = np.clip(self._queue_S + 0.5 * (load_S + levers["background"] - 0.95), 0.0, 1.0)
        room_M = levers["port"] * (1 - levers["tenant"])
        self._portq_M = np.clip(self._portq_M + 0.6 * (carried_M - 0.9 * room_M * np.maximum(self._talk_M, 0.2)), 0.0, 1.0)
        self._mark_M = np.clip(self._queue_S[site.switch_M] - 0.05, 0, 1) + self._portq_M * (room_M < 0.98)
        self._inject_M += 0.12 * (1 - self._inject_M) - 0.25 * self._mark_M * self._inject_M * self._talk_M
        self._inject_M = np.clip(self._inject_M, 0.08, 1.0)
        moved_M = self._talk_M * self._ring * self._link_bps
        down_M = levers["port"] < 0.05
        self.downs_M += down_M & ~self._was_down_M
        self._was_down_M = down_M
        self.port = {
            "rdma_throughput_bytes_per_second": moved_M * (1 - 0.9 * down_M) + 1e5,
            "ecn_packets_per_second": 2e4 * self._mark_M * self._talk_M + 0.5,
            "cnp_packets_per_second": 1.1e4 * self._mark_M * self._inject_M * self._talk_M + 0.3,
            "pfc_tx_packets_per_second": 3e3 * np.maximum(self._mark_M - 0.5, 0) * self._talk_M + 0.02,
            "rdma_xmit_wait_per_second": 4e6 * self._mark_M * self._talk_M + 2e3 * self._talk_M,
            "link_errors_per_second": (levers["loss"] + self._dirt_M) * (0.3 + 0.7 * np.minimum(self._talk_M * 3, 1)) + 300.0 * down_M,
            "link_downs_total": self.downs_M,
        }

    def _read_and_write(self, tick: int, levers: dict[str, np.ndarray]) -> None:
        site, pace = self.site, self.rate * self.site.step_s
        if self._due and tick >= self._due[0]:
            self._due.pop(0)
            if self._resident > 0.5 and pace > _STAND_RATE:
                self._left_M = self._calendar.volume_s * levers["writes"] * levers["member"]
        room = site.storage_room * float(levers["storage"][0]) * site.machines
        works_M = levers["member"] * self._resident * levers["alive"]
        want_M = np.clip(pace + (self._buffer_M < self._buffer_s) * 0.5, 0, 2.5) * works_M
        want_M = np.minimum(want_M, np.minimum(2.5 * levers["read"], 3 * levers["feed"] / levers["cost"][0]))
        writes_M = (self._left_M > 0) * levers["can_write"]
        asked = float(want_M.sum()) + float(writes_M.sum()) * 1.5 + 1e-9
        given = min(1.0, room / asked)
        self._full = min(asked / max(room, 1e-9), 4.0)
        self._read_M = np.maximum(want_M * given, 0.0)
        self._writes_M = writes_M * min(given, 1.0)
        self._left_M = np.maximum(self._left_M - self._writes_M, 0.0) * (self._resident > 0.5)
        self._buffer_M = np.clip(self._buffer_M + self._read_M - pace * works_M, 0.0, self._buffer_s)
        self._written_M += 2e-4 * self._writes_M

    def _keep_house(self, levers: dict[str, np.ndarray], drawn: np.ndarray) -> None:
        site, here_M = self.site, levers["member"] * self._resident
        talk_U = self._talk_M[self._owner_U]
        spins_M = self._wait_U.reshape(site.machines, -1).mean(axis=1)
        cpu_M = self._base_cpu + 0.1 * self._read_M * levers["cost"][0] + 0.03 * here_M + 0.02 * spins_M + 0.08 * self._writes_M
        self._used_M += (self._memory_M + 0.25 * here_M + levers["memory"] - self._used_M) / 12
        self._held_U += (self._held_at_U * here_M[self._owner_U] * levers["present"] + 0.01 - self._held_U) / 5
        self.ecc_U += levers["ecc"]
        for k, now_U in enumerate((self._busy_U, talk_U, self._wait_U)):  # a GPU's own counters average over more than a second
            self._seen_3U[k] += (now_U - self._seen_3U[k]) * 0.45
        reading_bps = self._step_bytes / min(site.step_s, 4.0)
        self.host = {
            "cpu_usage_ratio": cpu_M + levers["cpu"] + self._busy_cpu_M,
            "tcp_throughput_bytes_per_second": reading_bps * self._read_M + 9e8 * self._writes_M + 3e9 * levers["tenant"] + 4e4,
            "tcp_retransmits_per_second": 0.3 + np.abs(drawn[3]) ** 3 + 0.05 * levers["loss"] + 4 * max(self._full - 1, 0.0),
        }

    def measure(self) -> None:
        """Put the gauges of this tick beside the rates in `unit` and `host`."""
        site, levers, (busy_U, talk_U, wait_U) = self.site, self._levers.values, self._seen_3U
        read_U = self._read_M[self._owner_U]
        self.host |= {
            "memory_usage_ratio": np.minimum(self._used_M, 0.985),
            "disk_usage_ratio": np.minimum(self._disk_M + self._written_M + levers["disk"] * (1 - self._disk_M), 1.0),
            "tcp_round_trip_seconds": 1.5e-4 * (1 + 6 * self._full**2 * (self._read_M + self._writes_M)),
            "step_seconds": np.full(site.machines, self._step_s),
            "steps_total": np.full(site.machines, float(int(self.phase))),
            "alive": levers["alive"],
        }
        throttle_U = 4.0 * self._capped_U + 0x40 * self._hot_U + 2.0 * (levers["clock_cap"] < 0.99) + 1.0 * (busy_U + talk_U < 0.01)
        self.unit = {
            "gpu_duty_cycle_ratio": busy_U + talk_U + wait_U,
            "gpu_sm_activity_ratio": 0.92 * busy_U + 0.4 * talk_U + self._spin_sm * wait_U,
            "gpu_tensor_activity_ratio": self._tensor * busy_U * np.minimum(self.clock_U * levers["speed"] * 1.05, 1.0),
            "gpu_memory_bandwidth_ratio": self._dram * busy_U * (0.4 + 0.6 * self.clock_U * levers["speed"]) + 0.12 * talk_U,
            "gpu_power_draw_watts": self.power_U,
            "gpu_temperature_celsius": self.temp_U,
            "gpu_clock_hertz": self.clock_U * site.nominal_hz,
            "gpu_memory_used_ratio": self._held_U,
            "nvlink_bandwidth_bytes_per_second": self._nv_bps * (0.8 * busy_U + 0.6 * talk_U) * levers["nvlink"] + 1e4,
            "pcie_bandwidth_bytes_per_second": (4e9 * read_U + 6e9 * talk_U) * levers["pcie"] ** 0.5 + 5e7,
            "gpu_throttle_reasons": throttle_U,
            "gpu_ecc_uncorrectable_total": np.floor(self.ecc_U),
            "gpu_rows_remapped_total": np.floor(self.ecc_U / 8),
            "pcie_link_width": 16.0 * levers["pcie"],
            "present": levers["present"],
        }
