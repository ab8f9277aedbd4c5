"""What machines say outright, and what other systems say of them.

**Explicit signals** (`SignalRule`), weighed by the table signal_rules.toml, whose head says what its columns mean.

A signal leads to its row's tier, or with a second witness (the job stopped then, another signal of the same part) to the higher one. The
same signal on several machines within seconds is about what they share: a page for the group, or for the job where it is most of it or
hangs on a network or a storage that all of them use. A page for what no stop of the job came with must not keep other machines from being
named: its source is then `notices`. What names the job is over with the generation that it came in: a job that was started again and fails
once more does so for a reason of its own.

A link that flaps and heals is no fault: networks and their retransmissions are made for it. Two flaps within five minutes are the beginning
of a fault (ByteRobust, arXiv 2509.16293, real-time checks), which a person should look at, as is a link that stays down while others are
up: the cable, the transceiver and the switch are no part of the machine. What several machines' links do within seconds of each other is
their switch's.

In a recording that no launcher of ours made, this rule also reads exits and gradients (`FirstExit`); a live job has rules of its own.

What other systems say of a machine is evidence beside a suspicion that another rule has, never a verdict by itself (tier watch).

**Reports** (`ReportRule`): alerts of the site's Alertmanager, NVSentinel, gpud. Escalating others' alarms is what evicts healthy machines
at scale (peers of ours: one rule, 672 false fatal events in three hours), and an open page would keep every other machine from being named.
So a report opens nothing and is no suspicion's second witness. What is said of half the machines or more accuses none of them: it is about
what they share.

**NCCL's RAS** (`RasRule`), of a job that stands. A process that does not answer its peers, and a rank that has launched fewer operations
than most, are named. A rank that is ahead of the others made a call more than they did: that is a program's doing. That all is well, or no
answer, says nothing: RAS may say OK while a watchdog fires, and its thread may hang with its process. Source: NVIDIA, NCCL user guide, RAS;
nccl issues 1730 and 1911.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.crash import FirstExit
from minder.edge.signals.oom import event_of_kill
from minder.edge.signals.rules import SignalRow, event_of, load_signal_rules, read_signal
from minder.edge.signals.xid import XidRule, find_xid_rule
from minder.model.evidence import TIER_ORDER, Cause, Evidence, Signal, Suspect, Tier
from minder.model.observation import Observation, RuleResult

__all__ = ["NOTICE", "LinkFinding", "LinkLimits", "LinkWatch", "RasRule", "ReportRule", "SignalRule"]

_SAME_S = 10.0  # one event: a port and its interface, all ports of an adapter, all machines of a switch


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """flaps: so many on one machine within flap_window_s call a person, 0 never; down_s: so long down is no flap. In seconds."""

    flaps: int = 2
    flap_window_s: float = 300.0
    down_s: float = 45.0


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """event: link.down or link.flap. signal: when it last went down. machines: those whose links did the same then."""

    event: str
    signal: Signal
    machines: tuple[str, ...]
    message: str


@dataclass(slots=True)
class _Port:
    down: Signal | None = None
    reported: bool = False


@dataclass(slots=True)
class LinkWatch:
    """Feed `note` every link signal of a machine and ask `findings` at every observation; each is returned once."""

    limits: LinkLimits = field(default_factory=LinkLimits)
    _ports: dict[tuple[str, str | None], _Port] = field(default_factory=dict)
    _flaps: dict[str, list[Signal]] = field(default_factory=dict)  # by machine, one an event
    _reported_flaps_s: dict[str, float] = field(default_factory=dict)

    def note(self, signal: Signal) -> None:
        machine = signal.machine or ""
        port = self._ports.setdefault((machine, signal.device), _Port())
        if signal.data.get("state") == "down":
            port.down = port.down or signal
            return
        if port.down is not None and signal.time_s - port.down.time_s < self.limits.down_s:
            flaps = self._flaps.setdefault(machine, [])
            if all(abs(port.down.time_s - item.time_s) > _SAME_S for item in flaps):
                flaps.append(port.down)
        port.down, port.reported = None, False

    def findings(self, now_s: float) -> Iterator[LinkFinding]:
        yield from self._lasting(now_s)
        yield from self._flapping(now_s)

    def _lasting(self, now_s: float) -> Iterator[LinkFinding]:
        down = {key: port for key, port in self._ports.items() if port.down is not None}
        for (_, device), port in down.items():
            if port.reported or port.down is None or now_s - port.down.time_s < self.limits.down_s:
                continue
            since_s = port.down.time_s
            machines = {name for (name, _), other in down.items() if other.down and abs(other.down.time_s - since_s) <= _SAME_S}
            port.reported = True
            message = " ".join(f"link {device or ''} down for {now_s - since_s:.0f} s".split())
            yield LinkFinding("link.down", port.down, tuple(sorted(machines)), message)

    def _flapping(self, now_s: float) -> Iterator[LinkFinding]:
        if self.limits.flaps < 1:
            return
        window_s = self.limits.flap_window_s
        self._flaps = {name: [item for item in flaps if now_s - item.time_s <= window_s] for name, flaps in self._flaps.items()}
        for machine, flaps in self._flaps.items():
            alone = [item for item in flaps if not self._is_shared(machine, item)]
            if len(alone) < self.limits.flaps or now_s - self._reported_flaps_s.get(machine, float("-inf")) <= window_s:
                continue
            self._reported_flaps_s[machine] = now_s
            names = sorted({item.device or "a link" for item in alone})
            message = f"{len(alone)} flaps of {', '.join(names)} in {now_s - alone[0].time_s:.0f} s"
            yield LinkFinding("link.flap", alone[-1], (machine,), message)

    def _is_shared(self, machine: str, flap: Signal) -> bool:
        others = (item for name, flaps in self._flaps.items() if name != machine for item in flaps)
        return any(abs(item.time_s - flap.time_s) <= _SAME_S for item in others)


NOTICE = "notices"  # the source of what is worth a page while the training goes on
_SHARED_S = 10.0
_SETTLE_S = 3.0
_STOPPED = Evidence("progress", None, "the job stopped about then")
_SIGNAL_CONFIDENCE: dict[str, float] = {"evict": 0.95, "page": 0.8, "watch": 0.4}
_OF_EVENT = {("order", "evict"): 0.99, ("exit.first_deadly", "evict"): 0.85, ("exit.first_deadly", "page"): 0.6}
_OWN_PARTS = ("gpu", "pcie", "memory", "host", "disk")  # several machines may fail in these together, as in one rack
_KIN = {"link": "nic"}  # parts that are one for a second witness


@dataclass(slots=True)
class _Item:
    """One signal that stands. key: alike for the same signal of other machines."""

    signal: Signal
    row: SignalRow
    key: str
    message: str
    newest_s: float
    machines: tuple[str, ...] = ()  # that share it, where something else has said so already

    @property
    def machine(self) -> str:
        return self.signal.machine or ""

    def is_in(self, machines: frozenset[str] | None) -> bool:
        """Whether any machine that it is about is among these; None: all are."""
        return machines is None or not machines.isdisjoint({self.machine, *self.machines})


@dataclass(frozen=True, slots=True)
class _Weighed:
    item: _Item
    tier: Tier
    evidence: tuple[Evidence, ...]


class SignalRule:
    """Reads kernel, xid, link, exit and nonfinite signals, and operators' orders (observation.Rule). Works without a job view.

    workers: also judge exits and gradients. tracker: shared, and updated before every observation.
    """

    name = "signals"

    def __init__(
        self, xid_rules: Mapping[int, XidRule], tracker: JobTracker, *, workers: bool = True, links: LinkLimits | None = None
    ) -> None:
        self._xid_rules = xid_rules
        self._rows = load_signal_rules()
        self._workers = workers
        self._items: dict[tuple[str, str, str | None], _Item] = {}
        self._tracker = tracker
        self._links = LinkWatch(links or LinkLimits())
        self._first_exit = FirstExit()
        self._nonfinite: dict[str, Signal] = {}
        self._started_s = -math.inf  # when the generation began

    def observe(self, observation: Observation) -> RuleResult:
        job, now_s = observation.job, observation.now_s
        for signal in observation.signals:
            present = job is None or (signal.time_s >= job.generation_start_s and (self._workers or signal.machine in job.machines))
            if present:  # what a restarted controller hears again of an earlier generation is over
                self._note(read_signal(signal))
        for finding in self._links.findings(now_s):
            self._note_link(finding, now_s)
        if self._workers:
            self._note_first_exit(observation)
        here = None if job is None or self._workers else frozenset(job.machines)  # of a live job: who has left it is not accused again
        self._started_s = -math.inf if job is None else job.generation_start_s
        self._items = {key: item for key, item in self._items.items() if self._stands(item, now_s) and item.is_in(here)}
        machines = len(job.machines) if job is not None else 0
        return RuleResult((*self._suspects(now_s, machines), *self._gradients(now_s, machines)))

    def _stands(self, item: _Item, now_s: float) -> bool:
        """For its time, and as long as the job stands that stopped with it. What is the job's is over with its generation, which a restart
        has answered; a machine's fault is not."""
        if item.row.names == "job" and item.newest_s <= self._started_s:
            return False
        return now_s - item.newest_s <= item.row.stands_s or self._tracker.halt.stopped_near(item.signal.time_s, item.row.within_s)

    def _note(self, signal: Signal) -> None:
        self._first_exit.note(signal)
        if signal.machine is None:
            return
        event, key, message = self._event_of(signal)
        row = self._rows.get(event or "")
        if signal.kind == "link":
            self._links.note(signal)
        elif signal.kind == "nonfinite" and self._workers and signal.data.get("what") != "loss":  # a loss needs its peers to be judged
            self._nonfinite.setdefault(signal.machine, signal)
        elif row is not None and row.tier is not None and row.rule == self.name and signal.kind != "exit":
            self._add(_Item(signal, row, key, message, signal.time_s))

    def _event_of(self, signal: Signal) -> tuple[str | None, str, str]:
        """(row, what is the same on another machine, the message)"""
        event = event_of(signal)
        if signal.kind == "xid" and isinstance(signal.data.get("code"), int):
            rule = find_xid_rule(signal.data["code"], self._xid_rules)
            message = f"Xid {rule.code} ({rule.severity}, {rule.action}, by {rule.source}): {signal.message}"
            return rule.event_of(signal.message), f"xid {rule.code}", message
        if event == "oom":
            return event_of_kill(signal), "oom", signal.message
        if event == "order":
            return event, f"order {signal.machine}", f"an operator orders its eviction: {signal.message}"
        return event, str(event), signal.message or str(event)

    def _add(self, item: _Item) -> None:
        """A signal that is repeated stands longer; a kill comes as two lines, of which the one that knows more counts."""
        place = "" if item.row.event.startswith("oom") else item.signal.device
        known = self._items.setdefault((item.machine, item.key, place), item)
        known.newest_s = max(known.newest_s, item.newest_s)
        worse = TIER_ORDER[item.row.tier or "watch"] > TIER_ORDER[known.row.tier or "watch"]
        if worse or (known.row.event == "oom" and item.row.event != "oom"):
            known.row, known.message = item.row, item.message

    def _note_link(self, finding: LinkFinding, now_s: float) -> None:
        row = self._rows[finding.event]
        self._add(_Item(finding.signal, row, finding.event, finding.message, now_s, finding.machines))

    def _note_first_exit(self, observation: Observation) -> None:
        named = self._first_exit.named(observation, lambda time_s: self._stands_s(observation.now_s, time_s))
        row = self._rows["exit.first_deadly"]
        if named is None or (named.signal.machine or "", row.event, None) in self._items:
            return
        how = f"{named.failed} machines failed after it" if named.failed else "the job stands since then"
        message = f"ended first, by signal {named.signal.data.get('signal')}; {how}"
        self._add(_Item(named.signal, row, row.event, message, max(named.signal.time_s, observation.now_s)))

    def _stands_s(self, now_s: float, time_s: float) -> float:
        near = self._tracker.halt.stopped_near(time_s, self._rows["exit.first_deadly"].within_s)
        return now_s - max(time_s, self._tracker.halt.since_s or time_s) if near else 0.0

    def _suspects(self, now_s: float, machines: int) -> list[Suspect]:
        alone: defaultdict[str, list[_Weighed]] = defaultdict(list)
        shared: defaultdict[tuple[str, ...], list[_Weighed]] = defaultdict(list)
        for item in self._items.values():
            weighed = self._weigh(item)
            sharing = self._sharing(item)
            if len(sharing) > 1:
                fails_alone = item.row.part in _OWN_PARTS and 2 * len(sharing) <= machines
                shared[sharing if fails_alone else ()].append(weighed)
            elif item.row.names == "job":
                shared[()].append(weighed)
            else:
                alone[item.machine].append(weighed)
        found = [self._suspect("machine", (machine,), items, now_s) for machine, items in alone.items()]
        return found + [self._suspect("group" if names else "job", names, items, now_s) for names, items in shared.items()]

    def _weigh(self, item: _Item) -> _Weighed:
        row, signal, tier = item.row, item.signal, item.row.tier or "watch"
        own = Evidence(signal.kind, item.machine, item.message[:240], device=signal.device, since_s=signal.time_s)
        seconds = [piece for witness in row.second for piece in self._witness(witness, item)]
        if row.seconded is not None and seconds:
            return _Weighed(item, row.seconded, (own, *seconds[:3]))
        return _Weighed(item, tier, (own,))

    def _witness(self, witness: str, item: _Item) -> list[Evidence]:
        time_s, within_s = item.signal.time_s, item.row.within_s
        if witness == "stopped":
            near_s = [death_s for death_s in self._first_exit.deadly.get(item.machine, ()) if abs(death_s - time_s) <= within_s]
            own = [Evidence("exit", item.machine, "a rank on it ended by a deadly signal about then", since_s=at_s) for at_s in near_s[:1]]
            return [*own, *([_STOPPED] if self._tracker.halt.stopped_near(time_s, within_s) else [])]
        others = [
            other
            for other in self._items.values()
            if other.machine == item.machine and other.key != item.key and abs(other.signal.time_s - time_s) <= within_s
        ]
        if witness == "same_class":
            others = [other for other in others if _part(other.row) == _part(item.row)]
        else:
            others = [other for other in others if other.row.is_hardware]
        return [Evidence(other.signal.kind, other.machine, other.message[:240], since_s=other.signal.time_s) for other in others]

    def _stopped_job(self, item: _Item) -> bool:
        """Whether the job stopped, or a rank of this generation died, about then: a stop at another time has another reason."""
        time_s, within_s = item.signal.time_s, item.row.within_s
        deaths_s = [death_s for times_s in self._first_exit.deadly.values() for death_s in times_s if death_s >= self._started_s]
        return any(abs(death_s - time_s) <= within_s for death_s in deaths_s) or self._tracker.halt.stopped_near(time_s, within_s)

    def _sharing(self, item: _Item) -> tuple[str, ...]:
        """The machines that report the same within seconds, this one among them."""
        same = {
            other.machine
            for other in self._items.values()
            if other.key == item.key and abs(other.signal.time_s - item.signal.time_s) <= _SHARED_S
        }
        return tuple(sorted({item.machine, *item.machines, *same}))

    def _suspect(self, kind: str, machines: tuple[str, ...], items: Sequence[_Weighed], now_s: float) -> Suspect:
        """What is said of one target: the gravest decides, the rest is evidence."""
        best = max(items, key=lambda weighed: TIER_ORDER[weighed.tier])
        tier: Tier = best.tier if kind == "machine" or best.tier == "watch" else "page"
        confidence = _OF_EVENT.get((best.item.row.event, tier), _SIGNAL_CONFIDENCE[tier])
        source = NOTICE if tier == "page" and not any(self._stopped_job(weighed.item) for weighed in items) else self.name
        ordered = sorted(items, key=lambda weighed: -TIER_ORDER[weighed.tier])
        evidence = _once(piece for weighed in ordered for piece in weighed.evidence)
        since_s = min(weighed.item.signal.time_s for weighed in items)
        if kind == "machine":
            return Suspect(now_s, source, "machine", machines, "explicit", confidence, since_s, tier, evidence)
        cause: Cause = "unknown" if best.item.row.event == "oom" else "explicit"
        return Suspect(now_s, source, "group" if machines else "job", machines, cause, min(confidence, 0.7), since_s, tier, evidence)

    def _gradients(self, now_s: float, machines: int) -> list[Suspect]:
        if not self._nonfinite or now_s - min(item.time_s for item in self._nonfinite.values()) < _SETTLE_S:
            return []
        reports, self._nonfinite = self._nonfinite, {}
        if len(reports) > 1 or machines == 1:
            return []
        signal = next(iter(reports.values()))
        evidence = Evidence("gradient", signal.machine, f"own gradient not finite: {signal.message or signal.data.get('what', '')}".strip())
        machine = signal.machine or ""
        return [Suspect(now_s, self.name, "machine", (machine,), "numeric", 0.9, signal.time_s, "evict", (evidence,))]


def _part(row: SignalRow) -> str:
    return _KIN.get(row.part, row.part)


def _once(pieces: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Without repeats, and no more than a page can show."""
    return tuple(dict.fromkeys(pieces))[:12]


_LASTS_S = 600.0
_REPORT_CONFIDENCE = {"fatal": 0.5, "warning": 0.3}


class ReportRule:
    """Reads report signals (observation.Rule). A report speaks from its begin to its end, and for ten minutes at most."""

    name = "reports"

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str, str | None], Signal] = {}

    def observe(self, observation: Observation) -> RuleResult:
        now_s = observation.now_s
        for signal in observation.signals:
            self._note(signal)
        self._standing = {key: item for key, item in self._standing.items() if now_s - item.time_s <= _LASTS_S}
        machines = observation.job.machines if observation.job is not None else ()
        return RuleResult(tuple(self._suspect(name, now_s) for name in machines if self._speaks_of(name, machines)))

    def _note(self, signal: Signal) -> None:
        if signal.kind != "report" or signal.machine is None:
            return
        key = (signal.machine, str(signal.data.get("name")), signal.device)
        if signal.data.get("state") == "end":
            self._standing.pop(key, None)
        elif signal.data.get("severity") in _REPORT_CONFIDENCE:
            self._standing.setdefault(key, signal)

    def _speaks_of(self, machine: str, machines: tuple[str, ...]) -> bool:
        return any(not self._is_everywhere(name, machines) for owner, name, _ in self._standing if owner == machine)

    def _is_everywhere(self, name: str, machines: tuple[str, ...]) -> bool:
        owners = {owner for owner, other, _ in self._standing if other == name and owner in machines}
        return len(owners) > 1 and 2 * len(owners) >= len(machines)

    def _suspect(self, machine: str, now_s: float) -> Suspect:
        own = sorted((item for (owner, _, _), item in self._standing.items() if owner == machine), key=lambda item: item.time_s)
        evidence = tuple(
            Evidence("report", machine, f"{item.data.get('name')} ({item.data.get('severity')}): {item.message}"[:240], None, item.device)
            for item in own[:5]
        )
        confidence = max(_REPORT_CONFIDENCE[str(item.data.get("severity"))] for item in own)
        return Suspect(now_s, self.name, "machine", (machine,), "explicit", confidence, own[0].time_s, "watch", evidence)


_STANDS_S = 300.0
_BEFORE_S = 5.0  # an answer from before the job stood shows another job
_SILENT, _BEHIND = 0.5, 0.4


class RasRule:
    """Reads ras signals (observation.Rule). tracker: shared, and updated before every observation."""

    name = "ras"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._heard: Signal | None = None

    def observe(self, observation: Observation) -> RuleResult:
        for signal in observation.signals:
            if signal.kind == "ras" and signal.data.get("answered"):
                self._heard = signal
        heard, since_s = self._heard, self._tracker.halt.since_s
        if heard is None or since_s is None or heard.time_s < since_s - _BEFORE_S or observation.now_s - heard.time_s > _STANDS_S:
            return RuleResult()
        silent, behind = (self._machines(heard, side, observation) for side in ("silent", "behind"))
        named, confidence, what = (silent, _SILENT, "does not answer RAS") if silent else (behind, _BEHIND, "launched fewer operations")
        machines = tuple(dict.fromkeys(named.values()))
        if len(machines) != 1:
            return RuleResult()
        evidence = (Evidence("ras", machines[0], f"{what}: {', '.join(named)} ({heard.message})"[:240], since_s=heard.time_s),)
        return RuleResult((Suspect(observation.now_s, self.name, "machine", machines, "stall", confidence, since_s, "watch", evidence),))

    def _machines(self, heard: Signal, side: str, observation: Observation) -> dict[str, str]:
        """Process as reported, to the machine it is on; those that cannot be placed are left out."""
        rows = heard.data.get(side)
        placed: dict[str, str] = {}
        for row in rows if isinstance(rows, (list, tuple)) else ():
            machine = _place(row, observation) if isinstance(row, Mapping) else None
            if machine is not None:
                rank = "" if row.get("rank") is None else f"rank {row['rank']}, "
                placed[f"{rank}process {row.get('pid')}"] = machine
        return placed


def _place(row: Mapping[str, Any], observation: Observation) -> str | None:
    """By its process number, if one machine alone has it; else by its rank, if the communicator is that of the whole job."""
    pid, job = row.get("pid"), observation.job
    owners = [machine for machine, view in observation.fleet.items() if any(worker.pid == pid for worker in view.workers)]
    if len(owners) == 1:
        return owners[0]
    if job is None or row.get("size") != len(job.rank_machine) or not isinstance(row.get("rank"), int):
        return None
    return job.rank_machine.get(row["rank"])
