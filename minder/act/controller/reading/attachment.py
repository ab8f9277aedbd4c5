"""What a watch says of its own sight: what it attached to, what of that changed, who is silent, what cannot be read, and the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from minder.act.controller.reading.newcomers import Newcomers
from minder.model.clock import format_time
from minder.model.evidence import Signal
from minder.model.metrics import find_metric, is_spoken
from minder.model.observation import JobView, Observation
from minder.model.telemetry import Sample

__all__ = ["Attachment", "Departures", "Silences", "span_words"]

_LONGEST_WAIT_S = 60.0  # for the first samples; what is not there by then is said to be missing
_KEPT_S = 60.0  # a metric that was not seen for so long, and for five intervals, is gone
_SETTLED_S = 10.0  # ranks that come one by one are one change
_AGAIN_S = 600.0  # the same trouble is said again
_SHOWN = 4
_LOG_LINES = "job_log_lines_total"
_INTERVALS = 3.0
_SHORTEST_S = 5.0  # a busy machine answers a second or two late
_FOLLOWS = 0.2  # how fast the usual gap follows, per gap
_TOGETHER_S = 1.0  # ends within this of each other are one moment: machines' clocks, and a launcher that ends all of its ranks


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is in sight. steps: where they come from, "" if none was read."""

    machines: frozenset[str]
    ranks: int
    metrics: frozenset[str]
    steps: str


class Attachment:
    """`look` once a tick; it returns the lines that are to be said now, mostly none.

    interval_s: as configured; a machine that speaks less often is waited for by its own pace. source: where samples come from, in words.
    away_s: no process of the job for so long, on machines that answer, and it is over; `over` is then true until one comes back.
    has_agents: some machine has one, so that ranks may come; where none can, they are not waited for.
    """

    def __init__(self, job: str, interval_s: float, source: str, away_s: float = 120.0, *, has_agents: bool = True) -> None:
        self.over, self.away_s, self._has_agents = False, away_s, has_agents
        self._job, self._interval_s, self._source = job, interval_s, source
        self._silences, self._departures, self._newcomers = Silences(interval_s), Departures(), Newcomers()
        self._seen_s: dict[str, float] = {}  # metric to when a sample last had it
        self._begun_s = self._gone_s = math.nan
        self._stated: _Facts | None = None
        self._next: tuple[_Facts, float] | None = None  # a change, and since when it holds
        self._trouble, self._trouble_s, self._failed_s, self._said_s = "", math.nan, math.nan, -math.inf
        self._follows = False
        self.late_s: Callable[[], Mapping[str, float]] = dict  # machine to how far its stamps are behind, as the source reports it
        self._late: frozenset[str] = frozenset()
        self._news: dict[str, Any] = {}

    def look(
        self, monotonic_s: float, observation: Observation, samples: Sequence[Sample], step: float, trouble: str, causes: Mapping[str, str]
    ) -> list[str]:
        """monotonic_s: a monotonic clock. step: the newest, infinite where none is known. trouble: why telemetry cannot be read at
        this tick, "" if it can. causes: machine to why its page could not be read, of those of which that is known."""
        if math.isnan(self._begun_s):
            self._begun_s = monotonic_s
        machines = () if observation.job is None else observation.job.machines
        self._departures.note(observation)
        self._silences.hear(monotonic_s, samples)
        self._note_metrics(monotonic_s, samples)
        found = self._unread(monotonic_s, trouble)
        facts = self._facts(monotonic_s, observation, machines, step)
        if self._stated is None:
            found += self._attach(monotonic_s, facts, observation.job, trouble)
            self._newcomers.begin(self._silences.heard, _known(observation))
        else:
            found += self._newcomers.look(monotonic_s, self._silences.heard, _known(observation))
            found += self._changes(monotonic_s, facts, observation)
            found += self._silences.look(monotonic_s, machines, causes) if not self._trouble else []
        return [*found, *self._lateness(), *self._end(monotonic_s, observation)]

    def take_news(self) -> dict[str, Any]:
        """Beside the line that states what was attached, for the ledger: {attached: {machines, standbys, gpus}}; empty otherwise."""
        news, self._news = self._news, {}
        return news

    def _lateness(self) -> list[str]:
        late_s = self.late_s()
        new, self._late = sorted(late_s.keys() - self._late), self._late | late_s.keys()
        if not new:
            return []
        behind_s = max(late_s[machine] for machine in new)
        late = f"the stamps of {_listed(new)} are up to {behind_s:.0f} s behind"
        return [f"{late}: its samples are read so much later, and a fault there is seen later"]

    def _note_metrics(self, monotonic_s: float, samples: Iterable[Sample]) -> None:
        for sample in samples:
            for name in sample.values:
                if not is_spoken(name):
                    self._seen_s[name] = monotonic_s
            self._follows = self._follows or _LOG_LINES in sample.values

    def _facts(self, monotonic_s: float, observation: Observation, machines: Collection[str], step: float) -> _Facts:
        workers = [worker for view in observation.fleet.values() for worker in view.workers]
        kept_s = max(_KEPT_S, 5.0 * self._interval_s)
        metrics = frozenset(name for name, seen_s in self._seen_s.items() if monotonic_s - seen_s < kept_s and name != _LOG_LINES)
        steps = ""
        if any(worker.step is not None for worker in workers):
            steps = "its ranks' logs" if self._follows else "its ranks' heartbeats or logs"
        elif math.isfinite(step):
            steps = "telemetry (steps_total)"
        heard = frozenset(machines) & self._silences.heard
        return _Facts(heard, sum(worker.rank is not None for worker in workers), metrics, steps)

    def _attach(self, monotonic_s: float, facts: _Facts, job: JobView | None, trouble: str) -> list[str]:
        """Once everybody was heard, or has had the time for it."""
        machines = () if job is None else job.machines
        waited_s = monotonic_s - self._begun_s
        patience_s = min(_LONGEST_WAIT_S, max(_SETTLED_S, 3.0 * self._interval_s))
        ranks_are_there = facts.ranks or not self._has_agents
        whole = machines and len(facts.machines) == len(machines) and ranks_are_there and (facts.steps or waited_s >= 3.0)
        if not whole and waited_s < patience_s:
            return []
        self._stated = facts
        self._silences.begin(monotonic_s, machines)
        if job is not None:
            self._news = {"attached": {"machines": list(machines), "standbys": list(job.standbys), "gpus": len(job.rank_machine)}}
        ranks = (
            ("1 rank" if facts.ranks == 1 else f"{facts.ranks} ranks") if facts.ranks else "no rank seen (no agent reports its processes)"
        )
        steps = f"steps from {facts.steps}" if facts.steps else "no step read yet"
        return [f"attached to {self._job}: {_of(machines, facts.machines)}, {ranks}; {self._telemetry(facts, trouble)}; {steps}"]

    def _telemetry(self, facts: _Facts, trouble: str) -> str:
        if trouble or not facts.metrics:
            return f"no telemetry yet from {self._source}"
        return f"{len(facts.metrics)} metrics ({_families(facts.metrics)}) every {span_words(self._silences.usual_s)} from {self._source}"

    def _changes(self, monotonic_s: float, facts: _Facts, observation: Observation) -> list[str]:
        """In one line, once they have held for a while. Silent machines and a job that is gone have lines of their own."""
        reported = self._stated
        if reported is None or observation.job is None or observation.job.phase != "running":
            self._next = None
            return []
        changes = [
            *([f"{facts.ranks} ranks (before: {reported.ranks})"] if facts.ranks != reported.ranks else []),
            *_named("new metrics", _compared(facts.metrics) - reported.metrics),
            *_named("no more of", _compared(reported.metrics) - facts.metrics if facts.metrics else ()),
            *([f"steps from {facts.steps}"] if facts.steps and facts.steps != reported.steps else []),
        ]
        if not changes:
            self._next = None
        elif self._next is None or self._next[0] != facts:
            self._next = facts, monotonic_s
        elif monotonic_s - self._next[1] >= _SETTLED_S:
            self._stated, self._next = facts, None
            return [f"what is seen of {self._job} has changed: {'; '.join(changes)}"]
        return []

    def _unread(self, monotonic_s: float, trouble: str) -> list[str]:
        """When it begins, every ten minutes as long as it lasts, and when it has been over for a while: half of the calls may fail."""
        if not trouble:
            if not self._trouble or monotonic_s - self._failed_s < max(_SETTLED_S, 3.0 * self._interval_s):
                return []
            self._trouble = ""
            self._silences.begin(monotonic_s, self._silences.heard)
            return [f"telemetry is read again, after {span_words(self._failed_s - self._trouble_s)} of errors"]
        began, self._failed_s = not self._trouble, monotonic_s
        self._trouble, self._trouble_s = trouble, monotonic_s if began else self._trouble_s
        if not began and monotonic_s - self._said_s < _AGAIN_S:
            return []
        self._said_s = monotonic_s
        since = "" if began else f" since {span_words(monotonic_s - self._trouble_s)}"
        return [f"telemetry cannot be read{since}, so nothing is concluded from it: {trouble}"]

    def _end(self, monotonic_s: float, observation: Observation) -> list[str]:
        if observation.job is None or observation.job.phase != "recovering":
            self._gone_s, self.over = math.nan, False
            return []
        if math.isnan(self._gone_s):
            self._gone_s = monotonic_s
        if self.over or monotonic_s - self._gone_s < self.away_s:
            return []
        self.over = True
        return [f"the job {self._job} is over: no process of it for {span_words(monotonic_s - self._gone_s)}; {self._departures.words()}"]


def _known(observation: Observation) -> frozenset[str]:
    """Machines that the configuration names, in whatever part."""
    job = observation.job
    return frozenset(observation.fleet) | frozenset(() if job is None else (*job.machines, *job.standbys))


def span_words(seconds: float) -> str:
    """A length of time for a sentence.

    >>> span_words(1.0), span_words(45.2), span_words(130.0), span_words(7300.0)
    ('1 s', '45 s', '2 min', '2 h')
    """
    if seconds < 120.0:
        return f"{seconds:.0f} s" if seconds >= 1.0 else f"{seconds:.1g} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.0f} h"


def _compared(metrics: Collection[str]) -> frozenset[str]:
    """Metrics of the job's own processes come and go with them."""
    found = ((name, find_metric(name)) for name in metrics)
    return frozenset(name for name, metric in found if metric is not None and metric.family != "job")


def _families(metrics: Collection[str]) -> str:
    counts = Counter(metric.family for name in metrics if (metric := find_metric(name)) is not None)
    return ", ".join(f"{family} {counts[family]}" for family in sorted(counts)) or "none of the catalogue"


def _named(title: str, names: Collection[str]) -> list[str]:
    return [f"{title}: {_listed(sorted(names))}"] if names else []


def _of(machines: Sequence[str], heard: Collection[str]) -> str:
    missing = [machine for machine in machines if machine not in heard]
    if not missing:
        return f"{len(machines)} machines" if len(machines) != 1 else f"1 machine ({machines[0]})"
    return f"telemetry of {len(machines) - len(missing)} of {len(machines)} machines (none of {_listed(missing)})"


class Silences:
    """Times are of a monotonic clock, and of arrival: a stamp that is far behind is late, not absent.

    heard: every machine of which a sample came since the start. usual_s: the gap between the samples of a machine, as most have it.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._heard_s: dict[str, float] = {}
        self._waits_s: dict[str, float] = {}  # of machines that were not heard yet: since when they are waited for
        self._gap_s: dict[str, float] = {}
        self._silent_named: set[str] = set()

    @property
    def heard(self) -> frozenset[str]:
        return frozenset(self._heard_s)

    @property
    def usual_s(self) -> float:
        return max(self._interval_s, round(median(self._gap_s.values()))) if self._gap_s else self._interval_s

    def hear(self, monotonic_s: float, samples: Iterable[Sample]) -> None:
        """What a Prometheus says of its own scrape that failed is no word of the machine."""
        for machine in {sample.machine for sample in samples if not sample.values or not all(is_spoken(name) for name in sample.values)}:
            before_s = self._heard_s.get(machine)
            if before_s is not None and machine not in self._silent_named and monotonic_s > before_s:
                known_s = self._gap_s.get(machine, monotonic_s - before_s)
                self._gap_s[machine] = known_s + _FOLLOWS * (monotonic_s - before_s - known_s)
            self._heard_s[machine] = monotonic_s

    def begin(self, monotonic_s: float, machines: Collection[str]) -> None:
        """No machine is silent before now: the watch attached, or the telemetry as a whole was out. One that was said to be silent before
        that is so until a sample of it comes."""
        for machine in machines:
            if machine in self._heard_s and machine in self._silent_named:
                continue
            if machine in self._heard_s:
                self._heard_s[machine] = monotonic_s
            else:
                self._waits_s[machine] = monotonic_s
                self._silent_named.add(machine)  # the line that stated what was attached to has named it

    def look(self, monotonic_s: float, machines: Sequence[str], causes: Mapping[str, str]) -> list[str]:
        """Lines to be said now. machines: those that should speak. causes: why one could not be read, where that is known."""
        since_s = {machine: self._heard_s.get(machine, self._waits_s.setdefault(machine, monotonic_s)) for machine in machines}
        silent = {machine for machine in machines if monotonic_s - since_s[machine] > self._patience_s(machine)}
        back = sorted(self._silent_named & set(machines) & self._heard_s.keys() - silent)
        new = sorted(silent - self._silent_named)
        self._silent_named = (self._silent_named | silent) - set(back)
        found = [f"samples of {_listed(back)} come again"] if back else []
        return [*found, *self._describe(monotonic_s, new, since_s, silent, causes, len(machines))] if new else found

    def _patience_s(self, machine: str) -> float:
        return max(_SHORTEST_S, _INTERVALS * max(self._interval_s, self._gap_s.get(machine, 0.0)))

    def _describe(
        self,
        monotonic_s: float,
        new: Sequence[str],
        since_s: Mapping[str, float],
        silent: Collection[str],
        causes: Mapping[str, str],
        of: int,
    ) -> list[str]:
        longest_s = max(monotonic_s - since_s[machine] for machine in new)
        if len(silent) == of > 1:
            return [f"no machine has a sample for {longest_s:.0f} s: it is the monitoring that is out, until something else says so"]
        cause = next((f" ({causes[machine]})" for machine in new if machine in causes), "")
        return [f"no sample of {_listed(new)} for {longest_s:.0f} s{cause}: that is no data, and accuses no machine by itself"]


def _listed(machines: Sequence[str]) -> str:
    return ", ".join(machines[:_SHOWN]) + (f" and {len(machines) - _SHOWN} more" if len(machines) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class _Exit:
    time_s: float
    who: str
    how: str


class Departures:
    """`note` every tick; `words` names the first mover of the newest generation that ended."""

    def __init__(self) -> None:
        self._generation = -1
        self._exits: dict[tuple[str, int], _Exit] = {}

    def note(self, observation: Observation) -> None:
        job = observation.job
        if job is not None and job.generation != self._generation:
            self._generation, self._exits = job.generation, {}
        for signal in observation.signals:
            if signal.kind == "exit" and signal.generation == self._generation and signal.pid is not None:
                key = signal.machine or "", signal.pid
                if key not in self._exits or signal.time_s < self._exits[key].time_s:
                    self._exits[key] = _Exit(signal.time_s, _who(signal), _how(signal))

    def words(self) -> str:
        """A clause; "" is never returned: an exit that was not seen is stated too."""
        exits = sorted(self._exits.values(), key=lambda item: item.time_s)
        if not exits:
            return "the first exit was not seen"
        first = exits[0]
        at = format_time(first.time_s)
        together = [item for item in exits if item.time_s - first.time_s < _TOGETHER_S]
        if len(together) == len(exits) > 1:
            bad = next((item for item in exits if "with 0" not in item.how), None)
            return f"all {len(exits)} ranks ended within {_TOGETHER_S:.0f} s, at {at}" + (
                f": {bad.who} {bad.how}" if bad else ", each with 0"
            )
        if len(together) > 1:
            others = len(exits) - len(together)
            return f"{len(together)} ranks went first, {first.who} {first.how} among them, at {at}; {others} later"
        after = f", {exits[1].time_s - first.time_s:.1f} s before {exits[1].who}" if len(exits) > 1 else ""
        return f"{first.who} went first, {first.how}, at {at}{after}"


def _who(signal: Signal) -> str:
    name = f"process {signal.pid}" if signal.rank is None else f"rank {signal.rank}"
    return f"{name} on {signal.machine}" if signal.machine else name


def _how(signal: Signal) -> str:
    if signal.data.get("signal"):
        return f"by signal {signal.data['signal']}"
    code = signal.data.get("code")
    return "with unknown exit status" if code is None else f"with {code}"
