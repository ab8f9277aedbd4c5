"""Fluid: machines are coupled differential equations in continuous time, and exporters sample and filter their states."""

from __future__ import annotations

import numpy as np

from minder.model.errors import ConfigError
from minder.simulate.worlds.families.fluid.causes import CAUSES, TERMINAL, Calendar, Cause, draw_calendar, draw_cause
from minder.simulate.worlds.families.fluid.exporters import Rows, exporters_of, gather
from minder.simulate.worlds.families.fluid.faults import FAULTS, GROUPS, Fault, Times, draw_fault, visible_faults
from minder.simulate.worlds.families.fluid.nuisances import NUISANCES, Nuisances, draw_nuisances
from minder.simulate.worlds.families.fluid.plant import Plant
from minder.simulate.worlds.families.fluid.site import Site, draw_site, stream
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw", "is_faulty"]

NAME = "fluid"


def is_faulty(seed: int) -> bool:
    """Whether this seed's own choice is a fault: two in three are."""
    return bool(stream(seed, 8).random() < 2 / 3)


def _own_kind(seed: int, site: Site) -> str:
    kinds = visible_faults(site)
    return kinds[int(stream(seed, 10).random() * len(kinds))]


def _times(site: Site, calendar: Calendar, cause: Cause, nuisances: Nuisances) -> Times:
    latest = 0.72 * site.duration_s
    if cause.name in TERMINAL:
        latest = min(latest, cause.start_s - 200)
    avoid = {m for m in (cause.left, cause.joined) if m is not None}
    if len(nuisances.unfit | avoid) < site.machines:
        avoid |= nuisances.unfit
    return Times(latest, calendar.checkpoints_s, frozenset(avoid))


def _truth(site: Site, names: tuple[str, ...], fault: Fault | None, cause: Cause, nuisances: Nuisances) -> Truth:
    if fault is None:
        return Truth(cause=cause.name, nuisances=tuple(nuisances.names))
    hit = tuple(names[m] for m in fault.machines)
    group = fault.kind in GROUPS
    return Truth(
        culprits=() if group else hit,
        group=hit if group else (),
        fault=fault.kind,
        onset_s=site.start_s + fault.onset_s,
        end_s=None if fault.end_s is None else site.start_s + fault.end_s,
        grey=fault.grey,
        cause=cause.name,
        nuisances=tuple(nuisances.names),
    )


def _record(site: Site, calendar: Calendar, cause: Cause, nuisances: Nuisances, fault: Fault | None) -> Rows:
    effects = calendar.effects + cause.effects + nuisances.effects + (fault.effects if fault else [])
    plant, exporters = Plant(site, calendar, nuisances, effects), exporters_of(site)
    for tick in range(site.ticks):
        plant.step(tick)
        if any(exporter.due(tick) for exporter in exporters):
            plant.measure()
        for exporter in exporters:
            exporter.watch(plant, tick)
    for exporter in exporters:
        exporter.finish(nuisances.lies + (fault.lies if fault else []), nuisances.gaps)
    return gather(site, exporters, nuisances)


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world of this family; see `world.Family`.

    fault: one of FAULTS, NO_FAULT, or None for the seed's own choice. machines: 4 and more. duration_s: 400 and more, in seconds.
    Raises ConfigError for what it cannot draw.
    """
    if fault is not None and fault != NO_FAULT and fault not in FAULTS:
        raise ConfigError(f"fluid: no fault {fault!r}; it has {', '.join(FAULTS)}")
    if (machines is not None and machines < 4) or (duration_s is not None and duration_s < 400):
        raise ConfigError("fluid: a world has 4 or more machines and 400 or more seconds")
    site = draw_site(seed, machines, duration_s)
    faulty = is_faulty(seed)
    calendar = draw_calendar(site)
    cause = draw_cause(site, chance=0.3 if faulty else 2 / 3, terminal=not faulty)
    nuisances = draw_nuisances(site, calendar, cause)
    wanted = fault or (_own_kind(seed, site) if faulty else NO_FAULT)
    drawn = None if wanted == NO_FAULT else draw_fault(wanted, site, stream(seed, 9), _times(site, calendar, cause, nuisances))
    names = tuple(f"node-{m:04d}" for m in range(site.machines))
    times_N, machine_N, device_N, values_NK, metrics = _record(site, calendar, cause, nuisances, drawn)
    off = np.abs(nuisances.clock_off_M) > 0
    roles = {name: ("rollout" if site.role_M[m] else "trainer") for m, name in enumerate(names)} if site.layout == "roles" else {}
    return World(
        family=NAME,
        seed=seed,
        machines=names,
        metrics=metrics,
        interval_s=site.scrape_s,
        step_s=site.step_s,
        times_N=times_N,
        machine_N=machine_N,
        device_N=device_N,
        values_NK=values_NK,
        truth=_truth(site, names, drawn, cause, nuisances),
        devices=tuple(f"gpu{g}" for g in range(site.per_machine)) if site.device_rows else (),
        stages={name: int(site.stage_M[m]) for m, name in enumerate(names)} if site.layout == "pipeline" else {},
        roles=roles,
        racks={name: f"r{site.rack_M[m]}" for m, name in enumerate(names)},
        switches={name: f"leaf-{site.switch_M[m]}" for m, name in enumerate(names)},
        clock_off_s={name: float(nuisances.clock_off_M[m]) for m, name in enumerate(names) if off[m]},
    )
