"""What happens with and without a fault: causes that hit the whole job, and nuisances of single healthy machines.

Both are drawn by their own numbers, so they are as frequent in healthy worlds as in faulty ones.
Legend: T ticks. Seconds are since the recording began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.plant.changes import Changes
from minder.simulate.worlds.families.plant.site import Site, stream

__all__ = ["CAUSES", "NUISANCES", "Background", "apply_background", "choose_background"]

CAUSES: Mapping[str, str] = MappingProxyType({
    "storage_slow": "The shared file system slows down: all machines run out of input sooner or later.",
    "congestion": "Another job's traffic takes a part of the network between all machines.",
    "loader_slow": "Samples that cost more to prepare: input is late everywhere, processors have more to do.",
    "restart": "The job ends and starts again from its checkpoint; for a minute or more nothing runs.",
    "exchange": "The job restarts with a spare in the place of one machine, which then leaves.",
    "evaluation": "For minutes the job evaluates: less work a step, little traffic.",
    "long_checkpoint": "A checkpoint of all machines takes a minute or more; the first machine writes on while the others spin.",
    "load_shift": "Longer or shorter sequences: more or less work in every step.",
    "warm_hall": "The cooling of the hall fails for a while: the air gets hotter for all.",
    "curtailment": "The power limits of all GPUs are lowered: all clocks fall together.",
    "deadlock": "A bug of the program: all wait in collectives that do not match, until the watchdog ends the job.",
    "user_bug": "All processes end with the same exception; the machines idle.",
    "job_end": "The job is done before the recording ends; the machines idle.",
})  # fmt: skip
NUISANCES: Mapping[str, str] = MappingProxyType({
    "exporter_restart": "An exporter restarts: a gap of half a minute to three minutes while the job goes on.",
    "exporter_lost": "An agent is lost until the end; its machine works on unseen.",
    "exporter_frozen": "An exporter repeats its last values for minutes while the machine works.",
    "second_tenant": "Processes of another job use cores and network that this job does not need.",
    "hot_aisle": "Warm air comes back to one machine: hotter by up to ten degrees, not yet throttled.",
    "warm_slot": "A machine sits in a warm slot all the time.",
    "uneven_share": "One machine has less work than its peers, and waits for them in each step.",
    "first_writer": "The first machine writes on after each checkpoint while the others wait for it.",
    "slow_clock": "A machine's wall clock is off by up to two minutes: its samples are stamped so.",
    "broken_metric": "One metric of one machine is read wrongly, in another unit or as zero.",
    "leaky_board": "The boards of a machine leak: more watts and heat for the same work.",
    "harmless_errors": "A link counts corrected errors that cost nothing.",
    "busy_port": "Other traffic through one machine's port: more pauses and marks than its neighbours', no slower.",
    "backup": "A backup reads a machine's disk and sends it away; the input's queue hides it.",
    "page_cache": "Files fill a machine's memory as page cache, which is given back when needed.",
    "old_flaps": "A link goes down and up once, too short for the job to notice.",
    "low_bin": "A machine's boards clock a little lower for good; what they lose is less than the others' jitter.",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Background:
    """cause: one of CAUSES or None. nuisances: (name, machine). spare: the last machine waits outside the job until an exchange."""

    cause: str | None
    at_s: float
    lasts_s: float
    nuisances: tuple[tuple[str, int], ...]
    leaving: int | None

    @property
    def over_s(self) -> float:
        """When the cause ends the job's work for good; infinite if it does not."""
        return self.at_s if self.cause in ("deadlock", "user_bug", "job_end") else np.inf

    @property
    def touched(self) -> set[int]:
        """Machines with a nuisance, or that take part in an exchange."""
        return {machine for _, machine in self.nuisances} | (set() if self.leaving is None else {self.leaving})


def choose_background(site: Site, seed: int) -> Background:
    """What a seed has besides a fault: four in ten worlds a cause, two in three at least one nuisance."""
    law = stream(seed, 40)
    many = len(site.names)
    chance, cause = law.random(), str(law.choice(list(CAUSES)))
    at_s = law.uniform(0.15, 0.85) * site.duration_s
    lasts_s = float(np.exp(law.uniform(np.log(60.0), np.log(600.0))))
    nuisances = []
    for _ in range(int(law.choice(5, p=[0.32, 0.3, 0.2, 0.12, 0.06])) + (many > 400) * int(law.integers(0, 4))):
        name, machine = str(law.choice(list(NUISANCES))), int(law.integers(many))
        nuisances.append((name, 0 if name == "first_writer" else machine))
    leaving = int(law.integers(many - 1))
    held = cause if chance < 0.42 and (cause != "exchange" or many >= 6) else None
    return Background(held, at_s, lasts_s, tuple(dict(nuisances).items()), leaving if held == "exchange" else None)


def apply_background(site: Site, changes: Changes, background: Background, seed: int) -> dict[int, float]:
    """Write causes, checkpoints and nuisances into the plant's parameters. Returns the clocks that are off: machine to seconds."""
    law = stream(seed, 41)
    writers = [machine for name, machine in background.nuisances if name == "first_writer"]
    _checkpoints(site, changes, writers, law)
    if background.cause is not None:
        _cause(site, changes, background, stream(seed, 42))
    off_s: dict[int, float] = {}
    for index, (name, machine) in enumerate(background.nuisances):
        own = stream(seed, 50 + index)
        if name == "slow_clock":
            off_s[machine] = float(own.choice([-1.0, 1.0]) * np.exp(own.uniform(np.log(4.0), np.log(120.0))))
        else:
            _nuisance(site, changes, name, [machine], own)
    return off_s


def _checkpoints(site: Site, changes: Changes, writers: list[int], law: np.random.Generator) -> None:
    """Every some minutes all write; with a first writer the others wait for it afterwards."""
    every_s, lasts_s, first_s, more_s, chance = (
        law.uniform(180, 900),
        law.uniform(5, 40),
        law.uniform(0, 400),
        law.uniform(10, 60),
        law.random(),
    )
    if chance > 0.5 and not writers:
        return
    for at_s in np.arange(first_s, site.duration_s, every_s):
        changes.job("write")[:] = np.maximum(changes.job("write"), 0.97 * changes.pulse(at_s, at_s + lasts_s))
        if writers:
            changes.add("frozen", writers, 1.0, changes.pulse(at_s + lasts_s, at_s + lasts_s + more_s))
            changes.add("tcp", writers, 6e8, changes.pulse(at_s + lasts_s, at_s + lasts_s + more_s))


def _cause(site: Site, changes: Changes, background: Background, law: np.random.Generator) -> None:
    name, at_s, lasts_s = background.cause, background.at_s, background.lasts_s
    shape_T, every = changes.pulse(at_s, at_s + lasts_s), list(range(len(site.names)))
    size = law.random()
    factors = {
        "storage_slow": ("storage", site.demand.load * (0.3 + 0.5 * size)), "congestion": ("net", 0.25 + 0.45 * size),
        "loader_slow": ("loader", (1.2 + size) / site.demand.load), "load_shift": ("flop", 0.6 + size if size > 0.4 else 0.55 + size),
    }  # fmt: skip
    if name in factors:
        kind, factor = factors[name]
        changes.job(kind)[:] *= 1.0 + (factor - 1.0) * shape_T
        if name == "loader_slow":
            changes.machine("hog")[:] += (0.15 * shape_T)[:, None]
    elif name == "evaluation":
        changes.job("flop")[:] *= 1.0 - 0.45 * shape_T
        changes.job("traffic")[:] *= 1.0 - 0.85 * shape_T
    elif name == "long_checkpoint":
        write_s = min(lasts_s, 180.0)
        changes.job("write")[:] = np.maximum(changes.job("write"), changes.pulse(at_s, at_s + write_s))
        changes.add("frozen", [0], 1.0, changes.pulse(at_s + write_s, at_s + write_s + 40.0 + 80.0 * size))
    elif name == "warm_hall":
        changes.machine("inlet")[:] += (8.0 + 22.0 * size) * changes.pulse(at_s, at_s + max(lasts_s, 300.0), 240.0)[:, None]
    elif name == "curtailment":
        changes.gpu("cap")[:] *= (1.0 - (0.2 + 0.3 * size) * changes.pulse(at_s))[:, None, None]
    elif name == "deadlock":
        # All processes are in a collective, none of them stopped more than the others.
        changes.job("jam")[:] = changes.pulse(at_s, at_s + max(lasts_s, 300.0))
        changes.job("run")[changes.pulse(at_s + max(lasts_s, 300.0)) > 0] = 0.0
    elif name in ("user_bug", "job_end"):
        changes.job("run")[changes.pulse(at_s) > 0] = 0.0
    else:
        changes.job("run")[changes.pulse(at_s, at_s + min(lasts_s, 240.0)) > 0] = 0.0
    if name == "exchange" and background.leaving is not None:
        come_s = at_s + 0.3 * min(lasts_s, 240.0)
        changes.put("silent", [background.leaving], 1.0, changes.pulse(at_s))
        changes.put("silent", every[-1:], 1.0, 1.0 - changes.pulse(come_s))


def _nuisance(site: Site, changes: Changes, name: str, hit: list[int], law: np.random.Generator) -> None:
    at_s, size = law.uniform(0.05, 0.9) * site.duration_s, law.random()
    shape_T = changes.pulse(at_s, at_s + np.exp(law.uniform(np.log(90.0), np.log(1500.0))), law.choice([0.0, 60.0]))
    always_T = np.ones(site.ticks)
    added = {
        "hot_aisle": ("inlet", 4.0 + 7.0 * size, shape_T), "warm_slot": ("inlet", 4.0 + 6.0 * size, always_T),
        "second_tenant": ("hog", 0.08 + 0.3 * size, shape_T), "harmless_errors": ("errors", 0.2 + 20.0 * size**3, shape_T),
        "backup": ("tcp", 2e8 + 1.5e9 * size, shape_T), "page_cache": ("memory", 0.08 + 0.25 * size, shape_T),
        "exporter_frozen": ("stuck", 1.0, shape_T),
    }  # fmt: skip
    factors = {
        "uneven_share": ("share", 0.75 + 0.2 * size, always_T), "low_bin": ("lock", 0.965 + 0.02 * size, always_T),
        "busy_port": ("marks", 2.0 + 5.0 * size, shape_T), "leaky_board": ("airflow", 0.7 + 0.2 * size, always_T),
    }  # fmt: skip
    if name in added:
        kind, much, when_T = added[name]
        changes.add(kind, hit, much, when_T)
    elif name in factors:
        kind, much, when_T = factors[name]
        changes.factor(kind, hit, much, when_T)
    if name == "second_tenant":
        changes.add("tcp", hit, 1e9 * law.random(), shape_T)
        changes.add("memory", hit, 0.15 * law.random(), shape_T)
    elif name == "backup":
        changes.add("hog", hit, 0.05, shape_T)
        changes.factor("disk", hit, min(1.0, site.demand.load * 1.15), shape_T)
    elif name == "leaky_board":
        site.silicon_MG[hit] *= 1.06 + 0.08 * size
    elif name == "exporter_restart":
        changes.put("silent", hit, 1.0, changes.pulse(at_s, at_s + 30.0 + 150.0 * size))
    elif name == "exporter_lost":
        changes.put("silent", hit, 1.0, changes.pulse(at_s))
    elif name == "broken_metric":
        changes.put("broken", hit, float(law.integers(1, len(site.metrics))), always_T if size < 0.5 else shape_T)
        changes.machine("scaled")[:] = float(law.choice([0.0, 0.1, 1.06]))
    elif name == "old_flaps":
        changes.machine("downs")[min(int(at_s / site.tick_s), site.ticks - 1), hit[0]] += 1.0
