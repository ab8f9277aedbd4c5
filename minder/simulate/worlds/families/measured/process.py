"""Random processes with the measured marginals and correlations, phase by phase.

A metric is its level in the low, high, waiting and idle part of its window, times an autoregressive process that is partly common to all
machines and to all metrics. Legend: U units, T scrapes, K metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minder.simulate.worlds.families.measured.load import Load, checkpoints
from minder.simulate.worlds.families.measured.profiles import PROFILES, Profile, load_quantiles
from minder.simulate.worlds.families.measured.sketch import Sketch, rng_for

__all__ = ["Recording", "cycle_s", "record"]

_MOVING = {
    "gpu_power_draw_watts": "power",
    "gpu_duty_cycle_ratio": "duty",
    "gpu_graphics_activity_ratio": "duty",
    "gpu_sm_activity_ratio": "sm",
    "gpu_tensor_activity_ratio": "tensor",
    "gpu_fp_activity_ratio": "tensor",
    "gpu_memory_bandwidth_ratio": "memory",
    "nvlink_bandwidth_bytes_per_second": "nvlink",
    "pcie_bandwidth_bytes_per_second": "pcie",
    "rdma_throughput_bytes_per_second": "rdma",
}
_AT_REST = {"power": 0.62, "pcie": 0.05}  # idle, as a share of the low level; 0 for the others
_CONGESTION = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second")
_FAST_S, _SLOW_S = 5.0, 70.0  # two time constants give the measured decay of autocorrelation


@dataclass(slots=True)
class Recording:
    """(U, T) arrays: times in seconds, values by metric, the busy, waiting and idle shares, and which rows are lost."""

    sketch: Sketch
    times_UT: np.ndarray
    lost_UT: np.ndarray
    high_UT: np.ndarray
    wait_UT: np.ndarray
    idle_UT: np.ndarray
    done_UT: np.ndarray
    values: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def busy_UT(self) -> np.ndarray:
        """The share of the window in which a unit works."""
        return np.asarray(1.0 - self.wait_UT - self.idle_UT)


def cycle_s(sketch: Sketch) -> float:
    """The step time of the job at its planned pace."""
    low, high = PROFILES[sketch.kind].cycle_s
    return float(low * (high / low) ** sketch.cycle)


def _times(sketch: Sketch) -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(sketch.seed, "scrapes")
    scrapes = int(sketch.duration_s / sketch.interval_s)
    offset_M = rng.uniform(0.0, sketch.interval_s, sketch.count)
    wobble_MT = rng.exponential(0.008 * sketch.interval_s, (sketch.count, scrapes))
    times_MT = np.minimum(np.arange(scrapes) * sketch.interval_s + offset_M[:, None] + wobble_MT, sketch.duration_s)
    lost_MT = rng.random((sketch.count, scrapes)) < float(rng.choice([0.0, 0.003, 0.02]))
    return np.repeat(times_MT, sketch.cards, axis=0), np.repeat(lost_MT, sketch.cards, axis=0)


def _high_part(load: Load, until: np.ndarray, window_s: float, high: float, cycle: float) -> tuple[np.ndarray, np.ndarray]:
    """The share of the window's work that lay in the high phase of a cycle, and the work done by its end."""

    def high_until(work: np.ndarray) -> np.ndarray:
        return np.floor(work / cycle) * high * cycle + np.minimum(work % cycle, high * cycle)

    end, begin = load.progress(until), load.progress(until - window_s)
    done = end - begin
    share = np.divide(high_until(end) - high_until(begin), done, out=np.full_like(done, high), where=done > 1e-6)
    return np.clip(share, 0.0, 1.0), end


def autoregress(rng: np.random.Generator, scrapes: int, series: int, interval_s: float) -> np.ndarray:
    """(T, series) of unit variance: a fast and a slow first-order process."""
    total_TX = np.zeros((scrapes, series))
    for tau_s, weight in ((_FAST_S, 0.8), (_SLOW_S, 0.6)):
        keep = float(np.exp(-interval_s / tau_s))
        noise_TX = rng.standard_normal((scrapes, series))
        now_X = noise_TX[0]
        for scrape in range(scrapes):
            now_X = keep * now_X + np.sqrt(1 - keep * keep) * noise_TX[scrape]
            total_TX[scrape] += weight * now_X
    return total_TX


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.7978845608 * (z + 0.044715 * z**3))))


def _profile_of(sketch: Sketch) -> list[tuple[np.ndarray, Profile]]:
    """Which units follow which profile: the job's, and another for machines with another role."""
    other_U = np.repeat(np.arange(sketch.count) >= sketch.count - sketch.others, sketch.cards)
    return [(~other_U, PROFILES[sketch.kind])] + ([(other_U, PROFILES["rollout"])] if sketch.others else [])


def _levels(sketch: Sketch, name: str, profile: Profile, units: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(U, 1) each: a metric in the low and high phase, waiting and idle. Units are alike: a Gaussian copula gives each its quantile."""
    rng = rng_for(sketch.seed, "level", name)
    field_name = _MOVING[name]
    low, high, wait = getattr(profile, field_name)
    job, own_U = rng.standard_normal(), rng.standard_normal(units)
    factor_U = (1.0 + profile.spread * own_U) * float(np.exp(0.12 * job * (field_name not in ("duty", "power"))))
    factor_U = factor_U * (0.2 if name == "gpu_fp_activity_ratio" else 1.0)
    most = max(low, high, 1e-9)
    top_U = most * factor_U
    known = load_quantiles(sketch.site).values if sketch.site != "h100" else {}
    if name in known and field_name != "duty" and profile is not PROFILES["rollout"]:
        at_U = _normal_cdf(np.sqrt(0.995) * job + np.sqrt(0.005) * own_U)
        top_U = load_quantiles(sketch.site).value(name, 0.62 + 0.37 * at_U)
    rest = _AT_REST.get(field_name, 0.0) * min(low, high)
    if field_name == "power":
        low, wait, rest = max(low, 0.3 * high), max(wait, 0.22 * high), 0.17 * high
    return tuple(top_U[:, None] * level / most for level in (low, high, wait, rest))


def _moving(recording: Recording, name: str) -> np.ndarray:
    """Levels by phase."""
    sketch, out_UT = recording.sketch, np.empty_like(recording.times_UT)
    for units_U, profile in _profile_of(sketch):
        low, high, wait, rest = _levels(sketch, name, profile, int(units_U.sum()))
        part_XT = recording.high_UT[units_U]
        if profile is PROFILES["rollout"]:  # machines that serve have no common phases
            part_XT = np.full_like(part_XT, profile.high)
        busy_XT = recording.busy_UT[units_U] * (low * (1 - part_XT) + high * part_XT)
        out_UT[units_U] = busy_XT + wait * recording.wait_UT[units_U] + rest * recording.idle_UT[units_U]
    return out_UT


def _standing(recording: Recording, name: str) -> np.ndarray:
    """Metrics of the host, counters and codes."""
    sketch, times_UT = recording.sketch, recording.times_UT
    rng, units = rng_for(sketch.seed, "standing", name), sketch.units
    own_U = rng.standard_normal(units)[:, None]
    scale = float(np.exp(rng.uniform(-1.2, 1.2)))
    if name == "cpu_usage_ratio":
        return 0.08 * scale * (1 + 0.05 * own_U) * (0.4 + 0.8 * recording.busy_UT + 0.6 * recording.wait_UT + 0.3 * recording.idle_UT)
    if name in ("memory_usage_ratio", "disk_usage_ratio"):
        return float(rng.uniform(0.1, 0.6)) * (1 + 0.04 * own_U) + 1e-5 * scale * times_UT
    if name == "gpu_memory_used_ratio":
        quantiles = load_quantiles("seren" if sketch.site == "seren" else "kalos")
        return np.asarray(quantiles.value(name, float(rng.uniform(0.5, 0.97))) * (1 + 0.004 * own_U) + 0 * times_UT)
    if name in _CONGESTION:
        busy_UT = 0.02 + recording.busy_UT * (0.3 + recording.high_UT)
        return 1e3 * scale * np.exp(0.5 * own_U) * busy_UT * (100.0 if "wait" in name else 1.0)
    if name in ("tcp_throughput_bytes_per_second", "tcp_retransmits_per_second"):
        size = 2e7 if "throughput" in name else 0.3
        return np.asarray(size * scale * (1 + 0.1 * own_U) * (0.2 + recording.busy_UT + _writing(recording) * 10))
    if name == "link_errors_per_second":
        return np.asarray(rng.poisson(0.01 * scale * np.exp(own_U), times_UT.shape) / sketch.interval_s)
    if name == "gpu_clock_hertz":
        top = {"h100": 1.98e9, "kalos": 1.41e9, "seren": 1.41e9}[sketch.site]
        return np.asarray(top * (1 - 0.04 * (1 + 0.1 * own_U) * recording.busy_UT * recording.high_UT))
    if name == "gpu_throttle_reasons":
        return np.where(recording.idle_UT > 0.6, 1.0, 4.0 * float(rng.random() < 0.3) * (recording.busy_UT > 0.7))
    return _counted(recording, name, own_U)


def _counted(recording: Recording, name: str, own_U: np.ndarray) -> np.ndarray:
    sketch, times_UT = recording.sketch, recording.times_UT
    steps_UT = np.floor(recording.done_UT / cycle_s(sketch))
    if name == "steps_total":
        return np.asarray(steps_UT + np.floor(1e4 * sketch.cycle))
    if name == "step_seconds":
        return _step_seconds(recording, steps_UT)
    if name == "pcie_link_width":
        return np.full_like(times_UT, 16.0)
    return np.broadcast_to(np.floor(np.exp(own_U - 1.2)), times_UT.shape).copy()


def _step_seconds(recording: Recording, steps_UT: np.ndarray) -> np.ndarray:
    """How long the last step took: when the work was done, read backwards."""
    order = np.argsort(recording.times_UT, axis=None)
    work_N, at_N = recording.done_UT.ravel()[order], recording.times_UT.ravel()[order]
    cycle = cycle_s(recording.sketch)
    ended, began = (np.interp(steps_UT * cycle - back, work_N, at_N) for back in (0.0, cycle))
    return np.asarray(np.where(began > at_N[0], ended - began, cycle))


def _writing(recording: Recording) -> np.ndarray:
    writing_UT = np.zeros(recording.times_UT.shape, dtype=bool)
    for span in checkpoints(recording.sketch):
        writing_UT |= span.covers(recording.times_UT)
    return writing_UT


_STILL = ("_total", "_width", "_reasons", "step_seconds", "_errors_per_second")


def _wander(recording: Recording) -> None:
    """Times an autoregressive factor: alike for all machines by the profile, and alike for all metrics by 0.8."""
    sketch, profile = recording.sketch, PROFILES[recording.sketch.kind]
    names = [name for name in recording.values if not name.endswith(_STILL)]
    scrapes = recording.times_UT.shape[1]
    alike_U = np.empty((sketch.units, 1))
    for units_U, followed in _profile_of(sketch):
        alike_U[units_U] = followed.alike
    rng = rng_for(sketch.seed, "wander")
    # What is common is common at one time, not at one scrape: machines are scraped at different times.
    seconds_G = np.arange(-1.0, sketch.duration_s + 2.0)
    shared_GK = autoregress(rng, len(seconds_G), len(names) + 1, 1.0)
    own_TX = autoregress(rng, scrapes, len(names) * sketch.units, sketch.interval_s)
    own_KUT = own_TX.T.reshape(len(names), sketch.units, scrapes)
    for k, name in enumerate(names):
        common_UT = np.interp(recording.times_UT, seconds_G, 0.8 * shared_GK[:, 0] + 0.6 * shared_GK[:, k + 1])
        alike = alike_U if name in _MOVING else np.full_like(alike_U, 0.2)
        amount = 0.25 if name in _CONGESTION else 0.1 if name == "cpu_usage_ratio" else 0.12 if name.startswith("tcp") else profile.wander
        amount *= 0.1 if name.startswith(("memory", "disk", "gpu_memory_used", "gpu_clock")) else 1.0
        both_UT = np.sqrt(alike) * recording.busy_UT * common_UT + np.sqrt(1 - alike) * own_KUT[k]
        recording.values[name] = recording.values[name] * np.clip(1.0 + amount * both_UT, 0.05, 4.0)


def record(load: Load) -> Recording:
    """The healthy shape of every metric under this load, temperature left out: it follows the power that is shown."""
    sketch = load.sketch
    times_UT, lost_UT = _times(sketch)
    rng = rng_for(sketch.seed, "window")
    window_s = float(rng.choice([0.5, 1.0, sketch.interval_s, sketch.interval_s]))
    lag_UT = np.repeat(rng.uniform(0.0, 0.05, sketch.count), sketch.cards)[:, None] + rng.uniform(0.0, min(1.0, sketch.interval_s / 3))
    high_UT, done_UT = _high_part(load, times_UT - lag_UT, window_s, PROFILES[sketch.kind].high, cycle_s(sketch))
    wait_UT, idle_UT = load.shares(times_UT - lag_UT, window_s)
    recording = Recording(sketch, times_UT, lost_UT, high_UT, wait_UT, idle_UT, done_UT)
    for name in (*sketch.metrics, "gpu_power_draw_watts"):
        if name != "gpu_temperature_celsius" and name not in recording.values:
            recording.values[name] = _moving(recording, name) if name in _MOVING else _standing(recording, name)
    _wander(recording)
    return recording
