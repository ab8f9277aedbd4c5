"""When a change of regime comes, whom it touches, how strongly, and how it goes in time.

Legend: G seconds of the recording, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.score.changes import CAUSES, FAULTS, NUISANCES, Change
from minder.simulate.worlds.families.score.job import Job

__all__ = ["Event", "draw_causes", "draw_fault", "draw_nuisances"]

_FINAL = ("job_end", "deadlock")  # after these the job makes no step, so nothing can slow it
_BLINDING = ("agent_lost", "stale_exporter")  # a machine that is not seen cannot be known to be faulty
_MARKED = {"width": "pcie_link_width", "downs": "link_downs_total", "rows": "gpu_rows_remapped_total", "thermal": "gpu_throttle_reasons",
           "brake": "gpu_throttle_reasons"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One change as it is drawn. machines: indices. device: the only one that is touched, -1 all. times: seconds since the start.

    severity_G: 0 to 1. size: of each shift at full severity. wait: share of time that the job loses. kill_s: when the launcher gives up
    on a job that stands. seed: of what marks draw.
    """

    name: str
    change: Change
    machines: tuple[int, ...]
    device: int
    onset_s: int
    end_s: float
    severity_G: np.ndarray
    size: Mapping[str, float]
    wait: float
    kill_s: float
    seed: tuple[int, ...]

    @property
    def stops(self) -> bool:
        """Whether the job stands still for as long as it lasts."""
        return self.change.wait[0] >= 1.0


def draw_causes(seed: int, job: Job) -> tuple[Event, ...]:
    """What hits the job as a whole: in four worlds of nine one thing, whether or not a machine is faulty."""
    rng = np.random.default_rng([seed, 4])
    name, place = _weighted(rng, CAUSES), float(rng.uniform())
    if rng.random() > 0.45:
        return ()
    low, high = (0.6, 0.93) if name in _FINAL else (0.1, 0.8)
    onset = int(job.seconds * (low + (high - low) * place))
    machines = tuple(range(len(job.machines)))
    if name == "exchange":  # the one that goes, and the spare that comes
        machines = (int(rng.integers(0, len(machines) - 1)), len(machines) - 1)
    return (_event(rng, job, name, CAUSES[name], machines, onset, (seed, 5)),)


def draw_nuisances(seed: int, job: Job) -> tuple[Event, ...]:
    """What befalls single healthy machines, as often whether or not another one is faulty."""
    rng = np.random.default_rng([seed, 6])
    mean = 0.9 + 0.25 * np.log10(len(job.machines))
    events = []
    for number in range(min(5, int(rng.poisson(mean)))):
        name, onset = _weighted(rng, NUISANCES), int(job.seconds * max(0.0, rng.uniform(-0.15, 0.9)))
        change = NUISANCES[name]
        machines = (0,) if name == "rank_zero" else _touched(rng, job, change.who, frozenset())
        events.append(_event(rng, job, name, change, machines, onset, (seed, 7, number)))
    return tuple(events)


def draw_fault(seed: int, job: Job, asked: str | None, others: tuple[Event, ...]) -> Event:
    """A fault by name, or one that the site's metrics can mostly show."""
    rng = np.random.default_rng([seed, 8])
    name = _chosen(rng, job) if asked is None else asked
    change = FAULTS[name]
    last = min([job.seconds - 240.0] + [event.onset_s - 200.0 for event in others if event.name in _FINAL])
    if name == "disk_full":  # it is at the end of a checkpoint that it shows
        last -= 30.0
    first_minutes, early = rng.random(), float(rng.uniform(10, 110))
    onset = int(early if first_minutes < 0.08 else rng.uniform(120, max(last, 121.0)))
    onset = 0 if first_minutes > 0.96 and change.grey and change.form == "step" else onset
    shunned = {m for event in others for m in event.machines if event.name in _BLINDING or event.name == "exchange"}
    machines = _touched(rng, job, change.who, frozenset(shunned))
    return _event(rng, job, name, change, machines, onset, (seed, 9))


def _event(
    rng: np.random.Generator, job: Job, name: str, change: Change, machines: tuple[int, ...], onset: int, seed: tuple[int, ...]
) -> Event:
    share, about = rng.random(), rng.uniform(0.85, 1.15, len(change.shift))
    size = {metric: (low + (high - low) * share) * float(a) for (metric, (low, high)), a in zip(change.shift.items(), about, strict=True)}
    device = int(rng.integers(0, max(1, job.devices))) if change.device and job.devices else -1
    if change.device and not job.devices:  # the exporter's mean over a machine's devices dilutes a single one's change
        dilute = float(rng.uniform(0.4, 1.0))
        size = {metric: value * dilute for metric, value in size.items()}
    stays = float(rng.uniform(*change.lasts)) if change.lasts is not None else np.inf
    kill = np.inf
    if change.who != "all" and change.wait[0] >= 1.0:
        kill = onset + float(np.exp(rng.uniform(np.log(90.0), np.log(1200.0))))
    elif change.wait[1] > 0 and change.who != "all" and rng.random() < 0.2:  # it passes, or is repaired in place
        stays = float(rng.uniform(240, 900))
    onset = 0 if change.form == "ever" else onset
    end = min(onset + stays, kill)
    wait = change.wait[0] + (change.wait[1] - change.wait[0]) * share
    severity_G = _severity(rng, change.form, onset, onset + stays, job.seconds)
    return Event(name, change, machines, device, onset, end if end < job.seconds else np.inf, severity_G, size, wait, kill, seed)


def _weighted(rng: np.random.Generator, table: Mapping[str, Change]) -> str:
    weight = np.array([change.weight for change in table.values()])
    return str(rng.choice(list(table), p=weight / weight.sum()))


def _chosen(rng: np.random.Generator, job: Job) -> str:
    """A tenth of the faults are of a group, a few of two machines, and half of the others are grey."""
    kind = int(rng.choice(4, p=[0.1, 0.05, 0.45, 0.4]))
    weight = []
    for change in FAULTS.values():
        is_group = change.who not in ("one", "two")
        mine = (is_group, change.who == "two", change.who == "one" and change.grey, change.who == "one" and not change.grey)[kind]
        fits = not (change.who == "stage" and int(job.stage_M.max()) < 2) and not (is_group and len(job.machines) < 6)
        weight.append(change.weight * (1.0 if _visible(job, change) else 0.04) if mine and fits else 0.0)
    total = sum(weight)
    if total == 0.0:
        return "hang"
    return str(rng.choice(list(FAULTS), p=np.array(weight) / total))


def _visible(job: Job, change: Change) -> bool:
    """Whether some metric of the site is moved by several times its own noise, or the machine's GPUs stand while others spin."""
    if change.wait[0] >= 1.0 or (change.own == "idle" and change.form != "growth"):
        return change.own != "spin" or any(job.has(metric) for metric in change.shift if metric != "gpu_power_draw_watts")
    noise = {level.name: level.noise for level in job.levels}
    strong = any(metric in noise and abs(low + high) / 2 > 3.5 * noise[metric] for metric, (low, high) in change.shift.items())
    return strong or any(job.has(_MARKED[mark]) for mark in change.marks if mark in _MARKED)


def _touched(rng: np.random.Generator, job: Job, who: str, shunned: frozenset[int]) -> tuple[int, ...]:
    """Machines of one event, in order. Groups smaller than two or larger than half of the job are some of its machines instead."""
    count = len(job.machines)
    free = [m for m in range(count) if m not in shunned] or list(range(count))
    if who in ("one", "two"):
        chosen = rng.choice(free, size=min(len(free), 1 if who == "one" else 2), replace=False)
        return tuple(sorted(int(m) for m in chosen))
    group_M = {"rack": job.rack_M, "switch": job.switch_M, "stage": job.stage_M}[who]
    alike = np.flatnonzero(group_M == group_M[int(rng.choice(free))])
    if not 2 <= len(alike) <= count // 2:
        alike = np.sort(rng.permutation(count)[: max(2, count // 4)])
    return tuple(int(m) for m in alike)


def _severity(rng: np.random.Generator, form: str, onset: int, end_s: float, length: int) -> np.ndarray:
    """(G,): none before the onset; from there as the form has it, until the end."""
    g = np.arange(length)
    last = min(float(length), end_s)
    inside_G = (g >= onset) & (g < last)
    if form == "ramp":
        return np.asarray(inside_G * np.clip((g - onset + 1) / float(rng.uniform(30, 240)), 0, 1)).astype(np.float32)
    if form == "growth":
        rises_s = min(float(rng.uniform(300, 900)), max(60.0, 0.8 * (last - onset)))
        return np.asarray(inside_G * np.clip((g - onset + 1) / rises_s, 0, 1)).astype(np.float32)
    spans = {"waves": ((40, 150), (25, 110)), "pulses": ((5, 20), (40, 130)), "flaps": ((8, 30), (50, 220))}.get(form)
    if spans is None:
        return inside_G.astype(np.float32)
    severity_G, place = np.zeros(length, dtype=np.float32), float(onset)
    while place < last:
        stay = float(rng.uniform(*spans[0]))
        severity_G[int(place) : int(min(place + stay, last)) + 1] = float(rng.uniform(0.7, 1.0))
        place += stay + float(rng.uniform(*spans[1]))
    return np.asarray(severity_G * inside_G).astype(np.float32)
