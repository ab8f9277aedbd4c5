"""Worlds as a statistical score: no step is simulated.

A job is a semi-Markov sequence of regimes, each with a vector of typical levels (job.py, levels.py). Machines are drawn from a hierarchy of
hall, rack, switch, stage, machine and device, and their residuals from common factors with loadings, autoregressions with heavy tails and
bursts that excite each other (residuals.py). A fault, a cause and a nuisance are changes of regime: shifts, spreads, loadings, and other
levels for those who wait (changes.py, events.py). samples.py puts them together.
Legend: N samples, K metrics, T scrapes, U units (a machine, or one of its devices), M machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.score import changes
from minder.simulate.worlds.families.score.events import Event, draw_causes, draw_fault, draw_nuisances
from minder.simulate.worlds.families.score.job import Job, draw_job
from minder.simulate.worlds.families.score.residuals import draw_residuals, gaps
from minder.simulate.worlds.families.score.samples import sampled
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]

NAME = "score"
FAULTS: Mapping[str, str] = MappingProxyType({name: change.says for name, change in changes.FAULTS.items()})
CAUSES: Mapping[str, str] = MappingProxyType({name: change.says for name, change in changes.CAUSES.items()})
NUISANCES: Mapping[str, str] = MappingProxyType({name: change.says for name, change in changes.NUISANCES.items()})

_FAULTY = 0.62  # of all seeds


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (world.py). machines: four or more; duration_s: five minutes or more, for every form of a fault to find its place."""
    job = draw_job(seed, machines, duration_s)
    common, local = draw_causes(seed, job), draw_nuisances(seed, job)
    has_fault = np.random.default_rng([seed, 0]).random() < _FAULTY if fault is None else fault != NO_FAULT
    guilty = draw_fault(seed, job, fault, (*common, *local)) if has_fault else None
    values_TKU = sampled(seed, job, draw_residuals(seed, job), common, local, guilty)
    keep_TU, off_M = _heard(seed, job, common, local, guilty, values_TKU)
    return _world(seed, job, values_TKU, keep_TU, off_M, _truth(job, common, local, guilty))


def _heard(
    seed: int, job: Job, common: tuple[Event, ...], local: tuple[Event, ...], guilty: Event | None, values_TKU: np.ndarray
) -> tuple[np.ndarray, dict[int, float]]:
    """(T, U) rows that reach the collector, and by how much clocks are off. Lost cells become NaN in place."""
    lost_TM, cells_TKU = gaps(seed, job)
    if cells_TKU.size:
        values_TKU[cells_TKU] = np.nan
    keep_TU, off_M = ~lost_TM[:, job.machine_U], {}
    for event in (*common, *local, *(() if guilty is None else (guilty,))):
        rng = np.random.default_rng([*event.seed, 4])
        mine_U = np.isin(job.machine_U, event.machines)
        active_TU = (event.severity_G[job.second_TU] > 0.3) & mine_U
        if "silent" in event.change.marks:
            keep_TU &= ~active_TU
        if "gaps" in event.change.marks:
            keep_TU &= ~(active_TU & (rng.random(lost_TM.shape) < 0.85)[:, job.machine_U])
        if "swap" in event.change.marks:
            before_TU = job.time_TU < event.onset_s + 0.5 * (event.end_s - event.onset_s)
            leaves, comes = event.machines
            keep_TU &= ~(((job.machine_U == leaves) & ~before_TU) | ((job.machine_U == comes) & before_TU))
        if "clock" in event.change.marks:
            off_M.update({m: float(rng.choice([-1, 1]) * rng.uniform(5, 120)) for m in event.machines})
    return keep_TU, off_M


def _world(seed: int, job: Job, values_TKU: np.ndarray, keep_TU: np.ndarray, off_M: dict[int, float], truth: Truth) -> World:
    if job.devices:
        of_device_K = np.array([level.name.startswith(("gpu", "nvlink", "pcie")) for level in job.levels])
        values_TKU[:, ~of_device_K[:, None] & (job.device_U >= 0)[None, :]] = np.nan
        values_TKU[:, of_device_K[:, None] & (job.device_U < 0)[None, :]] = np.nan
    keep_TU = keep_TU & ~np.isnan(values_TKU).all(axis=1)
    t_N, unit_N = np.nonzero(keep_TU)
    off_all_M = np.array([off_M.get(m, 0.0) for m in range(len(job.machines))])
    machine_N = job.machine_U[unit_N]
    names = job.machines
    has_stages, has_roles = bool(job.stage_M.max()), bool(job.role_M.max())
    return World(
        family=NAME, seed=seed, machines=names, metrics=tuple(level.name for level in job.levels), interval_s=job.interval_s,
        step_s=job.step_s, times_N=job.start_s + job.time_TU[t_N, unit_N] + off_all_M[machine_N], machine_N=machine_N,
        device_N=job.device_U[unit_N], values_NK=values_TKU[t_N, :, unit_N].astype(np.float64), truth=truth,
        devices=tuple(f"gpu{d}" for d in range(job.devices)),
        stages={name: int(stage) for name, stage in zip(names, job.stage_M, strict=True)} if has_stages else {},
        roles={name: ("trainer", "rollout")[int(role)] for name, role in zip(names, job.role_M, strict=True)} if has_roles else {},
        racks={name: f"rack{rack}" for name, rack in zip(names, job.rack_M, strict=True)} if "racks" in job.exports else {},
        switches={name: f"leaf{leaf}" for name, leaf in zip(names, job.switch_M, strict=True)} if "switches" in job.exports else {},
        clock_off_s={names[m]: off for m, off in off_M.items()},
    )  # fmt: skip


def _truth(job: Job, common: tuple[Event, ...], local: tuple[Event, ...], guilty: Event | None) -> Truth:
    nuisances = tuple(dict.fromkeys(event.name for event in local))
    cause = next((event.name for event in common), None)
    if guilty is None:
        return Truth(cause=cause, nuisances=nuisances)
    named = tuple(job.machines[m] for m in guilty.machines)
    if guilty.stops and any(event.onset_s > guilty.onset_s for event in common):
        cause = None  # the job stood before it could come
    is_group = guilty.change.who not in ("one", "two")
    return Truth(
        culprits=() if is_group else named, group=named if is_group else (), fault=guilty.name, onset_s=job.start_s + guilty.onset_s,
        end_s=None if np.isinf(guilty.end_s) else job.start_s + guilty.end_s, grey=guilty.change.grey, cause=cause, nuisances=nuisances,
    )  # fmt: skip
