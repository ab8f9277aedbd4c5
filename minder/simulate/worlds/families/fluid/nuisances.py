"""What is odd on some machines although nothing is wrong with them, and exporters that say what is not so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.fluid.causes import Calendar, Cause
from minder.simulate.worlds.families.fluid.levers import Effect, Lie, hold, pulses
from minder.simulate.worlds.families.fluid.site import FABRIC, GPU, NODE, Site, stream

__all__ = ["NUISANCES", "Nuisances", "draw_nuisances"]

NUISANCES: Mapping[str, str] = MappingProxyType(
    {
        "rank0_writes_on": "machine 0 writes on after each checkpoint while the others spin",
        "agent_lost": "one machine's exporters are gone, its training goes on",
        "agent_restarted": "one machine's exporters are silent for seconds, and count from zero afterwards",
        "second_tenant": "another job uses processor and network of some machines",
        "hot_aisle": "the air at one rack is warmer",
        "unlike_roles": "trainers and rollout machines in one job",
        "broken_metrics": "one exporter of one machine gives nonsense",
        "unit_change": "a metric changes its unit on some machines",
        "exporter_freezes": "an exporter repeats its last values, its machine works on",
        "clock_lag": "some machines' clocks are wrong, by up to two minutes",
        "scrape_gaps": "scrapes are lost at random",
        "zeros_for_missing": "an exporter gives 0 where it has no value",
        "monitoring_out": "every exporter is silent for a while",
        "housekeeping": "nightly work on single machines: processor, disk",
        "uneven_machines": "generations of boards that differ by some percent",
    }
)
_OWNED = {"gpu": GPU, "node": NODE, "fabric": FABRIC}
_UNITS = {
    "gpu_clock_hertz": 1e-6,
    "rdma_throughput_bytes_per_second": 8.0,
    "nvlink_bandwidth_bytes_per_second": 1e-6,
    "pcie_bandwidth_bytes_per_second": 1e-3,
    "tcp_throughput_bytes_per_second": 8.0,
    "gpu_power_draw_watts": 1e-3,
    "tcp_round_trip_seconds": 1e3,
    "cpu_usage_ratio": 0.01,
}


@dataclass(slots=True)
class Nuisances:
    """names: what was drawn. clock_off_M: seconds. unfit: machines whose telemetry cannot show a fault."""

    clock_off_M: np.ndarray
    names: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    lies: list[Lie] = field(default_factory=list)
    unfit: set[int] = field(default_factory=set)
    gaps: float = 0.0
    uneven: float = 0.02


def _pick(site: Site, rng: np.random.Generator) -> int:
    return int(rng.integers(site.machines))


def _window(site: Site, rng: np.random.Generator, cause: Cause) -> tuple[float, float]:
    """Some minutes; now and then they begin in an evaluation or another job-wide cause."""
    if cause.name is not None and rng.random() < 0.4:
        start = rng.uniform(cause.start_s, cause.end_s)
    else:
        start = rng.uniform(0.1, 0.9) * site.duration_s
    return float(start), float(start + rng.uniform(30, 600))


def _lies(found: Nuisances, name: str, site: Site, rng: np.random.Generator, cause: Cause) -> None:
    machine, (start, end) = _pick(site, rng), _window(site, rng, cause)
    exporter = str(rng.choice(["gpu", "node", "fabric"]))
    lasts = float(rng.uniform(10, 60))
    until = end if lasts < 35 else site.duration_s + 1
    if name == "agent_lost":
        found.lies.append(Lie("all", machine, start, until, "silent"))
    elif name == "agent_restarted":
        found.lies += [Lie("all", machine, start, start + lasts, "silent"), Lie("all", machine, start, site.duration_s, "reset")]
    elif name == "exporter_freezes":
        found.lies.append(Lie(exporter, machine, start, end, "stuck"))
    elif name == "broken_metrics":
        found.lies.append(Lie(exporter, machine, start, until, rng.choice(["zero", "missing", "noise"])))
    elif name == "zeros_for_missing":
        names = [metric for metric in _OWNED[exporter] if metric in site.metrics]
        if names:
            found.lies.append(Lie(exporter, machine, 0.0, site.duration_s + 1, "zero", str(rng.choice(names))))
    elif name == "monitoring_out":
        found.lies += [Lie("all", m, start, min(start + 30 + lasts * 3, site.duration_s), "silent") for m in range(site.machines)]
    if name in ("agent_lost", "exporter_freezes", "broken_metrics"):
        found.unfit.add(machine)


def _unit_change(found: Nuisances, site: Site, rng: np.random.Generator) -> None:
    names = sorted(set(_UNITS) & set(site.metrics))
    name = str(rng.choice(names))
    start = float(rng.uniform(0.0, 0.8) * site.duration_s) if rng.random() < 0.7 else 0.0
    share = float(rng.choice([0.0, 0.3, 1.0]))
    chosen = np.flatnonzero(rng.random(site.machines) < share)
    exporter = next(exporter for exporter, owned in _OWNED.items() if name in owned)
    machines = chosen if chosen.size else np.array([_pick(site, rng)])
    found.lies += [Lie(exporter, int(m), start, site.duration_s + 1, "unit", name, _UNITS[name]) for m in machines]


def _effects(found: Nuisances, name: str, site: Site, rng: np.random.Generator, cause: Cause) -> None:
    start, end = _window(site, rng, cause)
    if name == "rank0_writes_on":
        found.effects.append(Effect("writes", np.array([0]), rng.uniform(2.5, 6.0), np.ones(site.ticks)))
    elif name == "second_tenant":
        machines = rng.choice(site.machines, size=min(site.machines, int(rng.integers(1, 4))), replace=False)
        course_T = hold(site.ticks, start, end, 10)
        found.effects.append(Effect("cpu", machines, rng.uniform(0.1, 0.3), course_T, add=True))
        found.effects.append(Effect("tenant", machines, rng.uniform(0.02, 0.12), course_T, add=True))
    elif name == "hot_aisle":
        machines = np.flatnonzero(site.rack_M == site.rack_M[_pick(site, rng)])
        slow_T = hold(site.ticks, start if rng.random() < 0.5 else -999, site.duration_s + 1, 300)
        found.effects.append(Effect("inlet", machines, rng.uniform(4.0, 11.0), slow_T, add=True))
    elif name == "housekeeping":
        for machine in rng.choice(site.machines, size=min(site.machines, int(rng.integers(2, 9))), replace=False):
            course_T = pulses(rng, _window(site, rng, cause), site.ticks, 200, rng.uniform(3, 40))
            found.effects.append(Effect("cpu", np.array([machine]), rng.uniform(0.05, 0.3), course_T, add=True))


def _clock_lag(found: Nuisances, site: Site, rng: np.random.Generator) -> None:
    several = rng.random(site.machines) < (0.1 if rng.random() < 0.4 else 0.0)
    several[_pick(site, rng)] = True
    off_M = rng.choice([-1.0, 1.0, 1.0], site.machines) * np.exp(rng.uniform(np.log(3.0), np.log(120.0), site.machines))
    found.clock_off_M[several] = off_M[several]


def draw_nuisances(site: Site, calendar: Calendar, cause: Cause) -> Nuisances:
    """Up to four of them, each from random numbers of its own."""
    rng = stream(site.seed, 4)
    lucky = rng.random(len(NUISANCES))
    allowed = np.array([name != "unlike_roles" and (name != "rank0_writes_on" or bool(calendar.checkpoints_s)) for name in NUISANCES])
    wanted = np.argsort(np.where(allowed, lucky, 2.0))[: int(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
    found = Nuisances(clock_off_M=np.zeros(site.machines))
    if site.layout == "roles":
        found.names.append("unlike_roles")
    for number in wanted:
        name, own = tuple(NUISANCES)[number], stream(site.seed, 100 + int(number))
        found.names.append(name)
        if name == "clock_lag":
            _clock_lag(found, site, own)
        elif name == "unit_change":
            _unit_change(found, site, own)
        elif name == "scrape_gaps":
            found.gaps = float(own.uniform(0.03, 0.2))
        elif name == "uneven_machines":
            found.uneven = float(own.uniform(0.04, 0.1))
        elif name in ("rank0_writes_on", "second_tenant", "hot_aisle", "housekeeping"):
            _effects(found, name, site, own, cause)
        else:
            _lies(found, name, site, own, cause)
    return found
