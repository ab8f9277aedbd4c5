"""Months of a job that never ran: a discrete-event simulation of its incidents and recoveries, with and without each mechanism (pure).

Faults come as a Poisson process, whether or not the job is up. One that comes during a recovery waits for its end. Every variant of
one repeat meets the same faults with the same luck, so that what differs is the mechanism.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from minder.offline.reliability.limits import Limits
from minder.offline.reliability.mix import IncidentRate, Published, Symptom, restart_seconds

__all__ = ["LOST_PHASES", "Fault", "Mechanisms", "Month", "Scale", "draw_faults", "simulate"]

LOST_PHASES = ("detect", "decide", "restart", "load", "recompute", "save")
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """What the job has, as published: automatic detection and localisation, warm standbys, restart in place and hot update, a checkpoint
    in every step beside the job, and eviction of whole groups. Minder lacks some of it: see plan.NOT_MINDERS."""

    detection: bool = True
    standbys: bool = True
    in_place: bool = True
    every_step: bool = True
    over_eviction: bool = True

    @classmethod
    def none(cls) -> Mechanisms:
        return cls(**{item.name: False for item in fields(cls)})


@dataclass(frozen=True, slots=True)
class Scale:
    """A job's size, for how many days, with how many standbys, and how often its machines fail."""

    gpus: int
    machines: int
    days: float
    pool: int
    rate: IncidentRate


@dataclass(frozen=True, slots=True)
class Fault:
    """When, what, and the luck it has: whether a machine is at fault, how long the search takes, how much work is lost (all 0 to 1)."""

    time_s: float
    symptom: Symptom
    at_fault: bool
    search: float
    progress: float


@dataclass(slots=True)
class Month:
    """What came of it. Seconds lost by phase; shortfalls: recoveries that needed more standbys than there were; paged: evictions that
    the default limits of the policy leave to a person."""

    span_s: float
    lost: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOST_PHASES, 0.0))
    incidents: int = 0
    evicted: int = 0
    shortfalls: int = 0
    paged: int = 0

    @property
    def ettr(self) -> float:
        return 1.0 - sum(self.lost.values()) / self.span_s


def draw_faults(scale: Scale, published: Published, generator: np.random.Generator) -> list[Fault]:
    """The faults of all `scale.days`, in order of time."""
    span_s = scale.days * DAY_S
    manual = [item for item in published.symptoms if item.category == "manual"]
    others = [item for item in published.symptoms if item.category != "manual"]
    found: list[Fault] = []
    for symptoms, per_day in ((others, scale.machines * scale.rate.per_machine_day), (manual, scale.rate.manual_per_day)):
        weights = np.array([item.count for item in symptoms], dtype=float)
        number = int(generator.poisson(per_day * scale.days))
        kinds = generator.choice(len(symptoms), number, p=weights / weights.sum())
        luck = generator.random((number, 4))
        for kind, (when, blame, search, progress) in zip(kinds, luck, strict=True):
            symptom = symptoms[int(kind)]
            found.append(Fault(when * span_s, symptom, bool(blame < symptom.evict_share), float(search), float(progress)))
    return sorted(found, key=lambda item: item.time_s)


def simulate(scale: Scale, mechanisms: Mechanisms, faults: Sequence[Fault], published: Published) -> Month:
    """Run the job through its faults."""
    return _Run(scale, mechanisms, published).through(faults)


class _Run:
    """The state between events: how many standbys wait, and until when the job is down."""

    def __init__(self, scale: Scale, mechanisms: Mechanisms, published: Published) -> None:
        self._scale = scale
        self._has = mechanisms
        self._published = published
        self._pool = scale.pool if mechanisms.standbys else 0
        self._month = Month(scale.days * DAY_S)
        self._limits = Limits(scale.machines, round(published.assumed["group_machines"]))
        self._requeue_s = restart_seconds(published, "requeue_s", scale.machines)
        self._update_s = restart_seconds(published, "hot_update_s", scale.machines)
        self._wake_s = self._requeue_s / float(published.restart["standby_ratio"])

    def through(self, faults: Sequence[Fault]) -> Month:
        """The event loop: faults, the end of a search, the job's return, a standby's replacement."""
        events: list[tuple[float, int, str, Fault | None]] = [(item.time_s, order, "fault", item) for order, item in enumerate(faults)]
        heapq.heapify(events)
        order, down, waiting = len(events), False, list[Fault]()
        while events and events[0][0] < self._month.span_s:
            now_s, _, what, fault = heapq.heappop(events)
            following: list[tuple[float, str, Fault | None]] = []
            if what == "refill":
                self._pool += 1
            elif what == "fault" and fault is not None:
                if down:
                    waiting.append(fault)
                else:
                    down = True
                    following.append((self._search(fault, now_s, now_s), "act", fault))
            elif what == "act" and fault is not None:
                following = self._act(fault, now_s)
            else:  # the job is back, unless the next fault has come meanwhile
                down = bool(waiting)
                if waiting:
                    following.append((self._search(waiting[0], waiting[0].time_s, now_s), "act", waiting.pop(0)))
            for time_s, name, item in following:
                heapq.heappush(events, (time_s, order, name, item))
                order += 1
        up_s = self._month.span_s - sum(self._month.lost.values())
        self._month.lost["save"] += up_s * self._saving_share()
        return self._month

    def _search(self, fault: Fault, since_s: float, now_s: float) -> float:
        """Detect and localise; returns when that is done. Of a fault that waited, the time since it came has been used."""
        self._month.incidents += 1
        seen_s = self._detect_s(fault.symptom) - (now_s - since_s)
        now_s = self._lose("detect", now_s, max(0.0, seen_s))
        return self._lose("decide", now_s, self._localise_s(fault))

    def _act(self, fault: Fault, now_s: float) -> list[tuple[float, str, Fault | None]]:
        """Evict, restart, load, do again; returns the job's return and the refills that are due."""
        leaving = self._leaving(fault)
        if leaving and self._has.detection and not self._limits.allow(leaving, now_s, self._pool if self._has.standbys else leaving):
            self._month.paged += 1
            now_s = self._lose("decide", now_s, self._limits.response_s)
        used = min(leaving, self._pool)
        self._pool -= used
        self._month.evicted += leaving
        self._month.shortfalls += self._has.standbys and used < leaving
        refill_s = now_s + float(self._published.assumed["refill_s"])
        now_s = self._lose("restart", now_s, self._restart_s(leaving, used))
        now_s = self._lose("load", now_s, 0.0 if self._has.every_step else float(self._published.assumed["remote_load_s"]))
        interval_s = self._published.assumed["step_s"] if self._has.every_step else self._published.checkpoint["interval_s"]
        again_s = 0.0 if fault.symptom.category == "manual" else fault.progress * float(interval_s)
        now_s = self._lose("recompute", now_s, again_s)
        return [(now_s, "back", None), *((refill_s, "refill", None) for _ in range(used))]

    def _lose(self, phase: str, now_s: float, seconds: float) -> float:
        """Count what lies within the simulated time; returns the phase's end."""
        self._month.lost[phase] += max(0.0, min(now_s + seconds, self._month.span_s) - min(now_s, self._month.span_s))
        return now_s + seconds

    def _detect_s(self, symptom: Symptom) -> float:
        with_s, without_s = self._published.detect_s[symptom.detect]
        return with_s if self._has.detection else without_s

    def _localise_s(self, fault: Fault) -> float:
        """The papers' times from localisation to restart, less the restart that they contain; else the search by hand."""
        symptom, search = fault.symptom, self._published.search
        share = float(self._published.assumed["search_share"])
        if symptom.category == "manual":
            return 0.0
        if symptom.evicts == "group":
            return symptom.mean_s if self._has.over_eviction else share * float(search["implicit_s"])
        contained_s = self._wake_s if fault.at_fault else self._update_s
        if self._has.detection:
            return max(0.0, _skewed(symptom.mean_s, symptom.max_s, fault.search) - contained_s)
        if symptom.category == "implicit":
            return share * float(search["sdc_s"])
        if symptom.tested_s is not None:
            return max(0.0, symptom.tested_s - contained_s)
        low_s, high_s = map(float, search["explicit_s"])
        return share * (low_s + fault.search * (high_s - low_s))

    def _leaving(self, fault: Fault) -> int:
        if not fault.at_fault:
            return 0
        whole_group = fault.symptom.evicts == "group" and self._has.over_eviction
        return round(self._published.assumed["group_machines"]) if whole_group else 1

    def _restart_s(self, leaving: int, used: int) -> float:
        """Without a restart in place everything is queued again, standbys or not."""
        if not self._has.in_place:
            return self._requeue_s
        if not leaving:
            return self._update_s
        return self._wake_s * (1.0 if used == leaving else float(self._published.restart["reschedule_ratio"]))

    def _saving_share(self) -> float:
        table = self._published.checkpoint
        return float(table["every_step_overhead"] if self._has.every_step else table["blocking_s"] / table["interval_s"])


def _skewed(mean_s: float, largest_s: float, luck: float) -> float:
    """Beta(1, b) with the published mean and maximum: most searches are short. The shape is assumed.

    >>> _skewed(60.0, 60.0, 0.3), round(_skewed(93.0, 600.0, 0.5), 1)
    (60.0, 71.6)
    """
    if mean_s >= largest_s or largest_s <= 0.0:
        return float(mean_s)
    return float(largest_s * (1.0 - (1.0 - luck) ** (1.0 / (largest_s / mean_s - 1.0))))
