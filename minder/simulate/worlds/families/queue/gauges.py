"""From intervals to metrics: each is an integral of what a server did over the exporter's window.

A window shorter than a step shows one phase of it (aliasing), a longer one its average. Legend: R servers, T scrapes, Q queries, K steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.queue import events
from minder.simulate.worlds.families.queue.events import Timeline
from minder.simulate.worlds.families.queue.layout import Layout, stream

__all__ = ["Gauges"]

_PROFILED = ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "gpu_graphics_activity_ratio")
_COUNTED = ("_bytes_per_second", "_packets_per_second", "_wait_per_second")
# Beside the states: what was computed, exchanged and written, in seconds at the healthy rate, and in which states it is.
_WORK, _MOVED, _WRITTEN = range(events.STATES, events.STATES + 3)
_DONE_IN = ((events.COMPUTE, events.REST), (events.EXCHANGE,), (events.WRITE,))
_SERIES = events.STATES + len(_DONE_IN)


@dataclass(frozen=True, slots=True)
class _Integrals:
    """Seconds in each state, and amounts, up to any time. total_SKR: before each step; an amount is spread evenly over its states."""

    timeline: Timeline
    total_SKR: np.ndarray
    before_KSR: np.ndarray

    @classmethod
    def of(cls, timeline: Timeline) -> _Integrals:
        length_KSR = timeline.length_KSR
        before_KSR = np.cumsum(length_KSR, axis=1) - length_KSR
        total_SKR = np.empty((_SERIES, *length_KSR[:, 0].shape))
        total_SKR[: events.STATES] = (np.cumsum(length_KSR, axis=0) - length_KSR).transpose(1, 0, 2)
        total_SKR[events.STATES :] = (np.cumsum(timeline.amount_KAR, axis=0) - timeline.amount_KAR).transpose(1, 0, 2)
        return cls(timeline, total_SKR, before_KSR)

    def until(self, times_RT: np.ndarray) -> np.ndarray:
        """(states and amounts, R, T): from the start to each time."""
        step_RT = np.maximum(np.searchsorted(self.timeline.begin_K, times_RT, side="right") - 1, 0)
        server_RT = np.broadcast_to(np.arange(len(times_RT))[:, None], times_RT.shape)
        into_RT = np.maximum(times_RT - self.timeline.begin_K[step_RT], 0.0)
        out = np.empty((_SERIES, *times_RT.shape))
        passed, lengths = {}, {}
        for state in range(events.STATES):
            lengths[state] = self.timeline.length_KSR[step_RT, state, server_RT]
            passed[state] = np.clip(into_RT - self.before_KSR[step_RT, state, server_RT], 0.0, lengths[state])
            out[state] = self.total_SKR[state][step_RT, server_RT] + passed[state]
        for amount, states in enumerate(_DONE_IN):
            done_RT, whole_RT = (sum(of[state] for state in states) for of in (passed, lengths))
            share_RT = np.divide(done_RT, whole_RT, out=np.zeros_like(out[0]), where=np.asarray(whole_RT) > 0)
            whole = self.timeline.amount_KAR[step_RT, amount, server_RT]
            out[events.STATES + amount] = self.total_SKR[events.STATES + amount][step_RT, server_RT] + whole * share_RT
        return out


class Gauges:
    """Readings of one world's servers as an exact instrument would give them, with each server's own level and noise."""

    def __init__(self, layout: Layout, timeline: Timeline) -> None:
        self.layout, self.timeline = layout, timeline
        self.integrals = _Integrals.of(timeline)
        self.rng = stream(layout.seed, "gauges")
        rng, servers = self.rng, layout.servers
        self.peak_R = rng.choice([400.0, 560.0, 680.0, 700.0]) * rng.normal(1.0, 0.02, servers)
        self.idle_R = rng.uniform(60.0, 120.0) * rng.normal(1.0, 0.02, servers)
        self.clock = float(rng.choice([1.41e9, 1.755e9, 1.98e9]))
        self.spread_R = rng.normal(1.0, 0.012, servers)
        self.spin = float(rng.uniform(0.2, 0.5))  # power of a GPU that spins in a collective, as a share of its peak
        self.tensor, self.memory = rng.uniform(0.2, 0.65), rng.uniform(0.25, 0.7)
        self.rates = np.exp(rng.uniform(np.log(0.3), np.log(3.0), 8))
        self.congested_R = np.exp(rng.normal(0.0, 0.4, servers))
        self.tau_s = float(rng.uniform(12.0, 40.0))
        self.rollout_R = np.repeat(layout.rollout_M, layout.gpus)
        self.full_R = rng.uniform(0.55, 0.93) * np.where(self.rollout_R, 0.9, 1.0) * rng.normal(1.0, 0.004, servers)
        self.counts_R = np.floor(rng.exponential(0.4, (3, servers)))
        self.host_R = rng.uniform(0.04, 0.25) * rng.normal(1.0, 0.08, servers)
        self.disk_R = rng.uniform(0.15, 0.75) + rng.normal(0.0, 0.03, servers)
        self.rises = float(rng.uniform(1e-6, 2e-5))

    def read(self, names: tuple[str, ...], times_RT: np.ndarray) -> dict[str, np.ndarray]:
        """(R, T) by metric, before an exporter touches it."""
        upto = self.integrals.until(times_RT)
        shares = [(upto - self.integrals.until(times_RT - window)) / window for window in self.layout.windows_s]
        return {name: self._noisy(name, self._exact(name, shares, times_RT)) for name in names}

    def _noisy(self, name: str, values_RT: np.ndarray) -> np.ndarray:
        """A slow drift of each server and white noise; counters and codes have none."""
        if name.endswith(("_total", "_width", "_reasons", "step_seconds", "_errors_per_second")):
            return values_RT
        rng = stream(self.layout.seed, name)
        servers, scrapes = values_RT.shape
        amount, knots = float(rng.uniform(0.002, 0.02)), max(3, int(self.layout.duration_s / 45) + 2)
        slow_RG = rng.standard_normal((servers, knots))
        place_T = np.linspace(0, knots - 1.001, scrapes)
        low_T, part_T = place_T.astype(int), place_T % 1.0
        drift_RT = slow_RG[:, low_T] * (1 - part_T) + slow_RG[:, low_T + 1] * part_T
        white_RT = rng.standard_normal(values_RT.shape)
        wide = 12.0 if name.endswith("_packets_per_second") or "wait" in name else 6.0 if name in ("cpu_usage_ratio",) else 1.0
        wide = 0.15 if name.startswith(("gpu_clock", "gpu_memory_used", "disk", "memory")) else wide
        return np.asarray(values_RT * np.exp(amount * wide * (0.6 * drift_RT + white_RT)))

    def _exact(self, name: str, shares: list[np.ndarray], times_RT: np.ndarray) -> np.ndarray:
        gauge, profile, counter = shares
        share = profile if name in _PROFILED else counter if name.endswith(_COUNTED) else gauge
        busy_RT = share[events.COMPUTE] + share[events.REST]
        wait_RT = share[events.WAIT] + share[events.TAIL]
        reader = _READERS.get(name)
        if reader is not None:
            return reader(self, busy_RT, wait_RT, share)
        if name == "gpu_temperature_celsius":
            return self._temperature(busy_RT, wait_RT, share, times_RT)
        return self._standing(name, times_RT)

    def _power(self, busy_RT: np.ndarray, wait_RT: np.ndarray, share: np.ndarray) -> np.ndarray:
        level_RT = busy_RT * np.where(self.rollout_R, 0.7, 1.0)[:, None] + 0.55 * share[events.EXCHANGE] + self.spin * wait_RT
        level_RT = level_RT + 0.12 * share[events.LOAD] + 0.05 * (share[events.WRITE] + share[events.HELD])
        return np.asarray(self.idle_R[:, None] + (self.peak_R - self.idle_R)[:, None] * level_RT)

    def _temperature(self, busy_RT: np.ndarray, wait_RT: np.ndarray, share: np.ndarray, times_RT: np.ndarray) -> np.ndarray:
        """A first-order lag behind power; a card's place in the air stream decides its offset."""
        rng = stream(self.layout.seed, "cooling")
        offset_R = np.tile(rng.uniform(0.0, 9.0, self.layout.gpus), len(self.layout.machines)) + rng.normal(0.0, 1.5, self.layout.servers)
        target_RT = 24.0 + offset_R[:, None] + 0.06 * rng.uniform(0.7, 1.1) * self._power(busy_RT, wait_RT, share)
        step_T = np.diff(times_RT.mean(axis=0), prepend=-300.0)
        mixed = 1.0 - np.exp(-step_T / self.tau_s)
        warm_RT = np.empty_like(target_RT)
        warm_R = target_RT[:, 0] * 0.9
        for scrape in range(target_RT.shape[1]):
            warm_R = warm_R + mixed[scrape] * (target_RT[:, scrape] - warm_R)
            warm_RT[:, scrape] = warm_R
        return warm_RT

    def _standing(self, name: str, times_RT: np.ndarray) -> np.ndarray:
        """Counters, codes and levels that no interval moves."""
        shape = times_RT.shape
        step_RT = np.maximum(np.searchsorted(self.timeline.begin_K, times_RT, side="right") - 1, 0)
        if name == "steps_total":
            return self.timeline.steps_K[step_RT].astype(float)
        if name == "step_seconds":
            length_K = np.diff(self.timeline.begin_K, prepend=self.timeline.begin_K[0] - self.layout.step_s)
            return np.asarray(length_K[step_RT])
        if name == "link_errors_per_second":
            rng = stream(self.layout.seed, name)
            return np.asarray(rng.poisson(0.02 * self.congested_R[:, None], shape) / self.layout.interval_s)
        if name == "memory_usage_ratio":
            return self.host_R[:, None] * 1.5 + 0.1 + self.rises * times_RT
        if name == "disk_usage_ratio":
            return self.disk_R[:, None] + 3 * self.rises * times_RT
        level = {"gpu_memory_used_ratio": self.full_R, "pcie_link_width": np.full(len(times_RT), 16.0)}
        level |= dict(zip(("gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total", "link_downs_total"), self.counts_R, strict=True))
        return np.broadcast_to(level.get(name, np.zeros(len(times_RT)))[:, None], shape).copy()

    def _clock(self, busy_RT: np.ndarray, wait_RT: np.ndarray, share: np.ndarray) -> np.ndarray:
        return self.clock * np.minimum(1.0, 1.0 - 0.06 * busy_RT * (2.0 - self.spread_R[:, None]))

    def _congestion(self, busy_RT: np.ndarray, wait_RT: np.ndarray, share: np.ndarray) -> np.ndarray:
        return np.asarray(3e3 * self.rates[0] * self.congested_R[:, None] * (0.02 + share[_MOVED]))

    def _processor(self, busy_RT: np.ndarray, wait_RT: np.ndarray, share: np.ndarray) -> np.ndarray:
        added_RT = 0.12 * busy_RT + 0.07 * wait_RT + 0.15 * share[events.LOAD] + 0.2 * share[events.WRITE]
        return np.asarray(self.host_R[:, None] * (0.5 + self.rates[1] * added_RT * 3) + 0.01)


_Reader = Callable[[Gauges, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _scaled(share_of: Callable[[Gauges, np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> _Reader:
    """A reading that is the same on all servers but for each one's own small factor."""
    return lambda gauges, busy, wait, share: share_of(gauges, busy, wait, share) * gauges.spread_R[:, None]


# What each interval adds to a reading, per second of it. `share[_WORK]` is work done per second: less on a slow server.
_READERS: dict[str, _Reader] = {
    "gpu_power_draw_watts": Gauges._power,
    "gpu_clock_hertz": Gauges._clock,
    "cpu_usage_ratio": Gauges._processor,
    "gpu_duty_cycle_ratio": lambda g, busy, wait, s: busy + wait + s[events.EXCHANGE],
    "gpu_graphics_activity_ratio": _scaled(lambda g, busy, wait, s: 0.97 * (busy + wait + s[events.EXCHANGE])),
    "gpu_sm_activity_ratio": _scaled(lambda g, busy, wait, s: 0.85 * busy + 0.22 * s[events.EXCHANGE] + 0.1 * wait),
    "gpu_tensor_activity_ratio": lambda g, busy, wait, s: g.tensor * np.where(g.rollout_R, 0.3, 1.0)[:, None] * s[_WORK],
    "gpu_fp_activity_ratio": _scaled(lambda g, busy, wait, s: 0.08 * g.rates[2] * s[_WORK]),
    "gpu_memory_bandwidth_ratio": _scaled(lambda g, busy, wait, s: g.memory * s[_WORK] + 0.12 * s[events.EXCHANGE]),
    "nvlink_bandwidth_bytes_per_second": _scaled(lambda g, busy, wait, s: 4e10 * g.rates[3] * (s[_WORK] + 0.4 * s[_MOVED])),
    "pcie_bandwidth_bytes_per_second": _scaled(
        lambda g, busy, wait, s: 2e9 * g.rates[4] * (0.4 * s[_WORK] + 0.1 * s[events.LOAD] + 1.5 * s[_WRITTEN]) + 2e7
    ),
    "rdma_throughput_bytes_per_second": _scaled(lambda g, busy, wait, s: 2.2e10 * g.rates[5] * s[_MOVED] + 2e5),
    "tcp_throughput_bytes_per_second": lambda g, busy, wait, s: 3e6 * g.rates[6] + 2e8 * g.rates[7] * (0.3 * s[_WORK] + s[_WRITTEN]),
    "pfc_tx_packets_per_second": lambda g, busy, wait, s: 0.1 * g._congestion(busy, wait, s),
    "ecn_packets_per_second": Gauges._congestion,
    "cnp_packets_per_second": lambda g, busy, wait, s: 0.6 * g._congestion(busy, wait, s),
    "rdma_xmit_wait_per_second": lambda g, busy, wait, s: 50 * g._congestion(busy, wait, s),
}
