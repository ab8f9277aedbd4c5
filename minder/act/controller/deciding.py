"""From a conclusion to what is done about it: written down, decided, asked about where the site wants that, carried out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from minder.act.controller.approvals import Approvals, Turn
from minder.act.controller.backlog import (
    MOST,
    Item,
    concerned,
    held_items,
    held_up,
    is_paused,
    outlives,
    over_note,
    overdue_page,
)
from minder.act.controller.failures import BlameWatch
from minder.act.controller.stages import Stages, Tick
from minder.act.controller.state import JobState
from minder.act.policy.approval import awaits_answer
from minder.act.policy.blame import Blame, attribute
from minder.act.policy.case import Case
from minder.act.policy.context import PolicyContext
from minder.act.policy.limits import ASKED, HANG, ready_standbys
from minder.act.policy.policy import RETRY_REASONS
from minder.act.recovery.restart import StartResult
from minder.model.clock import Clock
from minder.model.decision import Decision, Reason
from minder.model.errors import LedgerError, MinderError
from minder.model.evidence import Evidence, Verdict
from minder.model.history import History
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.endings import end_run
from minder.record.incidents.words import what_was_decided

__all__ = ["Deciding"]

T = TypeVar("T")
_LAST_WORDS_S = 15.0


class Voice(Protocol):
    """What the controller lends: it reports to a watcher, catches what a stage throws, and knows the standbys."""

    def say(self, message: str) -> None: ...

    def guard(self, stage: str, work: Callable[[], T], nothing: T) -> T: ...

    def standbys(self) -> list[str]: ...


class Deciding:
    """The second half of a tick. Every method raises LedgerError: nothing is decided or done that cannot be written down."""

    def __init__(
        self, state: JobState, stages: Stages, ledger: Ledger, clock: Clock, tick: Tick, voice: Voice, blame: BlameWatch
    ) -> None:  # fmt: skip
        self._blame = blame
        self._state = state
        self._stages = stages
        self._ledger = ledger
        self._clock = clock
        self._tick = tick
        self._voice = voice
        self._approvals = Approvals(state, ledger, stages.policy.config, clock)
        self._announced: set[str] = set()  # approved operations that wait for the end of a pause

    def note(self, verdicts: Sequence[Verdict]) -> None:
        """New conclusions: none of them is lost, whatever happens to the ledger."""
        self._approvals.note(verdicts)
        self._tick.backlog.note(verdicts)

    def take_up(self) -> None:
        """What an earlier controller was asked during a pause, or for want of a standby, is asked again when that ends."""
        events = self._ledger.events(job=self._state.name, kinds=(kinds.GENERATION_STARTED, kinds.DECISION))
        for item, why in held_items(events).items():
            self._tick.backlog.put([item], why)

    def turn(self, now_s: float) -> None:
        """Write down what was concluded, hear what operators answered, decide, act."""
        self._open_incidents(now_s)
        self._take_answers(now_s)
        for part in (*self._stages.holds, self._stages.beside):
            self._tick.backlog.put(() if part is None else part.take_items())
        self._tick.backlog.put(() if self._stages.pair_news is None else self._stages.pair_news.take_items(now_s))
        self._decide(now_s)
        self._resume()

    def _open_incidents(self, now_s: float) -> None:
        """Every conclusion is written down before anything is decided; one by one, so that a ledger that fails loses none."""
        backlog, name = self._tick.backlog, self._state.name
        while backlog.notes:
            self._ledger.append(*backlog.notes[0], job=name)
            backlog.notes.pop(0)
        while backlog.unrecorded:
            verdict = backlog.unrecorded[0]
            incident = self._ledger.open_incident(verdict, job=name, time_s=now_s)
            backlog.unrecorded.pop(0)
            if verdict.kind != "recovered":
                backlog.put([(verdict, incident)])
                self._note_first_failure(verdict, incident, now_s)
                self._tick.opened.append((verdict, incident))
        if backlog.dropped:
            text = f"{backlog.dropped} conclusions are lost: more than {MOST} waited for the ledger"
            self._ledger.append(kinds.DEGRADED, {"what": "backlog", "detail": text}, job=name)
            backlog.dropped = 0

    def _note_first_failure(self, verdict: Verdict, incident: str, now_s: float) -> None:
        """That it is the first one since an update began to run."""
        note = None if self._stages.updates is None else self._stages.updates.first_failure(verdict, now_s)
        if note is not None:
            self._ledger.append(kinds.NOTE, note, job=self._state.name, incident=incident)

    def _decide(self, now_s: float) -> None:
        """All verdicts that stand go to the policy together: faults at the same time are one decision, and one restart. What a
        failure of the ledger leaves undecided goes back to where it waited, and why."""
        backlog = self._tick.backlog
        waited, late = backlog.take(now_s)
        if not waited and not late:
            return
        left = dict(waited)
        try:
            history = self._ledger.history(self._state.name, now_s)
            self._state.barred = set(history.barred)
            context = self._stages.context(self._state, self._voice.standbys(), now_s)
            while late:
                self._note_decision(overdue_page(*late[0], now_s), [late[0][0][1]])
                if self._stages.hung is not None and HANG in late[0][0][0].sources:
                    self._stages.hung.ask_again()
                late.pop(0)
            self._drop_over(left, context)
            waiting = {item: why for item, why in left.items() if why == "no_standby" and not self._has_standbys(item, history, context)}
            items = [item for item in left if item not in waiting]
            decisions, undecided = self._ask_policy(items, history, context)
            for verdict, _ in items:
                self._end_trials(verdict, history, context)
            decided = [item for item in items if item not in undecided]
            answers = [item for decision in decisions for item in concerned(decision, decided)]
            left = {item: why for item, why in left.items() if item in answers or item in undecided or item in waiting}
            generation, settled = self._state.generation, list[Item]()
            for decision in decisions:
                answered = concerned(decision, decided)
                why = self._carry_out(decision, answered, waited)
                if why is not None:
                    for item in answered:
                        if item not in settled or outlives(item, why):
                            backlog.put([item], _still(waited.get(item), why))
                elif self._state.generation > generation:  # the job was started again: what it answered is not asked again
                    settled += answered
                left = {item: why for item, why in left.items() if item not in answered}
        finally:
            for item, why in [*left.items(), *late]:
                backlog.put([item], why)

    def _has_standbys(self, item: Item, history: History, context: PolicyContext) -> bool:
        """Whether what waits for standbys could have them now. A policy that raises here is asked, and raises there."""
        verdict = item[0]
        case = Case(verdict, "evict", "", history, context, self._stages.policy.config, verdict.machines)
        return len(self._voice.guard("policy", functools.partial(ready_standbys, case), list(verdict.machines))) >= len(verdict.machines)

    def _ask_policy(
        self, items: Sequence[Item], history: History, context: PolicyContext
    ) -> tuple[list[Decision], list[Item]]:  # fmt: skip
        """The decisions, and the items for which the policy raised. It is asked about all of them together, and about each by itself only
        where that raises: one that cannot be decided holds no other up."""
        found = self._decide_on(items, history, context) if items else []
        if found is not None:
            return found, []
        if len(items) < 2:
            return [], list(items)
        each = [(item, self._decide_on([item], history, context)) for item in items]
        return [one for _, decisions in each for one in decisions or ()], [item for item, decisions in each if decisions is None]

    def _decide_on(self, items: Sequence[Item], history: History, context: PolicyContext) -> list[Decision] | None:
        nothing: list[Decision] | None = None
        decide = functools.partial(self._stages.policy.decide, [verdict for verdict, _ in items], history, context)
        return self._voice.guard("policy", decide, nothing)

    def _end_trials(self, verdict: Verdict, history: History, context: PolicyContext) -> None:
        """What this says of machines that are on trial."""
        nothing: Blame | None = None
        blame = self._voice.guard("blame", functools.partial(attribute, verdict, history, context), nothing)
        if blame is not None:
            self._blame.end_trials(verdict, blame, context.now_s)

    def _drop_over(self, left: dict[Item, Reason], context: PolicyContext) -> None:
        """What recovered, or was answered by a restart, while it waited."""
        for item, why in list(left.items()):
            over = self._tick.backlog.why_over(item, why, context)
            if over:
                self._note_decision(over_note(item, over, context.now_s), [item[1]])
                del left[item]

    def _take_answers(self, now_s: float) -> None:
        """What operators, or the end of the time they had, said to evictions that wait for them."""
        if self._stages.recovery is None or not self._approvals.pending:
            return
        dead = self._stages.context(self._state, (), now_s).workers_dead
        while (turn := self._approvals.review(now_s, dead)) is not None:
            if turn.act:
                self._carry_out_approved(turn)
                return
            if turn.decision is not None:
                self._note_decision(turn.decision, turn.approval.incidents)
            self._tick.backlog.put(turn.items)

    def _carry_out_approved(self, turn: Turn) -> None:
        """An operator said yes: it is checked again, since minutes may have passed."""
        checked, incidents = self._recheck(turn.approval.decision), turn.approval.incidents
        if checked is None:  # the answer is kept, and asked about again at the next tick
            return
        decision = checked
        if decision.action == "evict":
            generation = self._state.generation
            self._act(decision, incidents)
            if self._state.generation > generation:
                self._tick.backlog.settle(decision)
        elif is_paused(decision):  # what an operator approved waits for the end of the pause; reported once
            if decision.operation_id not in self._announced:
                self._note_decision(decision, incidents)
                self._announced.add(decision.operation_id)
        elif not _is_not_now(decision):
            self._approvals.close(turn.approval, decision.reason, decision.detail)
            self._note_decision(decision, incidents)
            self._tick.backlog.put(turn.items)  # dead workers are started again without it

    def _carry_out(self, decision: Decision, items: Sequence[Item], waited: Mapping[Item, Reason]) -> Reason | None:
        """Why it is to be asked again, where the answer is "not now". A pause, and the want of a standby, is reported once."""
        incidents = [incident for _, incident in items]
        if self._stages.recovery is not None:
            checked = self._recheck(decision)
            if checked is None:
                return next((waited[item] for item in items if item in waited), "ledger_unavailable")
            decision = checked
        if held_up(decision):
            new = [item[1] for item in items if waited.get(item) != decision.reason]
            if new:
                self._note_decision(decision, new)
            return decision.reason
        if _is_not_now(decision):
            return decision.reason
        now_s = self._clock.now_s()
        if self._stages.recovery is not None and self._awaits_answer(decision, now_s):
            if self._state.is_held:  # it is started again first, and then the question is asked
                return "already_in_progress"
            self._note_decision(self._approvals.ask(decision, items, now_s), incidents)
        else:
            self._act(decision, incidents, items)
        return None

    def _resume(self) -> None:
        """A job whose machines were tested stands no longer than that: where nothing else started it again, it goes on as it was."""
        for hold in self._stages.holds:
            hold.give_up_overdue()
            if not hold.is_over:
                continue
            try:
                result = hold.resume()
            except LedgerError:
                raise
            except MinderError as error:
                self.give_up(str(error), hold.incident)
                return
            self.blame_missing(result)

    def _recheck(self, decision: Decision) -> Decision | None:
        """None where the policy raises: nothing is done that was not checked."""
        if decision.action not in kinds.ACTS:
            return decision
        now_s = self._clock.now_s()
        context = self._stages.context(self._state, self._voice.standbys(), now_s)
        check = functools.partial(self._stages.policy.recheck, decision, self._ledger.history(self._state.name, now_s), context)
        nothing: Decision | None = None
        return self._voice.guard("policy", check, nothing)

    def _awaits_answer(self, decision: Decision, now_s: float) -> bool:
        return awaits_answer(decision, self._ledger.history(self._state.name, now_s), self._stages.policy.config)

    def _act(self, decision: Decision, incidents: Sequence[str], items: Sequence[Item] = ()) -> None:
        """Note the decision, and do what it says. items: what it answers."""
        self._note_decision(decision, incidents)
        if self._stages.recovery is None:
            return
        if decision.reason == "max_restarts":  # its launcher may not have reported yet that the workers are dead
            cause = next((item.message for item in decision.verdict.evidence if item.message), decision.verdict.cause)
            words = f"{cause}; {decision.detail}"
            if HANG in decision.verdict.sources:
                if self._stages.recovery.stop(decision, incidents[0]):
                    self.give_up(words, incidents[0])
            elif ASKED.isdisjoint(decision.verdict.sources):
                self._tick.last_words = (words, incidents[0], self._clock.now_s() + _LAST_WORDS_S)
        if decision.action not in kinds.ACTS:
            return
        try:
            result = self._stages.recovery.carry_out(decision, incidents[0])
        except LedgerError:
            raise
        except MinderError as error:
            self.give_up(str(error), incidents[0])
            return
        self._hold(decision, items, incidents[0])
        if self._stages.beside is not None:
            self._stages.beside.begin(decision, incidents[0])
        self.blame_missing(result)

    def _hold(self, decision: Decision, items: Sequence[Item], incident: str) -> None:
        """What was decided may hold the job: then nothing else does any more."""
        for hold in self._stages.holds:
            if decision.action == hold.action:
                hold.begin(decision, items, incident)
            elif self._state.is_held:
                hold.let_go()

    def _note_decision(self, decision: Decision, incidents: Iterable[str]) -> None:
        incidents = list(dict.fromkeys(incidents))
        for each in incidents:
            self._ledger.append(kinds.DECISION, decision, job=self._state.name, incident=each, operation_id=decision.operation_id)
        self._stages.measures.decided(decision)
        self._voice.say(what_was_decided(decision, incidents))

    def give_up(self, why: str, incident: str) -> None:
        self._ledger.append(kinds.DEGRADED, {"what": "recovery", "detail": why}, job=self._state.name, incident=incident)
        self._voice.say(f"the job is given up: {why}")
        self._state.phase, self._state.ended_because = "failed", why
        end_run(self._ledger, self._state.name, "failed", why)

    def blame_missing(self, result: StartResult) -> None:
        """Machines that do not start their workers are the next suspects, all at once: a standby can be bad too."""
        now_s, since_s = self._clock.now_s(), self._state.generation_start_s
        missing, updates = dict(result.missing), self._stages.updates
        not_running = missing | dict.fromkeys(result.late, "its workers are still on their way")
        excused = None if updates is None or not not_running else updates.excused(not_running, now_s)
        if updates is not None and excused is not None:  # a version that never ran anywhere: who answers is no worse for it
            missing = {machine: why for machine, why in missing.items() if not updates.answers(machine)}
            self._tick.backlog.note([excused])
            self._stages.measures.concluded([excused])
        for machine, why in missing.items():
            evidence = (Evidence("launcher", machine, why, since_s=since_s),)
            verdict = Verdict(now_s, "machine", "evict", (machine,), "absence", 0.9, since_s, evidence, (), ("start",))
            self._tick.backlog.note([verdict])
            self._stages.measures.concluded([verdict])
        if result.missing or excused is not None:
            self._state.phase = "running"
            self._open_incidents(now_s)
            self._decide(now_s)


def _still(before: Reason | None, why: Reason) -> Reason:
    """What waited for a standby, and cannot be acted on at this very moment, waits for no other reason."""
    return "no_standby" if before == "no_standby" and why in RETRY_REASONS else why


def _is_not_now(decision: Decision) -> bool:
    return decision.reason in RETRY_REASONS and decision.action == "none"
