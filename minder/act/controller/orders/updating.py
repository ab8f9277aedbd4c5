"""Updates of the job's code: brought to its launchers ahead of time, applied by the next generation, taken back on the same path.

An order waits in the ledger. Beside the tick its code is brought to every launcher of the job; what one of them refuses fails whole, and
the version before it runs on. The next generation applies what waits, whatever it is started for. An urgent order, and one that has waited
for `update_within_s`, asks for a restart of its own, which goes through the policy as every other. GENERATION_STARTED names the version and
the order before any launcher is asked to run it: a controller that takes over reads it there, and an order is applied once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from minder.act.controller.context import ContextMaker
from minder.act.controller.orders.job_work import JobWork
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import Rollback
from minder.act.policy.limits import UPDATE
from minder.model.clock import Clock
from minder.model.decision import Decision
from minder.model.errors import NoAnswerError, RecoveryError, WireError
from minder.model.evidence import Evidence, Failure, Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.location import code_folder
from minder.record.incidents.updates import UPDATE_KINDS, Order, UpdateFold, Version
from minder.wire.code_store import CodeStore
from minder.wire.fleet import Fleet

__all__ = ["Choice", "Updating"]

_AGAIN_S = 10.0  # a launcher that was silent is sent the code again
_NEXT_S = 20.0  # so long a generation waits for code that is not there yet
_ANSWERS_S = 3.0
_WARM_S = 120.0  # so long processes of an urgent version are waited for while the job trains on
_SURE = 0.99


@dataclass(frozen=True, slots=True)
class Choice:
    """The version of one generation. order: that it applies, None: it goes on as before."""

    version: Version
    order: Order | None = None

    def payload(self) -> dict[str, Any]:
        """For GENERATION_STARTED; nothing of a job that was never updated."""
        if self.order is None:
            return {"update": self.version.number} if self.version.number else {}
        return {"update": self.version.number, "update_operation": self.order.operation_id}


@dataclass(slots=True)
class _Delivery:
    operation_id: str
    machines: frozenset[str]
    answers: Future[Mapping[str, Any]]


@dataclass(slots=True)
class _Warming:
    operation_id: str
    end_s: float  # of the monotonic clock
    asked: Future[Mapping[str, Any]] | None = None
    over: bool = False


class Updating:
    """`tick` and `orders` once per tick; the rest is for the recovery and for the policy's context. Every method raises LedgerError. work:
    where the job's checkpoints lie; compatible: whether a version reads those of a later one, None: not known."""

    def __init__(
        self, state: JobState, ledger: Ledger, fleet: Fleet, config: PolicyConfig, clock: Clock, work: JobWork,
        compatible: bool | None = None,
    ) -> None:  # fmt: skip
        self._state, self._ledger, self._fleet, self._config, self._clock = state, ledger, fleet, config, clock
        self._work, self._compatible = work, compatible
        self._store = CodeStore(code_folder(ledger.location))
        self._fold, self._read_id = UpdateFold(), 0
        self._threads: Any = ThreadPoolExecutor(1, thread_name_prefix="minder-updates")
        self._delivery: _Delivery | None = None
        self._warming: _Warming | None = None
        self._again_s = 0.0
        self._ordered: set[tuple[str, int]] = set()  # orders that asked for a restart, and of which generation
        self._first: tuple[int, float] | None = None  # of which version, running since when, the first failure is noted

    @property
    def known(self) -> UpdateFold:
        """As the ledger says now."""
        events = self._ledger.events(since_id=self._read_id, job=self._state.name, kinds=UPDATE_KINDS)
        for event in events:
            self._fold.add(event)
            self._read_id = event.id
        return self._fold

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def tick(self) -> None:
        """Bring what waits to the launchers, and write down what came of it."""
        order = self.known.open
        if self._delivery is not None and (order is None or self._delivery.operation_id != order.operation_id):
            self._delivery = None
        if order is None or order.state != "asked" or self._state.phase not in ("starting", "running"):
            return
        machines = frozenset(self._state.rank_machine.values())
        if self._delivery is None and machines and self._clock.monotonic_s() >= self._again_s:
            version = self._fold.versions[order.to]
            answers = self._threads.submit(self._deliver, version, machines, 60.0)
            self._delivery = _Delivery(order.operation_id, machines, answers)
        if self._delivery is not None and self._delivery.answers.done():
            delivery, self._delivery = self._delivery, None
            self._settle(order, delivery)

    def orders(self, now_s: float) -> list[Verdict]:
        """That the job is to be started again for an update: of an urgent one at once, else after `update_within_s`; asked once."""
        order, state = self.known.open, self._state
        if order is None or order.state != "ready" or state.phase not in ("starting", "running"):
            return []
        age_s = now_s - order.time_s
        if not order.urgent and age_s < self._config.update_within_s:
            return []
        if (order.operation_id, state.generation) in self._ordered or not self._warmed(order):
            return []
        self._ordered.add((order.operation_id, state.generation))
        what = f"a rollback to update {order.to}" if order.back else f"update {order.to}"
        when = "now" if order.urgent else f"{age_s / 3600:.0f} h ago, and no restart has come since"
        message = f"{order.by or 'an operator'} orders {what} {when}: {order.note or 'no note'}"
        evidence = (Evidence(UPDATE, None, message[:240], since_s=order.time_s),)
        return [Verdict(now_s, "job", "evict", (), "explicit", _SURE, order.time_s, evidence, (), (UPDATE,))]

    def _warmed(self, order: Order) -> bool:
        """Whether processes of an urgent version wait beside the ranks, or have had their time: the job stands only for the exchange. A
        version whose processes end by themselves fails before anything was stopped."""
        now_s = self._clock.monotonic_s()
        if not order.urgent or self._config.dry_run:
            return True
        if self._warming is None or self._warming.operation_id != order.operation_id:
            self._warming = _Warming(order.operation_id, now_s + _WARM_S)
        warming = self._warming
        if warming.over or now_s >= warming.end_s:
            return True
        if warming.asked is None:
            machines = [name for name in set(self._state.rank_machine.values()) if self._warms(name)]
            warming.over = not machines
            if machines:
                warming.asked = self._threads.submit(self._fleet.warm, machines, self._fold.versions[order.to].program())
            return warming.over
        if not warming.asked.done():
            return False
        answers, warming.asked = warming.asked.result(), None
        if why := _refusals(answers):
            self._fail(order, why)
            return False
        warming.over = all(isinstance(answer, WireError) or answer.get("warm") for answer in answers.values())
        return warming.over

    def _warms(self, machine: str) -> bool:
        return "warm updates" in (self._fleet.launcher_state(machine).get("offers") or ())

    def order_back(self, decision: Decision, incident: str | None) -> None:
        """What the ladder decided, as an order like an operator's; once."""
        if decision.update is None or any(item.operation_id == decision.operation_id for item in self.known.orders):
            return
        note = f"{decision.detail}; {incident}" if incident else decision.detail
        payload = {"to": decision.update, "urgent": True, "note": note[:400], "by": "minder"}
        self._ledger.append(kinds.UPDATE_ASKED, payload, job=self._state.name, incident=incident, operation_id=decision.operation_id)

    def choose(self, machines: Iterable[str]) -> Choice:
        """The version of the next generation on these machines. What waits is brought to those that do not have it; where one of them
        refuses it, it fails, and the version before it goes on."""
        found = self.known
        order = found.open
        if order is not None:
            answers = self._deliver(found.versions[order.to], frozenset(machines), _NEXT_S)
            if why := _refusals(answers):
                self._fail(order, why)
            else:
                return Choice(found.versions[order.to], order)
        return Choice(self.known.versions[self.known.running])

    def version(self, number: int) -> Version:
        """Raises RecoveryError for one that the ledger does not know."""
        if number not in self.known.versions:
            raise RecoveryError(f"update {number} of {self._state.name} is not in the ledger: its order was lost")
        return self._fold.versions[number]

    def deliver(self, number: int, machines: Iterable[str]) -> dict[str, WireError]:
        """Bring a version to launchers that are about to run it; machine to why it cannot. Version 0 is theirs already."""
        if not number:
            return {}
        answers = self._deliver(self.version(number), frozenset(machines), _NEXT_S)
        return {machine: answer for machine, answer in answers.items() if isinstance(answer, WireError)}

    def environment(self, number: int) -> dict[str, str]:
        """What ranks of a version get besides: whose checkpoints they do not read."""
        foreign = self.known.foreign(number) if self._compatible is False else ()
        return {"MINDER_CHECKPOINTS_NOT_OF": ",".join(map(str, foreign))} if foreign else {}

    def foreign(self, number: int) -> frozenset[int]:
        """Versions whose checkpoints this one does not read."""
        return frozenset(self.known.foreign(number)) if self._compatible is False else frozenset()

    def in_context(self, make: ContextMaker) -> ContextMaker:
        """The policy's context, with what could be taken back, and whether an update waits."""

        def made(state: JobState, standbys: Any, now_s: float) -> Any:
            context, order = make(state, standbys, now_s), self.known.open
            rollback = self._rollback(order, now_s)
            offers = context.offers | ({"rollback"} if rollback is not None else frozenset())
            return replace(context, rollback=rollback, offers=offers, update_waits="" if order is None else order.operation_id)

        return made

    def excused(self, missing: Mapping[str, str], now_s: float) -> Verdict | None:
        """Of machines whose workers did not start: those that answer, where the update that they were to run has never made a step. That is
        the program's failure, on whichever machine it shows first; None where nothing is to excuse."""
        found = self.known
        if not found.running or found.running in found.stepped:
            return None
        here = [machine for machine in missing if self.answers(machine)]
        if not here:
            return None
        state, text = self._state, f"workers of update {found.running} do not start: {missing[here[0]]}"
        ranks = tuple(rank for rank, machine in state.rank_machine.items() if machine == here[0])
        failure = Failure(
            now_s, here[0], ranks, "crash", "program", f"start of update {found.running}", generation=state.generation, text=text
        )  # fmt: skip
        evidence = (Evidence("launcher", here[0], text, since_s=state.generation_start_s),)
        since_s = state.generation_start_s
        return Verdict(now_s, "job", "evict", (), "explicit", 0.9, since_s, evidence, (), ("start",), failures=(failure,))

    def answers(self, machine: str) -> bool:
        """Whether its launcher was heard within the last seconds."""
        view = self._fleet.views().get(machine)
        return view is not None and view.launcher_age_s is not None and view.launcher_age_s <= _ANSWERS_S

    def first_failure(self, verdict: Verdict, now_s: float) -> dict[str, Any] | None:
        """What an incident's note says, where its failure is the first one since the running version began."""
        found = self.known
        if not found.running or not verdict.failures or verdict.kind == "recovered" or verdict.tier != "evict":
            return None
        if self._first == (found.running, found.since_s):
            return None
        self._first = (found.running, found.since_s)
        notes = self._ledger.events(job=self._state.name, kinds=(kinds.NOTE,))
        if any(item.payload.get("update") == found.running and item.id > self._since_id(found) for item in notes):
            return None
        note = found.versions[found.running].note
        age_s = max(0.0, now_s - found.since_s)
        text = f"first failure after update {found.running}, {_age(age_s)} after it began to run"
        return {"text": text + (f" ({note})" if note else ""), "update": found.running}

    def status(self) -> dict[str, Any] | None:
        """For status.json and the job's page; None of a job that was never updated."""
        found = self._fold
        if not found.orders:
            return None
        version, order = found.versions[found.running], found.open
        waits = None if order is None else {"update": order.to, "state": order.state, "urgent": order.urgent, "by": order.by}
        since_s = found.since_s if found.running else None
        return {"update": version.number, "by": version.by, "note": version.note, "since_s": since_s, "waits": waits}

    def _since_id(self, found: UpdateFold) -> int:
        applied = [item.event_id for item in found.orders if item.to == found.running and item.state == "applied"]
        return max(applied, default=0)

    def _rollback(self, order: Order | None, now_s: float) -> Rollback | None:
        found = self._fold
        previous = found.previous
        if previous is None:
            return None
        refused = unreadable = ""
        age_s, within_s = now_s - found.since_s, self._config.rollback_within_s
        if self._config.rollback != "auto":
            refused = 'rollback = "auto" is not set in [policy]'
        elif self._config.dry_run:
            refused = f"dry run: would go back to update {previous}"
        elif age_s > within_s:
            refused = f"update {found.running} has run for {_age(age_s)}: only within {_age(within_s)} is a new failure taken for its"
        elif order is not None:
            refused = f"update {order.to} waits, and comes with the next restart"
        else:
            unreadable = self._unreadable(found, previous)
        return Rollback(found.running, previous, found.since_s, found.since_generation, refused, unreadable)

    def _unreadable(self, found: UpdateFold, to: int) -> str:
        """Why version `to` has no checkpoint to go on from, "" where it has one, or the job has none at all."""
        if self._compatible is True:
            return ""
        machines = sorted(set(self._state.rank_machine.values()))
        saved = self._work.written_by(self._fleet.launcher_state(machine) for machine in machines)
        foreign = set(found.foreign(to))
        if saved is None or (self._compatible is None and saved and saved[0][1] in foreign):
            say = f"whether update {to} reads the newest checkpoint is not known"
            return f"{say}: set checkpoints_compatible in job.toml" if self._compatible is None else f"{say}: its versions cannot be seen"
        if saved and all(update in foreign for _, update in saved):
            return (
                f"no checkpoint is older than update {found.running}, and update {to} reads no newer one (checkpoints_compatible = false)"
            )
        return ""

    def _deliver(self, version: Version, machines: frozenset[str], timeout_s: float) -> dict[str, Any]:
        """Machine to its launcher's answer, or to the WireError."""
        if not version.number:  # what launchers were started with is theirs
            return {machine: {} for machine in machines}
        body = version.program()
        try:
            tree = self._store.tree(version.code) if version.code else None
        except (WireError, OSError) as error:
            return {"": WireError(str(error))}
        body["files"] = [] if tree is None else tree.rows()
        return dict(self._fleet.deliver(sorted(machines), body, self._store.read, timeout_s))

    def _settle(self, order: Order, delivery: _Delivery) -> None:
        answers = delivery.answers.result()
        if why := _refusals(answers):
            self._fail(order, why)
        elif any(isinstance(answer, WireError) for answer in answers.values()) or delivery.machines - set(answers):
            self._again_s = self._clock.monotonic_s() + _AGAIN_S
        else:
            payload = {"machines": sorted(delivery.machines)}
            self._ledger.append(kinds.UPDATE_READY, payload, job=self._state.name, operation_id=order.operation_id)

    def _fail(self, order: Order, why: str) -> None:
        detail = f"update {order.to} is not applied, and update {self._fold.running} runs on: {why}"
        self._ledger.append(kinds.UPDATE_FAILED, {"detail": detail}, job=self._state.name, operation_id=order.operation_id)


def _refusals(answers: Mapping[str, Any]) -> str:
    """What launchers that answered say against a version; a silent one says nothing."""
    against = {machine: str(answer) for machine, answer in answers.items() if _refuses(answer)}
    if not against:
        return ""
    first = next(iter(against.values()))
    return _said(first) + (f" (and {len(against) - 1} more)" if len(against) > 1 else "")


def _refuses(answer: Any) -> bool:
    return isinstance(answer, WireError) and not isinstance(answer, NoAnswerError)


def _said(line: str) -> str:
    """Of a launcher's refusal the machine and its own words; one of an earlier version does not know the question."""
    head, mark, body = line.partition(": {")
    if not mark:
        return f"{line}: a launcher of an earlier version takes no updates" if "HTTP 404" in line else line
    try:
        return f"{head.split(' at http')[0]}: {json.loads('{' + body)['error']}"
    except (ValueError, KeyError):  # it was cut off
        return line


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
