"""Counters and exporters: worlds that are an account of what each rank does, read through the exporters that a site happens to have.

Kernels and drivers only hold counters and gauges, advanced by a discrete account of every step: load, work, receive, spin, send, write,
blocked. Faults and innocents act on that account, on a kernel's counters or on an exporter, and metrics follow.
Legend: N samples, K metrics, R scrapes, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from minder.model.errors import ConfigError
from minder.simulate.worlds.families.tally.account import keep_account
from minder.simulate.worlds.families.tally.acts import Act
from minder.simulate.worlds.families.tally.exporters import Scraped, scrape
from minder.simulate.worlds.families.tally.plan import CAUSE_MAKERS, FAULT_MAKERS, NUISANCE_MAKERS, Roll
from minder.simulate.worlds.families.tally.site import Site, build_site
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "Befallen", "befall", "draw"]

NAME = "tally"
FAULTS: Mapping[str, str] = MappingProxyType({name: fault.text for name, fault in FAULT_MAKERS.items()})
CAUSES: Mapping[str, str] = MappingProxyType({name: text for name, (text, _) in CAUSE_MAKERS.items()})
NUISANCES: Mapping[str, str] = MappingProxyType({name: text for name, (text, _) in NUISANCE_MAKERS.items()})
_FAULTY = 0.62
_ENDING = ("deadlock", "program_error")  # causes after which there is no job: they come late


def _cause(seed: int, site: Site) -> tuple[str | None, list[Act], int, float]:
    """What hits the whole job: its name, its acts, the place of a machine that is exchanged (-1: none) and when, in seconds."""
    rng = np.random.default_rng([seed, 4])
    happens, name = rng.random() < 0.42, str(rng.choice(list(CAUSES)))
    share = rng.uniform(0.8, 0.97) if name in _ENDING else rng.uniform(0.08, 0.85)
    place = int(rng.integers(site.machines))
    if not happens:
        return None, [], -1, 0.0
    acts = CAUSE_MAKERS[name][1](Roll(rng, site, (place,), float(share * site.duration_s)))
    return name, acts, place if name == "exchange" else -1, acts[0].end_s


def _nuisances(seed: int, site: Site) -> tuple[tuple[str, ...], list[Act], set[int], dict[int, float]]:
    """Names, acts, the machines that have one, and clocks that are off, in seconds."""
    rng = np.random.default_rng([seed, 5])
    names: list[str] = []
    acts: list[Act] = []
    taken: set[int] = set()
    clocks: dict[int, float] = {}
    for _ in range(min(int(rng.poisson(1.3)), 4)):
        name = str(rng.choice(list(NUISANCES)))
        place = int(rng.integers(site.machines))
        roll = Roll(rng, site, (place,), float(rng.uniform(0.05, 0.9) * site.duration_s))
        made = NUISANCE_MAKERS[name][1](roll)
        if name in names:
            continue
        names.append(name)
        acts.extend(made)
        taken.update(made[0].at or () if name == "chief_writes" else (place,))
        if name == "lagging_clock":
            clocks[place] = float(rng.uniform(-120.0, 120.0))
    return tuple(names), acts, taken, clocks


def _members(where: str, rng: np.random.Generator, site: Site, avoid: set[int]) -> tuple[int, ...]:
    """The machines that a fault hits, of those without a nuisance where there are enough."""
    free = [m for m in range(site.machines) if m not in avoid] or list(range(site.machines))
    first = int(free[int(rng.integers(len(free)))])
    if where == "pair":
        second = int(free[int(rng.integers(len(free)))])
        return (first, second if second != first else (first + 1) % site.machines)
    if where in ("rack", "switch"):
        place_M = site.rack_M if where == "rack" else site.switch_M
        return tuple(int(m) for m in np.flatnonzero(place_M == place_M[first]))
    return (first,)


def _fault(seed: int, site: Site, asked: str | None, avoid: set[int]) -> tuple[list[Act], Truth, tuple[int, ...]]:
    """The fault's acts, the truth with onset and end in seconds since the recording began, and the machines that it hits."""
    rng = np.random.default_rng([seed, 6])
    has = {metric for exporter in site.exporters for metric in exporter.metrics}
    weights = np.array([fault.weight * (1.0 if not fault.needs or has & set(fault.needs) else 0.1) for fault in FAULT_MAKERS.values()])
    has_one = rng.random() < _FAULTY
    own = str(rng.choice(list(FAULT_MAKERS), p=weights / weights.sum()))
    if asked == NO_FAULT or (asked is None and not has_one):
        return [], Truth(), ()
    name = asked or own
    fault = FAULT_MAKERS[name]
    onset_s = float(rng.uniform(120.0, max(150.0, 0.75 * site.duration_s)))
    when, early_s = rng.random(), float(rng.uniform(5.0, 120.0))
    if when < 0.08:
        onset_s = early_s
    elif when < 0.15 and fault.grey:
        onset_s = 0.0
    members = _members(fault.where, rng, site, avoid)
    acts = fault.make(Roll(rng, site, members, onset_s))
    if onset_s == 0.0:  # slow long before the first row
        acts = [replace(act, start_s=-1e4) if act.start_s == 0.0 and act.stall is None else act for act in acts]
    ends_s = min(act.end_s for act in acts[-1:])
    if fault.grey and rng.random() < 0.12:
        ends_s = onset_s + float(rng.uniform(240.0, 900.0))
        acts = [replace(act, end_s=min(act.end_s, ends_s)) for act in acts if act.start_s < ends_s]
    end_s = ends_s if ends_s < site.duration_s else None
    return acts, Truth(fault=name, onset_s=onset_s, end_s=end_s, grey=fault.grey), members


def _rows(site: Site, found: list[tuple[int, Scraped]], metrics: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Times in seconds, machine, device and values of all rows. One scrape of a machine with the same stamps is one row."""
    tables: dict[tuple[int, int], list[Scraped]] = {}
    for device, scraped in found:
        tables.setdefault((device, int(scraped.stamps_NM is scraped.scrape_NM) or 2 + id(scraped)), []).append(scraped)
    times, machines, devices, values = [], [], [], []
    for (device, _), group in tables.items():
        heard_RM = np.logical_or.reduce([scraped.heard_NM for scraped in group])
        filled_RMK = np.full((*heard_RM.shape, len(metrics)), np.nan)
        for scraped in group:
            for name, value_RM in scraped.values.items():
                filled_RMK[:, :, metrics.index(name)] = np.where(scraped.heard_NM, value_RM, np.nan)
        heard_RM &= ~np.isnan(filled_RMK).all(axis=2)
        times.append(group[0].stamps_NM[heard_RM])
        machines.append(np.broadcast_to(np.arange(site.machines), heard_RM.shape)[heard_RM])
        devices.append(np.full(int(heard_RM.sum()), device))
        values.append(filled_RMK[heard_RM])
    return tuple(np.concatenate(parts) for parts in (times, machines, devices, values))


def _labels(seed: int, site: Site, names: tuple[str, ...]) -> dict[str, dict[str, int] | dict[str, str]]:
    """What the site knows of places: often all, sometimes none, now and then a machine short."""
    rng = np.random.default_rng([seed, 7])
    knows_stages, knows_racks, knows_switches = rng.random() < 0.85, rng.random() < 0.75, rng.random() < 0.5
    known_M = rng.random(len(names)) > (0.05 if rng.random() < 0.2 else 0.0)
    place = [min(m, site.machines - 1) for m in range(len(names))]
    known = [(name, m) for name, m, is_known in zip(names, place, known_M, strict=True) if is_known]
    return {
        "stages": {name: int(site.stage_M[m]) for name, m in known} if knows_stages and site.stages > 1 else {},
        "roles": {name: "rollout" if site.rollout_M[m] else "trainer" for name, m in known} if site.mode == "rollout" else {},
        "racks": {name: f"rack-{site.rack_M[m]:03d}" for name, m in known} if knows_racks else {},
        "switches": {name: f"leaf-{site.switch_M[m]:03d}" for name, m in known} if knows_switches else {},
    }


@dataclass(frozen=True, slots=True)
class Befallen:
    """All acts of a world. truth: without names, times in seconds since the recording began. members: places that the fault hits.

    exchanged: the place that a spare takes over at swap_s, -1 for none. clocks: seconds by which the clocks of places are off.
    """

    acts: list[Act]
    truth: Truth
    members: tuple[int, ...]
    exchanged: int
    swap_s: float
    clocks: dict[int, float]


def befall(seed: int, site: Site, fault: str | None = None) -> Befallen:
    """What happens to a site. fault: as in `draw`."""
    cause, cause_acts, exchanged, swap_s = _cause(seed, site)
    nuisances, nuisance_acts, taken, clocks = _nuisances(seed, site)
    fault_acts, truth, members = _fault(seed, site, fault, taken | ({exchanged} if exchanged >= 0 else set()))
    acts = [*cause_acts, *nuisance_acts, *fault_acts]
    return Befallen(acts, replace(truth, cause=cause, nuisances=nuisances), members, exchanged, swap_s, clocks)


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world: see `minder.simulate.worlds.world.Family`. Raises ConfigError for a fault that there is not."""
    if fault is not None and fault != NO_FAULT and fault not in FAULT_MAKERS:
        raise ConfigError(f'there is no fault "{fault}": use {", ".join(FAULT_MAKERS)} or {NO_FAULT}')
    site = build_site(seed, machines, duration_s)
    befallen = befall(seed, site, fault)
    truth, members, exchanged = befallen.truth, befallen.members, befallen.exchanged
    acts = befallen.acts
    found = scrape(site, acts, keep_account(site, acts, seed), seed)
    metrics = tuple(dict.fromkeys(name for _, scraped in found for name in scraped.values))
    times_N, machine_N, device_N, values_NK = _rows(site, found, metrics)

    rng = np.random.default_rng([seed, 8])
    start_s = 1.7e9 + float(rng.integers(0, 40_000_000))
    stem = str(rng.choice(["node", "gpu", "worker", "host", "pod"]))
    numbers = np.sort(rng.choice(9 * site.machines + 20, site.machines + 1, replace=False))
    names = tuple(f"{stem}-{number:05d}" for number in numbers)
    if exchanged >= 0:  # the spare keeps the account of the place that it takes over
        machine_N = np.where((machine_N == exchanged) & (times_N >= befallen.swap_s), site.machines, machine_N)
    else:
        names = names[: site.machines]
    off_M = np.zeros(len(names))
    if rng.random() < 0.06:
        off_M[: site.machines] = rng.uniform(-30.0, 30.0, site.machines)
    for place, off_s in befallen.clocks.items():
        off_M[place] = off_s
    labels = _labels(seed, site, names)
    if exchanged >= 0:
        for table in labels.values():
            if names[exchanged] in table:
                table[names[-1]] = table[names[exchanged]]  # type: ignore[assignment]
    named = tuple(names[m] for m in members)
    is_group = truth.fault is not None and FAULT_MAKERS[truth.fault].where in ("rack", "switch")
    truth = replace(
        truth, culprits=() if is_group else named, group=named if is_group else (),
        onset_s=None if truth.onset_s is None else start_s + truth.onset_s, end_s=None if truth.end_s is None else start_s + truth.end_s,
    )  # fmt: skip
    return World(
        family=NAME, seed=seed, machines=names, metrics=metrics, interval_s=site.scrape_s, step_s=site.step_s,
        times_N=start_s + times_N + off_M[machine_N], machine_N=machine_N.astype(np.int64), device_N=device_N.astype(np.int64),
        values_NK=values_NK, truth=truth, devices=tuple(f"gpu{d}" for d in range(site.devices)),
        stages=labels["stages"], roles=labels["roles"], racks=labels["racks"], switches=labels["switches"],  # type: ignore[arg-type]
        clock_off_s={name: float(off_s) for name, off_s in zip(names, off_M, strict=True) if off_s},
    )  # fmt: skip
