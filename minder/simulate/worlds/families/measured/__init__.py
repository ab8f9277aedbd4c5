"""A family of worlds that replays the shapes of real telemetry: its marginals, correlations, time constants and phases.

No machine is simulated here. Metrics are autoregressive processes around levels that were measured on real jobs (profiles.py), joined by
a Gaussian copula; faults, causes and nuisances transform them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minder.simulate.worlds.families.measured.kinds import CAUSES, FAULTS, NUISANCES
from minder.simulate.worlds.families.measured.load import bear, checkpoints, stops_at
from minder.simulate.worlds.families.measured.process import Recording, cycle_s, record
from minder.simulate.worlds.families.measured.sketch import OF_GPU, Sketch, rng_for, sketch
from minder.simulate.worlds.families.measured.touch import deceive, touch, warm
from minder.simulate.worlds.world import Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "build", "draw"]

NAME = "measured"
_STEPS = {"gpu_temperature_celsius": 1.0, "gpu_clock_hertz": 15e6, "gpu_power_draw_watts": 0.1, "pcie_link_width": 1.0}


def _round_and_limit(recording: Recording) -> None:
    """As NVML and DCGM show them: whole degrees, whole percent in some exporters."""
    whole = bool(rng_for(recording.sketch.seed, "percent").random() < 0.6)
    for name, values_UT in recording.values.items():
        step = _STEPS.get(name, 0.01 if whole and name in ("gpu_duty_cycle_ratio", "cpu_usage_ratio") else 0.0)
        rounded_UT = np.round(values_UT / step) * step if step else values_UT
        recording.values[name] = np.clip(rounded_UT, 0.0, 1.0 if name.endswith("_ratio") else np.inf)


def _rows(recording: Recording) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """times_N, unit_N, device_N, values_NK in time order. GPU rows and host rows are apart where GPUs are exported."""
    sketch = recording.sketch
    split = sketch.cards > 1 or rng_for(sketch.seed, "split").random() < 0.25
    values_UTK = np.stack([recording.values[name] for name in sketch.metrics], axis=-1)
    unit_N, scrape_N = np.nonzero(~recording.lost_UT)
    times_N, values_NK = recording.times_UT[unit_N, scrape_N], values_UTK[unit_N, scrape_N]
    device_N = unit_N % sketch.cards if sketch.cards > 1 else np.full(len(unit_N), -1)
    if split:
        of_gpu_K = np.isin(sketch.metrics, OF_GPU)
        host_N = unit_N % sketch.cards == 0
        host_NK = np.where(of_gpu_K, np.nan, values_NK[host_N])
        values_NK = np.concatenate([np.where(of_gpu_K, values_NK, np.nan), host_NK])
        late_s = 0.2 * sketch.interval_s
        times_N, unit_N = np.concatenate([times_N, times_N[host_N] + late_s]), np.concatenate([unit_N, unit_N[host_N]])
        device_N = np.concatenate([device_N, np.full(int(host_N.sum()), -1)])
    order = np.argsort(times_N, kind="stable")
    return times_N[order], unit_N[order], device_N[order], values_NK[order]


def _truth(made: Sketch, names: tuple[str, ...], start_s: float) -> Truth:
    cause = made.cause.name if made.cause else None
    nuisances = tuple(it.name for it in made.nuisances)
    if made.fault is None:
        return Truth(cause=cause, nuisances=nuisances)
    it = made.fault
    who = tuple(names[k] for k in it.who)
    group = it.name.startswith("group")
    return Truth(
        culprits=() if group else who,
        group=who if group else (),
        fault=it.name,
        onset_s=start_s + max(0.0, it.start),
        end_s=start_s + min(it.end, made.duration_s),
        grey=it.grey,
        cause=cause,
        nuisances=nuisances,
    )


def _places(made: Sketch, names: tuple[str, ...], kind: str, size: int) -> dict[str, str]:
    known_M = rng_for(made.seed, kind).random(made.count) > 0.04
    return {name: f"{kind}{k // size:03d}" for k, name in enumerate(names) if made.topology and known_M[k]}


def _at_checkpoint(made: Sketch) -> Sketch:
    """A full disk shows when a checkpoint is written: the fault moves to the nearest one."""
    if made.fault is None or made.fault.name != "full_disk":
        return made
    planned = made.fault.start
    starts = [
        span.start
        for span in checkpoints(replace(made, fault=None))
        if min(240.0, 0.3 * made.duration_s) <= span.start <= 0.75 * made.duration_s
    ]
    nearest = min(starts, key=lambda start: abs(start - planned), default=planned)
    return replace(made, fault=replace(made.fault, start=nearest))


def build(made: Sketch) -> World:
    """The world of this sketch."""
    made = _at_checkpoint(made)
    load = bear(made)
    recording = record(load)
    touch(recording, load)
    warm(recording, load)
    _round_and_limit(recording)
    deceive(recording, load)
    times_N, unit_N, device_N, values_NK = _rows(recording)
    machine_N = unit_N // made.cards
    names = tuple(f"n{made.seed % 7}{k:04d}" for k in range(made.count))
    start_s = 1.75e9 + float(rng_for(made.seed, "calendar").integers(0, 30_000_000))
    truth = _truth(made, names, start_s)
    off_s = {
        names[it.who[0]]: float(rng_for(made.seed, "clock").uniform(20, 120) * (1 if it.size < 0.3 else -1))
        for it in made.nuisances
        if it.name == "clock_off"
    }
    stamped_N = start_s + times_N + np.array([off_s.get(name, 0.0) for name in names])[machine_N]
    machines = names
    if made.exchanged is not None and made.cause is not None and made.cause.start <= stops_at(made):
        machines = (*names, "n-standby")
        machine_N = np.where((machine_N == made.exchanged) & (times_N >= made.cause.start + 20), made.count, machine_N)
    return World(
        family=NAME,
        seed=made.seed,
        machines=machines,
        metrics=made.metrics,
        interval_s=made.interval_s,
        step_s=cycle_s(made),
        times_N=np.round(stamped_N, 3),
        machine_N=machine_N,
        device_N=device_N,
        values_NK=values_NK,
        truth=truth,
        devices=tuple(f"gpu{k}" for k in range(made.cards)) if made.cards > 1 else (),
        stages={name: made.stage_of(k) for k, name in enumerate(names)} if made.stages > 1 else {},
        roles={name: "rollout" if k >= made.count - made.others else "trainer" for k, name in enumerate(names)} if made.others else {},
        racks=_places(made, names, "rack", made.rack),
        switches=_places(made, names, "leaf", made.switch),
        clock_off_s=off_s,
    )


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world of this family; see `Family.draw`. Raises ValueError for a fault that is none of FAULTS."""
    return build(sketch(seed, fault=fault, machines=machines, duration_s=duration_s))
