"""Months of a job that never ran: a discrete-event simulation of its incidents, with and without each of minder's mechanisms (pure).

Faults come as a Poisson process, whether or not the job is up. One that comes during a recovery waits for its end. Every variant of
one repeat meets the same faults with the same luck, so that what differs is the mechanism.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple

import numpy as np

from minder.act.policy.config import PolicyConfig
from minder.model.errors import BadInputError
from minder.offline.reliability.limits import Limits
from minder.offline.reliability.mix import IncidentRate, Published, Symptom, restart_seconds
from minder.offline.reliability.saving import save_every

__all__ = ["LOST_PHASES", "Fault", "Mechanisms", "Month", "Scale", "draw_faults", "simulate"]

LOST_PHASES = ("detect", "localise", "decide", "restart", "load", "recompute", "save", "shrunk")
DAY_S = 86_400.0
_DEFAULT = PolicyConfig()


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """What minder may be set to do: a mechanism without a field is one that minder does not have.

    detection: it names machines, and recovers by itself. over_eviction: a hang that one group covers evicts the group. diagnosis: a job
    whose second failure is unknown, or that got a NaN, stands while its machines are tested. standbys: they wait, warm. in_place:
    workers start again on the machines that stay. memory: checkpoints in the machines' memory. spaced: not at every step, but at every
    k-th, where that loses less. update: code changes go in at a restart in place. shrink: without a standby the job goes on with fewer
    machines.
    """

    detection: bool = True
    over_eviction: bool = True
    diagnosis: bool = True
    standbys: bool = True
    in_place: bool = True
    memory: bool = True
    spaced: bool = True
    update: bool = True
    shrink: bool = True

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in fields(cls))

    @classmethod
    def none(cls) -> Mechanisms:
        return cls(**dict.fromkeys(cls.names(), False))

    def without(self, *names: str) -> Mechanisms:
        """Raises BadInputError for one that minder does not have."""
        known = self.names()
        for name in names:
            if name not in known:
                raise BadInputError(f'"{name}" is no mechanism of minder: it has {", ".join(known)}')
        return replace(self, **dict.fromkeys(names, False))


class _Due(NamedTuple):
    """What happens then: "fault", "act" (the search is over), "back" (the job), "refill" (of the pool)."""

    time_s: float
    what: str
    fault: Fault | None = None


class _Event(NamedTuple):
    """The same in the order in which things happen: of two at one time the one that was known first."""

    time_s: float
    order: int
    what: str
    fault: Fault | None


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
    """What came of it. Seconds lost by phase ("shrunk": the share of machines that were missing); shortfalls: recoveries that needed more
    standbys than there were; paged: what the limits of the policy, or a missing mechanism, leave to a person."""

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


def simulate(
    scale: Scale, mechanisms: Mechanisms, faults: Sequence[Fault], published: Published, policy: PolicyConfig = _DEFAULT
) -> Month:  # fmt: skip
    """Run the job through its faults. policy: whose limits bound the evictions."""
    return _Run(scale, mechanisms, published, policy).through(faults)


class _Run:
    """The state between events: how many standbys wait, and until when the job is down."""

    def __init__(self, scale: Scale, mechanisms: Mechanisms, published: Published, policy: PolicyConfig) -> None:
        self._scale = scale
        self._has = mechanisms
        self._published = published
        self._pool = scale.pool if mechanisms.standbys else 0
        self._month = Month(scale.days * DAY_S)
        self._limits = Limits(scale.machines, round(published.assumed["group_machines"]), policy)
        self._requeue_s = self._time("requeue", restart_seconds(published, "requeue_s", scale.machines))
        self._in_place_s = self._time("in_place", restart_seconds(published, "hot_update_s", scale.machines))
        self._wake_s = self._time("wake", self._requeue_s / float(published.restart["standby_ratio"]))
        self._save_every = save_every(published, scale.rate, scale.machines) if mechanisms.spaced else 1
        step_s, stored_s = published.assumed["step_s"], published.checkpoint["interval_s"]
        self._interval_s = float(self._save_every * step_s if mechanisms.memory else stored_s)
        self._replace_s = self._time("replace", self._wake_s * float(published.restart["reschedule_ratio"]))

    def through(self, faults: Sequence[Fault]) -> Month:
        """The event loop: faults, the end of a search, the job's return, a standby's replacement."""
        events: list[_Event] = [_Event(item.time_s, order, "fault", item) for order, item in enumerate(faults)]
        heapq.heapify(events)
        order, down, waiting = len(events), False, list[Fault]()
        while events and events[0][0] < self._month.span_s:
            now_s, _, what, fault = heapq.heappop(events)
            following: list[_Due] = []
            if what == "refill":
                self._pool += 1
            elif what == "fault" and fault is not None:
                if down:
                    waiting.append(fault)
                else:
                    down = True
                    following.append(_Due(self._search(fault, now_s, now_s), "act", fault))
            elif what == "act" and fault is not None:
                following = self._act(fault, now_s)
            else:  # the job is back, unless the next fault has come meanwhile
                down = bool(waiting)
                if waiting:
                    following.append(_Due(self._search(waiting[0], waiting[0].time_s, now_s), "act", waiting.pop(0)))
            for due in following:
                heapq.heappush(events, _Event(due.time_s, order, due.what, due.fault))
                order += 1
        up_s = self._month.span_s - sum(self._month.lost.values())
        self._month.lost["save"] += up_s * self._saving_share()
        return self._month

    def _search(self, fault: Fault, since_s: float, now_s: float) -> float:
        """Until it is known what to do; returns when. Of a fault that waited, the time since it came has been used."""
        self._month.incidents += 1
        seen_s = self._detect_s(fault.symptom)
        now_s = self._lose("detect", now_s, max(0.0, seen_s - (now_s - since_s)))
        if not self._has.detection:
            return self._lose("localise", now_s, self._by_hand_s(fault))
        how = _answer_to(fault.symptom)
        if how == "group" and not self._has.over_eviction:  # a hang whose group may not go is left to a person
            self._month.paged += 1
            return self._lose("localise", now_s, self._share("implicit_s"))
        if self._fails_again(fault):
            now_s = self._back(now_s, self._in_place_s if self._has.in_place else self._requeue_s, fault) + self._own("recur")
            now_s = self._lose("detect", now_s, seen_s)
        if how == "test" or self._fails_again(fault):
            if self._has.diagnosis:
                return self._lose("localise", now_s, self._own("diagnose"))
            if how == "test" and fault.at_fault:  # the rank that shows it is not always the one that made it
                self._month.paged += 1
                return self._lose("localise", now_s, self._share("sdc_s"))
        return now_s

    def _act(self, fault: Fault, now_s: float) -> list[_Due]:
        """Evict, restart, load, do again; returns the job's return and the refills that are due."""
        leaving = self._leaving(fault)
        enough = leaving if self._has.shrink or not self._has.standbys else self._pool
        if leaving and self._has.detection and not self._limits.allow(leaving, now_s, enough):
            self._month.paged += 1
            now_s = self._lose("decide", now_s, self._limits.response_s)
        used = min(leaving, self._pool)
        self._pool -= used
        self._month.evicted += leaving
        self._month.shortfalls += self._has.standbys and used < leaving
        refill_s = now_s + float(self._published.assumed["refill_s"])
        if used < leaving and self._has.shrink:
            lasts_s = max(0.0, min(refill_s, self._month.span_s) - now_s)
            self._month.lost["shrunk"] += lasts_s * (leaving - used) / self._scale.machines
        if self._fails_again(fault):  # from where it was, and worked on until it failed again
            fault = replace(fault, progress=(fault.progress + self._own("recur") / self._interval_s) % 1.0)
        now_s = self._back(now_s, self._restart_s(fault, leaving, used), fault)
        return [_Due(now_s, "back"), *(_Due(refill_s, "refill") for _ in range(used))]

    def _back(self, now_s: float, restart_s: float, fault: Fault) -> float:
        """Restart, load, and take steps again; returns when the job is as far as it was."""
        now_s = self._lose("restart", now_s, restart_s)
        now_s = self._lose("load", now_s, self._own("restore") if self._has.memory else self._published.assumed["remote_load_s"])
        return self._lose("recompute", now_s, 0.0 if fault.symptom.category == "manual" else fault.progress * self._interval_s)

    def _fails_again(self, fault: Fault) -> bool:
        """A failure that belongs to a machine is tried again in place first, and comes back there."""
        return self._has.detection and fault.at_fault and _answer_to(fault.symptom) == "try"

    def _lose(self, phase: str, now_s: float, seconds: float) -> float:
        """Count what lies within the simulated time; returns the phase's end."""
        self._month.lost[phase] += max(0.0, min(now_s + seconds, self._month.span_s) - min(now_s, self._month.span_s))
        return now_s + seconds

    def _detect_s(self, symptom: Symptom) -> float:
        """What makes a job slow is not counted: it still steps. A NaN shows at the end of its step."""
        if not self._has.detection:
            return self._published.detect_s[symptom.detect][1]
        if symptom.detect in ("slow", "manual"):
            return 0.0
        steps = self._own("hang_steps") if symptom.detect == "hang" else 0.5 if symptom.detect == "nan" else 0.0
        return self._own(f"detect_{symptom.detect}") + steps * self._published.assumed["step_s"]

    def _by_hand_s(self, fault: Fault) -> float:
        """The search of a person who has neither verdicts nor tests, as published."""
        symptom = fault.symptom
        if symptom.category == "manual":
            return 0.0
        if symptom.evicts == "group":
            return self._share("implicit_s")
        if symptom.category == "implicit":
            return self._share("sdc_s")
        low_s, high_s = map(float, self._published.search["explicit_s"])
        return float(self._published.assumed["search_share"]) * (low_s + fault.search * (high_s - low_s))

    def _leaving(self, fault: Fault) -> int:
        if not fault.at_fault:
            return 0
        whole_group = fault.symptom.evicts == "group" and self._has.detection and self._has.over_eviction
        return round(self._published.assumed["group_machines"]) if whole_group else 1

    def _restart_s(self, fault: Fault, leaving: int, used: int) -> float:
        """Without a restart in place everything is queued again, standbys or not. Who shrinks waits for no machine."""
        if not self._has.in_place or (fault.symptom.category == "manual" and not self._has.update):
            return self._requeue_s
        if not leaving or (used < leaving and self._has.shrink and not used):
            return self._in_place_s
        return self._wake_s if used == leaving or self._has.shrink else self._replace_s

    def _saving_share(self) -> float:
        table = self._published.checkpoint
        return self._own("save_share") / self._save_every if self._has.memory else float(table["blocking_s"] / table["interval_s"])

    def _share(self, search: str) -> float:
        return float(self._published.assumed["search_share"]) * float(self._published.search[search])

    def _own(self, name: str) -> float:
        return self._time(name, 0.0)

    def _time(self, name: str, otherwise_s: float) -> float:
        """What is measured or given, else what follows from published tables."""
        found = self._published.times[name].seconds
        return otherwise_s if found is None else found


def _answer_to(symptom: Symptom) -> Literal["restart", "evict", "group", "try", "test"]:
    """What the default ladder does first: machine evidence evicts, a hang evicts its group, a NaN is tested, an exit is tried again."""
    if symptom.category == "manual":
        return "restart"
    if symptom.evicts == "group":
        return "group"
    return {"exit": "try", "nan": "test"}.get(symptom.detect, "evict")  # type: ignore[return-value]
