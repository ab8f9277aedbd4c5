"""A job that others started, as its machines' agents see it: which rank runs where, and that it was started again.

Its launcher reports nothing to us, so a restart is what its processes show: a rank with another pid, or the same process with a
higher count of its own. Then our generation moves on, and every rule forgets the old one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minder.act.controller.state import JobState
from minder.model.evidence import Signal
from minder.model.observation import MachineView, WorkerView

__all__ = ["WatchedJob"]

_LINGER_S = 10.0  # a process of the old generation that still runs after this long belongs to the new one
_FRESH_S = 3.0
_NAME_S = 60.0  # a job of another name is not ours as soon as ours is between two generations
_OF_PROCESSES = ("exit", "exception", "nonfinite", "spike")


@dataclass(frozen=True, slots=True)
class _Place:
    """One process of a rank. count: the job's own count of its restarts, -1 if it has none."""

    machine: str
    pid: int
    count: int

    def replaces(self, other: _Place) -> bool:
        same_process = (self.machine, self.pid) == (other.machine, other.pid)
        return self.count > other.count >= 0 if same_process else self.count >= other.count or self.count < 0


class WatchedJob:
    """`follow` once per tick, before anything else looks at the views; then `translate` what the rules shall see.

    expected: rank to machine of the configuration, for processes that know no rank and machines that were not heard of.
    """

    def __init__(self, name: str, expected: Mapping[int, str]) -> None:
        self.name = name
        self._expected = dict(expected)
        self._called: str | None = None  # what the processes call their job
        self._called_s = 0.0  # when it was last seen under that name
        self._nameless = False
        self._members: dict[int, _Place] = {}
        self._former: dict[_Place, float] = {}
        self._since_s: float | None = None

    @property
    def names(self) -> frozenset[str]:
        """The job's own names: every other job on its machines is not ours."""
        return frozenset({self.name, self._called or self.name})

    def follow(self, state: JobState, views: Mapping[str, MachineView], now_s: float) -> str:
        """Bring `state` up to what is seen. Returns one line if the job was started again, went or came back, else ""."""
        if self._since_s is None:
            self._since_s = state.generation_start_s = now_s
            state.generation = max(1, state.generation)
        seen = self._places(views, now_s)
        renewed = self._join(seen, now_s)
        if renewed:
            state.generation, state.generation_start_s, state.first_step_seen = state.generation + 1, now_s, False
        state.rank_machine = self._rank_machine()
        here = {place for places in seen.values() for place in places}
        gone = bool(self._members) and not here & set(self._members.values()) and self._answers(views)
        before, state.phase = state.phase, "recovering" if gone else "running"
        if renewed:
            return f"the job was started again: ranks {_listed(renewed)} are new processes (generation {state.generation})"
        if gone and before == "running":
            return "no process of the job is left"
        return "the job's processes are back" if before == "recovering" and not gone else ""

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self._since_s = None if self._since_s is None else self._since_s + by_s
        self._called_s += by_s
        self._former = {place: since_s + by_s for place, since_s in self._former.items()}

    def translate_views(self, state: JobState, views: Mapping[str, MachineView]) -> dict[str, MachineView]:
        """Only this job's processes of this generation, under our count."""
        found, ranks = {}, defaultdict[str, dict[int, int]](dict)
        for rank, place in self._members.items():
            ranks[place.machine][place.pid] = rank
        for machine, view in views.items():
            mine = ranks.get(machine, {})
            workers = tuple(
                dataclasses.replace(worker, slot=slot, rank=mine[worker.pid], generation=state.generation)
                for slot, worker in enumerate(item for item in view.workers if item.pid in mine)
                if worker.pid is not None
            )
            found[machine] = dataclasses.replace(view, workers=workers)
        return found

    def translate_signals(self, state: JobState, signals: Iterable[Signal]) -> list[Signal]:
        """What happened since we watch. A process' own signals only if it is this job's, with our count of its generation."""
        found = []
        for signal in signals:
            if signal.time_s < (self._since_s or signal.time_s):
                continue
            if signal.kind not in _OF_PROCESSES or signal.pid is None:
                found.append(signal)
                continue
            generation = self._generation_of(signal, state)
            if generation is not None:
                found.append(dataclasses.replace(signal, generation=generation))
        return found

    def owns(self, machine: str, pid: int) -> bool:
        """Whether a process is one of the job's ranks now."""
        return any((place.machine, place.pid) == (machine, pid) for place in self._members.values())

    def _generation_of(self, signal: Signal, state: JobState) -> int | None:
        if self.owns(signal.machine or "", signal.pid or 0):
            return state.generation
        former = any((place.machine, place.pid) == (signal.machine, signal.pid) for place in self._former)
        return state.generation - 1 if former else None

    def _join(self, seen: Mapping[int, Sequence[_Place]], now_s: float) -> list[int]:
        """Take in new processes. Returns the ranks whose process is another one than before: the job was started again."""
        self._former = {place: since_s for place, since_s in self._former.items() if now_s - since_s < _LINGER_S}
        renewed: dict[int, _Place] = {}
        for rank, places in seen.items():
            fresh = [place for place in places if place not in self._former]
            known = self._members.get(rank)
            if known is None and fresh:
                self._members[rank] = fresh[0]
            elif known is not None and known not in places:
                newer = [place for place in fresh if place.replaces(known)]
                if newer:
                    renewed[rank] = newer[0]
        if renewed:
            self._former.update(dict.fromkeys((place for place in self._members.values() if place not in renewed.values()), now_s))
            self._members = renewed
        return sorted(renewed)

    def _rank_machine(self) -> dict[int, str]:
        """What is seen; what the configuration says as long as not all of its machines have been seen."""
        placed = {rank: place.machine for rank, place in sorted(self._members.items())}
        if set(self._expected.values()) <= set(placed.values()):
            return placed
        return dict(sorted({**self._expected, **placed}.items()))

    def _places(self, views: Mapping[str, MachineView], now_s: float) -> dict[int, list[_Place]]:
        """Every rank's processes; of two on one machine the launcher's own (or older) comes first."""
        workers = [(machine, worker) for machine, view in views.items() for worker in view.workers if worker.pid is not None]
        self._called = self._choose((worker.job or "" for _, worker in workers), now_s)
        mine = [(machine, worker) for machine, worker in workers if (worker.job or "") == self._called]
        nameless = all(worker.rank is None for _, worker in mine)
        if mine and self._nameless and not nameless:
            self._members = {}  # a launcher's own process, before its ranks came
        self._nameless = nameless if mine else self._nameless
        found: dict[int, list[_Place]] = defaultdict(list)
        for machine, worker in sorted(mine, key=lambda item: (item[1].slot < 0, item[1].pid or 0)):
            rank = self._rank_by_order(machine, worker, mine) if nameless else worker.rank
            if rank is not None and worker.pid is not None:
                found[rank].append(_Place(machine, worker.pid, worker.generation))
        return found

    def _choose(self, names: Iterable[str], now_s: float) -> str | None:
        """The job of that name; else the one with the most processes, until it has had none for a while."""
        counts = Counter(names)
        if self.name not in counts and self._called not in counts and (not counts or self._keeps_name(now_s)):
            return self._called
        self._called_s = now_s
        if self.name in counts or self._called in counts:
            return self.name if self.name in counts else self._called
        return max(counts, key=lambda name: (counts[name], name))

    def _keeps_name(self, now_s: float) -> bool:
        return self._called is not None and not self._nameless and now_s - self._called_s < _NAME_S

    def _rank_by_order(self, machine: str, worker: WorkerView, mine: Sequence[tuple[str, WorkerView]]) -> int | None:
        """No process knows its rank: they fill the machine's configured ranks in the order of their pids."""
        here = sorted(item.pid for name, item in mine if name == machine and item.pid is not None)
        ranks = [rank for rank, name in sorted(self._expected.items()) if name == machine]
        place = here.index(worker.pid) if worker.pid in here else len(ranks)
        return ranks[place] if place < len(ranks) else None

    def _answers(self, views: Mapping[str, MachineView]) -> bool:
        """Whether every machine that had a rank answers: a silent agent's processes may be well."""
        had = {place.machine for place in self._members.values()}
        return all(views[machine].agent_age_s is not None and (views[machine].agent_age_s or 0.0) < _FRESH_S for machine in had)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
