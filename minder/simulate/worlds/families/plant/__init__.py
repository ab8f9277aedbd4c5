"""Worlds out of the physics of a plant: heat, clocks, lanes, links and disks decide how long a step takes, and all that is read off them.

Each machine is a small physical system: heat flows from die to sink to the air of its rack; governors move clocks by power and
temperature; lanes, links and disks have rates and queues. A step is a demand in work and bytes, and the slowest machine decides its pace.
Faults change one physical parameter and nothing else.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.plant.background import CAUSES, NUISANCES, apply_background, choose_background
from minder.simulate.worlds.families.plant.changes import Changes
from minder.simulate.worlds.families.plant.exporters import scrape
from minder.simulate.worlds.families.plant.faults import FAULTS, apply_fault, choose_fault
from minder.simulate.worlds.families.plant.physics import operate
from minder.simulate.worlds.families.plant.site import Site, draw_site
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]

NAME = "plant"


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world of one seed. fault: one of FAULTS, NO_FAULT, or None for the seed's own choice; duration_s: seconds."""
    if fault is not None and fault != NO_FAULT and fault not in FAULTS:
        raise ValueError(f'there is no fault "{fault}" in {NAME}')
    site = draw_site(seed, machines, duration_s)
    changes = Changes(site)
    background = choose_background(site, seed)
    off_s = apply_background(site, changes, background, seed)
    chosen = None if fault == NO_FAULT else choose_fault(site, seed, fault, background)
    if chosen is not None:
        apply_fault(site, changes, chosen, seed)
    times_N, machine_N, device_N, values_NK, metrics = scrape(site, changes, operate(site, changes, seed), seed)
    by_machine = np.zeros(len(site.names))
    for machine, seconds in off_s.items():
        by_machine[machine] = seconds
    truth = Truth(cause=background.cause, nuisances=tuple(name for name, _ in background.nuisances))
    if chosen is not None:
        named = tuple(site.names[machine] for machine in chosen.machines)
        truth = Truth(
            culprits=() if chosen.grouped else named,
            group=named if chosen.grouped else (),
            fault=chosen.name,
            onset_s=site.start_s + chosen.onset_s,
            end_s=site.start_s + chosen.end_s,
            grey=chosen.grey,
            cause=background.cause,
            nuisances=truth.nuisances,
        )
    return World(
        family=NAME,
        seed=seed,
        machines=site.names,
        metrics=metrics,
        interval_s=site.scrape_s,
        step_s=site.step_s,
        times_N=times_N + by_machine[machine_N],
        machine_N=machine_N,
        device_N=device_N,
        values_NK=values_NK,
        truth=truth,
        devices=tuple(f"gpu{index}" for index in range(site.gpus)) if site.per_gpu else (),
        stages=_named(site, site.stage_M),
        roles=MappingProxyType(
            {name: ("trainer", "rollout")[role] for name, role in zip(site.names, site.role_M, strict=True) if role >= 0}
        ),
        racks=MappingProxyType({name: f"rack{rack}" for name, rack in zip(site.names, site.rack_M, strict=True)}),
        switches=MappingProxyType({name: f"leaf{switch}" for name, switch in zip(site.names, site.switch_M, strict=True)}),
        clock_off_s=MappingProxyType({site.names[machine]: seconds for machine, seconds in off_s.items()}),
    )


def _named(site: Site, stage_M: np.ndarray) -> MappingProxyType[str, int]:
    return MappingProxyType({name: int(stage) for name, stage in zip(site.names, stage_M, strict=True) if stage >= 0})
