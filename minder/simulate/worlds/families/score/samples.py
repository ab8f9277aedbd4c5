"""From levels, residuals and changes to the numbers that an exporter gives.

Legend: T scrapes, K metrics, U units, G seconds, M machines, R roles.
"""

from __future__ import annotations

import numpy as np

from minder.model.metrics import find_metric
from minder.simulate.worlds.families.score.events import Event
from minder.simulate.worlds.families.score.job import Job
from minder.simulate.worlds.families.score.levels import REGIMES, moved
from minder.simulate.worlds.families.score.residuals import Residuals

__all__ = ["sampled"]

_TOP_CLOCK_HZ = 1.98e9
_SOLE_POWER_REASON, _SLOWED, _BRAKED = 4, 0x20 | 0x40, 0x80  # bits of NVML's clocks event reasons


def sampled(
    seed: int, job: Job, residuals: Residuals, common: tuple[Event, ...], local: tuple[Event, ...], fault: Event | None
) -> np.ndarray:
    """(T, K, U): values of all units, gaps not yet taken out. common: events of the whole job; local: of healthy machines."""
    rng = np.random.default_rng([seed, 10])
    level_RGK, lost_G = _of_the_job(job, common, fault)
    second_TU, role_U = job.second_TU, job.role_M[job.machine_U]
    values_TKU = np.empty((len(job.time_TU), len(job.levels), len(job.machine_U)), dtype=np.float32)
    for k in range(len(job.levels)):
        values_TKU[:, k] = level_RGK[role_U, second_TU, k]
    _add_steps(job, values_TKU)
    if fault is not None:
        lost_G = 1.0 - (1.0 - lost_G) * (1.0 - _make_wait(job, fault, 1.0 - lost_G, values_TKU))
    score_TKU = residuals.score_TKU
    for event in (*local, *(() if fault is None else (fault,))):
        _shift(job, event, values_TKU)
        _loosen(job, event, residuals)
    heat = job.index("gpu_temperature_celsius")
    if heat is not None:
        _slow_heat(job, values_TKU[:, heat], float(rng.uniform(30, 80)))
    capped_U = rng.random(len(job.machine_U)) < float(rng.choice([0.0, 0.3, 0.9]))
    for k, level in enumerate(job.levels):
        values_TKU[:, k] = moved(values_TKU[:, k], score_TKU[:, k], level.link)
        if level.link == "count":  # whole events in a scrape: small rates are zeros with single ones between
            values_TKU[:, k] = np.floor(values_TKU[:, k] * job.interval_s + 0.5) / job.interval_s
    _add_states(rng, job, values_TKU, lost_G, capped_U)
    for event in (*common, *local, *(() if fault is None else (fault,))):
        _mark(job, event, values_TKU)
    _round(job, values_TKU)
    return values_TKU


def _of_the_job(job: Job, common: tuple[Event, ...], fault: Event | None) -> tuple[np.ndarray, np.ndarray]:
    """(R, G, K) level of each role at each second, and (G,) the share of the time that the trainers lose by causes."""
    level_RGK = np.einsum("rpg,rpk->rgk", job.regime_RPG, job.rows_RPK).astype(np.float32)
    lost_G = 1.0 - job.running_G
    for event in common:
        weight_G = event.wait * event.severity_G
        _blend(job, level_RGK, weight_G, event.change.own)
        lost_G = np.maximum(lost_G, weight_G)
        if "cold" in event.change.marks:
            lost_G = np.maximum(lost_G, _cold(job, level_RGK, event.end_s, 20 + event.seed[0] % 120))
        for metric, size in event.size.items():
            k = job.index(metric)
            if k is not None:
                level_RGK[:, :, k] = moved(level_RGK[:, :, k], size * event.severity_G, job.levels[k].link)
    if fault is not None and fault.stops and fault.kill_s < job.seconds:
        after_G = (np.arange(job.seconds) >= fault.kill_s).astype(np.float32)
        _blend(job, level_RGK, after_G, "gone")
        lost_G = np.maximum(lost_G, after_G)
        if fault.seed[0] % 5 < 2:  # with a spare, or by hand: the launcher starts again
            back_s = fault.kill_s + 60 + fault.seed[0] % 97
            _blend(job, level_RGK, (np.arange(job.seconds) >= back_s).astype(np.float32), "training")
            lost_G = np.where(np.arange(job.seconds) >= back_s, 0.0, lost_G)
            lost_G = np.maximum(lost_G, _cold(job, level_RGK, back_s, 90))
    return level_RGK, lost_G


def _cold(job: Job, level_RGK: np.ndarray, from_s: float, stay_s: float) -> np.ndarray:
    """Start and warm-up after a restart."""
    g = np.arange(job.seconds)
    start_G, warm_G = (g >= from_s) & (g < from_s + stay_s), (g >= from_s + stay_s) & (g < from_s + 2.5 * stay_s)
    _blend(job, level_RGK, start_G.astype(np.float32), "start")
    _blend(job, level_RGK, warm_G.astype(np.float32), "warmup")
    return start_G + 0.4 * warm_G


def _blend(job: Job, level_RGK: np.ndarray, weight_G: np.ndarray, regime: str) -> None:
    row_RK = job.rows_RPK[:, REGIMES.index(regime)]
    level_RGK += weight_G[None, :, None] * (row_RK[:, None] - level_RGK)


def _add_steps(job: Job, values_TKU: np.ndarray) -> None:
    """What scrapes see of single steps: a part of each in which bytes move and tensor cores rest; short steps are averaged away."""
    seen = max(0.0, 1.0 - job.window_s / job.step_s)
    if seen < 0.05:
        return
    lag_U = 0.02 * job.stage_M[job.machine_U] + 0.01 * (job.device_U % 2)
    share_TU = ((job.time_TU / job.step_s + lag_U) % 1.0 < job.comm) * seen * job.running_G[job.second_TU]
    for k, level in enumerate(job.levels):
        if level.traffic:
            values_TKU[:, k] *= 1.0 + (0.5 / job.comm) * share_TU - 0.3 * (seen * job.running_G[job.second_TU] - share_TU)
        elif level.group == "c" and level.name not in ("gpu_memory_used_ratio", "gpu_temperature_celsius"):
            spin_U = job.rows_RPK[job.role_M[job.machine_U], REGIMES.index("spin"), k]
            values_TKU[:, k] += 0.7 * share_TU * np.minimum(0.0, spin_U - values_TKU[:, k])


def _make_wait(job: Job, fault: Event, running_G: np.ndarray, values_TKU: np.ndarray) -> np.ndarray:
    """All but the culprits wait, later and in part; (G,) the share of their time that they lose."""
    rng = np.random.default_rng([*fault.seed, 1])
    weight_G = fault.severity_G if fault.stops else fault.wait * fault.severity_G * np.clip(running_G, 0.0, 1.0)
    until_G = np.arange(job.seconds) < fault.kill_s
    lag = int(rng.uniform(0, min(2 * job.step_s, 30.0)) + ("late_peers" in fault.change.marks) * rng.uniform(60, 240))
    tau_s = float(rng.uniform(1, 4) if fault.stops else rng.uniform(2, 20))
    peers_G = _lagged(weight_G, lag, tau_s) * until_G
    touched_U = _units(job, fault)
    first = fault.machines[0]
    own_role_U = job.role_M[job.machine_U] == job.role_M[first]
    coupling_U = np.where(touched_U, 1.0, rng.uniform(0.85, 1.0, len(touched_U)) if not fault.stops else 1.0)
    coupling_U = np.where(own_role_U, coupling_U, coupling_U * rng.uniform(0.3, 0.9))
    same_stage_U = job.stage_M[job.machine_U] == job.stage_M[first]
    regime_U = np.where(same_stage_U, REGIMES.index("spin"), REGIMES.index("receive"))
    regime_U = np.where(touched_U, REGIMES.index(fault.change.own), regime_U)
    share_TU = np.where(touched_U, weight_G[job.second_TU], peers_G[job.second_TU]) * coupling_U
    if fault.stops:  # its own row stays what it is even when the others are long gone
        share_TU = np.where(touched_U & (fault.change.own != "spin"), fault.severity_G[job.second_TU], share_TU)
    role_U = job.role_M[job.machine_U]
    share_TU = share_TU.astype(np.float32)
    for k in range(len(job.levels)):
        row_U = job.rows_RPK[role_U, regime_U, k].astype(np.float32)
        values_TKU[:, k] += share_TU * (row_U - values_TKU[:, k])
        if fault.stops and fault.kill_s < job.seconds:  # what was killed is not started again on a culprit
            gone_U = job.rows_RPK[role_U, REGIMES.index("gone"), k].astype(np.float32)
            values_TKU[:, k] = np.where(touched_U & (job.time_TU >= fault.kill_s), gone_U, values_TKU[:, k])
    return peers_G


def _lagged(weight_G: np.ndarray, lag: int, tau_s: float) -> np.ndarray:
    late_G = np.concatenate([np.zeros(lag), weight_G])[: len(weight_G)]
    kernel = np.exp(-np.arange(int(5 * tau_s) + 1) / tau_s)
    return np.asarray(np.convolve(late_G, kernel / kernel.sum())[: len(weight_G)])


def _units(job: Job, event: Event) -> np.ndarray:
    """(U,): which units an event touches; one device's leaves the machine's other devices as they are."""
    mine_U = np.isin(job.machine_U, event.machines)
    return mine_U & ((job.device_U < 0) | (job.device_U == event.device)) if event.device >= 0 else mine_U


def _shift(job: Job, event: Event, values_TKU: np.ndarray) -> None:
    units = np.flatnonzero(_units(job, event))
    severity_TX = event.severity_G[job.second_TU[:, units]]
    for metric, size in event.size.items():
        k = job.index(metric)
        if k is not None:
            values_TKU[:, k, units] = moved(values_TKU[:, k, units], size * severity_TX, job.levels[k].link)


def _loosen(job: Job, event: Event, residuals: Residuals) -> None:
    """More spread about their own mean, and less of the common factors, in what the change moves (in anything if it moves nothing)."""
    change = event.change
    if change.scale == 1.0 and change.loose == 0.0:
        return
    rng = np.random.default_rng([*event.seed, 2])
    lively = [k for k, level in enumerate(job.levels) if level.noise > 0]
    chosen = [k for k in lively if job.levels[k].name in change.shift] or [int(rng.choice(lively))]
    units = np.flatnonzero(_units(job, event))
    severity_TX = event.severity_G[job.second_TU[:, units]]
    for k in chosen:
        score_TX = residuals.score_TKU[:, k, units]
        mean_X = score_TX.mean(axis=0)
        free_TX = score_TX - change.loose * severity_TX * residuals.common_TK[:, k, None]
        residuals.score_TKU[:, k, units] = mean_X + (free_TX - mean_X) * (1.0 + (change.scale - 1.0) * severity_TX)


def _slow_heat(job: Job, heat_TU: np.ndarray, tau_s: float) -> None:
    keep = float(np.exp(-job.interval_s / tau_s))
    for t in range(1, len(heat_TU)):
        heat_TU[t] = keep * heat_TU[t - 1] + (1.0 - keep) * heat_TU[t]


def _add_states(rng: np.random.Generator, job: Job, values_TKU: np.ndarray, lost_G: np.ndarray, capped_U: np.ndarray) -> None:
    """Counters with a past of their own, masks and widths: what no score expresses."""
    units = len(job.machine_U)
    width = float(rng.choice([16.0, 16.0, 8.0]))
    past = {"gpu_ecc_uncorrectable_total": 0.03, "gpu_rows_remapped_total": 0.1, "link_downs_total": 0.8, "processes_stopped": 0.02}
    speed_G = np.clip(1.0 - lost_G, 0.0, 1.0)
    begun, progress_G = float(rng.integers(0, 200_000)), np.cumsum(speed_G) / job.step_s
    for k, level in enumerate(job.levels):
        if level.name in past:
            values_TKU[:, k] = rng.poisson(past[level.name], units) * rng.integers(1, 6, units)
        elif level.name == "pcie_link_width":
            values_TKU[:, k] = width
        elif level.name == "gpu_throttle_reasons":
            running_TU = speed_G[job.second_TU] > 0.3
            values_TKU[:, k] = _SOLE_POWER_REASON * (running_TU & capped_U & (rng.random(running_TU.shape) < 0.8))
        elif level.name == "steps_total":
            values_TKU[:, k] = np.floor(begun + progress_G[job.second_TU])
        elif level.name == "step_seconds":
            values_TKU[:, k] = job.step_s / np.maximum(speed_G, 0.03)[job.second_TU] * (1 + 0.01 * rng.standard_normal(job.time_TU.shape))


def _mark(job: Job, event: Event, values_TKU: np.ndarray) -> None:
    """What an event leaves in counters, masks, widths and in the exporter itself."""
    rng = np.random.default_rng([*event.seed, 3])
    units = np.flatnonzero(_units(job, event))
    active_TX = event.severity_G[job.second_TU[:, units]] > 0.3
    for mark in event.change.marks:
        if mark == "thermal":
            _set(job, values_TKU, "gpu_throttle_reasons", units, np.where(active_TX, _SLOWED, 0), add=True)
        elif mark == "brake":
            _set(job, values_TKU, "gpu_throttle_reasons", units, np.where(active_TX, _BRAKED, 0), add=True)
        elif mark == "width":
            less = float(rng.choice([0.25, 0.5]))
            k = job.index("pcie_link_width")
            if k is not None:
                values_TKU[:, k, units] *= np.where(active_TX, less, 1.0)
        elif mark in ("downs", "ecc", "rows", "stopped", "ecc_slow"):
            _count(job, event, mark, values_TKU)
        elif mark == "blind":
            gpu = [k for k, level in enumerate(job.levels) if level.name.startswith("gpu_")]
            gone_TX = active_TX & (job.devices > 0 or rng.random() < 0.5)
            for k in gpu:
                values_TKU[:, k, units] = np.where(gone_TX, np.nan, values_TKU[:, k, units])
        elif mark == "frozen":
            _freeze(values_TKU, units, active_TX)
        elif mark in ("broken", "units", "no_metric"):
            _break(rng, job, mark, values_TKU, units, active_TX)


def _set(job: Job, values_TKU: np.ndarray, metric: str, units: np.ndarray, value_TX: np.ndarray, *, add: bool) -> None:
    k = job.index(metric)
    if k is not None:
        values_TKU[:, k, units] = value_TX + (values_TKU[:, k, units] if add else 0.0)


def _count(job: Job, event: Event, mark: str, values_TKU: np.ndarray) -> None:
    """Counters rise by one with each return of the change; the slow ones by one every minute and a half."""
    names = {"downs": "link_downs_total", "ecc": "gpu_ecc_uncorrectable_total", "rows": "gpu_rows_remapped_total",
             "stopped": "processes_stopped", "ecc_slow": "gpu_ecc_uncorrectable_total"}  # fmt: skip
    rises_G = np.diff(event.severity_G > 0.3, prepend=False) & (event.severity_G > 0.3)
    total_G = np.cumsum(rises_G).astype(np.float64)
    if mark == "ecc_slow":
        total_G = np.cumsum(event.severity_G > 0.3) // 90 + total_G
    units = np.flatnonzero(_units(job, event))
    _set(job, values_TKU, names[mark], units, total_G[job.second_TU[:, units]] * (4.0 if mark == "stopped" else 1.0), add=True)


def _freeze(values_TKU: np.ndarray, units: np.ndarray, active_TX: np.ndarray) -> None:
    for x, u in enumerate(units):
        t = np.flatnonzero(active_TX[:, x])
        if len(t):
            values_TKU[t, :, u] = values_TKU[max(0, t[0] - 1), :, u]


def _break(rng: np.random.Generator, job: Job, mark: str, values_TKU: np.ndarray, units: np.ndarray, active_TX: np.ndarray) -> None:
    """One metric reads zero, is gone or comes in another unit."""
    k = int(rng.integers(0, len(job.levels)))
    if mark == "units":
        rates = [i for i, level in enumerate(job.levels) if level.name.endswith("per_second") or level.name.endswith("ratio")]
        k = int(rng.choice(rates))
        factor = float(rng.choice([0.01, 0.1]) if job.levels[k].name.endswith("ratio") else rng.choice([8.0, 0.125, 0.001]))
        values_TKU[:, k, units] *= np.where(active_TX, factor, 1.0).astype(np.float32)
        return
    zero = mark == "broken" and rng.random() < 0.4 and job.levels[k].name != "pcie_link_width"
    values_TKU[:, k, units] = np.where(active_TX, 0.0 if zero else np.nan, values_TKU[:, k, units])


def _round(job: Job, values_TKU: np.ndarray) -> None:
    for k, level in enumerate(job.levels):
        metric = find_metric(level.name)
        assert metric is not None, level.name
        high = _TOP_CLOCK_HZ if level.name == "gpu_clock_hertz" else metric.high
        if level.quantum > 0:
            values_TKU[:, k] = np.round(values_TKU[:, k] / level.quantum) * level.quantum
        np.clip(values_TKU[:, k], metric.low, high, out=values_TKU[:, k])
