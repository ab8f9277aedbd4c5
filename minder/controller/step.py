"""The controller: one straight function per tick. Telemetry, signals, verdicts, decisions, actions; then the first new step.

A stage that fails is counted, written to the ledger and shown; it never ends the loop, and what it would have said is "no data".
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from minder.clock import Clock
from minder.controller.backlog import MOST, Backlog, Item, concerned, overdue_page
from minder.controller.stages import Stages
from minder.controller.state import JobState
from minder.controller.status import write_status
from minder.controller.witnesses import Seen, Witnesses
from minder.errors import LedgerError, MinderError
from minder.incidents import Ledger, kinds
from minder.policy.policy import RETRY_REASONS
from minder.recovery.restart import StartResult, is_waiting
from minder.types import Decision, Evidence, MachineView, Observation, RequestKind, Sample, Signal, Statement, Verdict, Window

__all__ = ["Controller"]

T = TypeVar("T")
_LAST_WORDS_S = 15.0
_LEARN_S = 600.0  # so long may a job that we came upon take to show how long its steps are


@dataclass(slots=True)
class _Tick:
    """What the loop carries from tick to tick."""

    errors: Counter[str] = field(default_factory=Counter)
    named_s: float = -math.inf  # when a verdict last named machines
    message: str = ""
    recorded: int = 0  # generation whose ranks the recording knows
    finished: set[tuple[int, int | None]] = field(default_factory=set)  # (generation, rank) whose script returned
    last_words: tuple[str, str, float] | None = None  # no restart is left: why, the incident, and until when that ends the job
    backlog: Backlog = field(default_factory=Backlog)
    standing: dict[tuple[str, ...], Verdict] = field(default_factory=dict)  # of a watched job: what a restart of it ends


class Controller:
    """Watches one job. `run` loops `step` until the job ends; signals wake it before the next tick."""

    def __init__(self, state: JobState, stages: Stages, ledger: Ledger, clock: Clock, state_dir: Path) -> None:
        self.state = state
        self._stages = stages
        self._ledger = ledger
        self._clock = clock
        self._state_dir = state_dir
        self._tick = _Tick()
        self._witnesses = Witnesses(stages.fleet, clock.now_s, stages.parallelism)
        self.on_verdict: Callable[[Verdict], None] = lambda verdict: None
        self.on_say: Callable[[str], None] = lambda message: None
        if stages.recovery is not None:
            stages.recovery.on_phase, stages.recovery.on_result = self.say, stages.measures.acted

    def step(self, now_s: float) -> None:
        """One tick at `now_s` (unix seconds)."""
        stages, state = self._stages, self.state
        silence: list[Sample] = []
        samples = self._guard("telemetry", lambda: list(stages.source.collect(now_s)), silence)
        stages.measures.sampled(samples)
        window = self._guard("windows", lambda: self._align(samples, now_s), None)
        generation = state.generation
        signals, views = self._hear(now_s)
        self._note_finished(signals)
        observation = self._observe(now_s, window, signals, views)
        self._guard("recording", lambda: self._record(samples, observation), None)
        stages.progress.update(observation)
        nothing: tuple[list[Verdict], frozenset[RequestKind]] = ([], frozenset())
        verdicts, requests = self._guard("judge", lambda: stages.judge.judge(observation), nothing)
        if stages.watched is not None:
            verdicts = [*(self._end_standing(now_s) if state.generation > generation > 0 else ()), *verdicts]
            self._note_standing(verdicts)
        self._tick.backlog.note(verdicts)  # nothing below this line may lose what was concluded
        stages.measures.concluded(verdicts)
        self._request(requests, observation, verdicts)
        for verdict in verdicts:
            self.say(_headline(verdict))
            self.on_verdict(verdict)
        self._note_first_step(observation)
        self._open_incidents(now_s)
        self._decide(now_s)
        self._note_end()
        self.write_status(now_s)

    def run(self, wake: threading.Event, stopping: threading.Event, interval_s: float) -> None:
        """Tick every `interval_s`, or as soon as a signal comes, until the job ended or `stopping` is set."""
        while not stopping.is_set() and self.state.phase not in ("finished", "failed"):
            self._step_or_wait()
            woken = wake.wait(interval_s)
            wake.clear()
            if woken:
                stopping.wait(0.25)  # let the echoes of a failure arrive: they belong to the same tick

    def _step_or_wait(self) -> None:
        """Without the ledger nothing may be acted on: that is told, and what was concluded waits for it."""
        try:
            with self._stages.measures.stage("tick"):
                self.step(self._clock.now_s())
        except LedgerError as error:
            self._tick.errors["ledger"] += 1
            self.say(f"no action while the ledger cannot be used: {error}")

    def close(self) -> None:
        """Finish the recording; captures that still run are left to end by themselves."""
        with ExitStack() as stack:
            if self._stages.recorder is not None:
                stack.callback(self._stages.recorder.close)
            stack.callback(self._stages.source.close)
            self._witnesses.close()

    def say(self, message: str) -> None:
        self._tick.message = message
        self.on_say(message)
        self.write_status(self._clock.now_s())

    def standbys(self) -> list[str]:
        """Machines outside the job whose workers wait at the barrier, in configured order, none of them barred."""
        in_job = set(self.state.rank_machine.values())
        views = self._stages.fleet.views()
        free = [m for m in self._stages.fleet.machines if m not in in_job and m not in self.state.barred]
        return [machine for machine in free if is_waiting(views.get(machine), self._clock.now_s())]

    def write_status(self, now_s: float) -> None:
        extra = {
            "message": self._tick.message,
            "step": self._stages.progress.step,
            "typical_step_s": self._stages.progress.typical_s,
            "loss": self._newest_loss(),
            "incident": self.state.incident,
            "standbys": self.standbys(),
            "scores": self._stages.scores(),
            "errors": dict(self._tick.errors),
            "undecided": len(self._tick.backlog),
        }
        self._stages.measures.show(now_s, extra)
        try:
            write_status(self._state_dir / "status.json", now_s, self.state, self._stages.fleet.views(), extra)
        except OSError:  # a full disk, say: the terminal is blind, the loop is not
            self._tick.errors["status"] += 1

    def _newest_loss(self) -> float | None:
        workers = [worker for view in self._stages.fleet.views().values() for worker in view.workers]
        known = [(worker.step or 0, worker.loss) for worker in workers if worker.loss is not None]
        return max(known)[1] if known else None

    def _guard(self, stage: str, work: Callable[[], T], nothing: T) -> T:
        """The stage boundary: whatever goes wrong inside is counted and told, and the tick goes on without that stage."""
        try:
            with self._stages.measures.stage(stage):
                return work()
        except Exception as error:  # noqa: BLE001
            self._tick.errors[stage] += 1
            if self._tick.errors[stage] in (1, 10, 100, 1000):
                kind = kinds.SOURCE_ERROR if stage == "telemetry" else kinds.DEGRADED
                text = f"{type(error).__name__}: {error}"
                try:
                    self._ledger.append(kind, {"source": stage, "what": stage, "error": text, "detail": text}, job=self.state.name)
                except LedgerError:
                    self._tick.errors["ledger"] += 1
            if not isinstance(error, MinderError):
                self._tick.message = f"{stage} failed: {type(error).__name__}: {error}"
            return nothing

    def _align(self, samples: Sequence[Sample], now_s: float) -> Window | None:
        self._stages.windows.push(samples)
        window = self._stages.windows.pop(now_s)
        for note in self._stages.windows.notes():
            self._tick.backlog.tell(kinds.DEGRADED, {"what": "telemetry", "detail": note})
        return window

    def _hear(self, now_s: float) -> tuple[list[Signal], dict[str, MachineView]]:
        """Signals, and what each machine shows. Of a job that we only watch: its own ranks, under our count of its restarts."""
        signals, views, watched = self._stages.fleet.drain(), self._stages.fleet.views(), self._stages.watched
        if self._stages.inbox is not None:
            nothing: list[Signal] = []
            signals = [*signals, *self._guard("inbox", functools.partial(self._stages.inbox.take, now_s), nothing)]
        if watched is None:
            return signals, views
        change = watched.follow(self.state, views, now_s)
        if change:
            self._tick.backlog.tell(kinds.NOTE, {"text": change})
            self.say(change)
        return watched.translate_signals(self.state, signals), watched.translate_views(self.state, views)

    def _note_standing(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self._tick.standing.pop(verdict.machines, None)
            if verdict.kind != "recovered":
                self._tick.standing[verdict.machines] = verdict

    def _end_standing(self, now_s: float) -> list[Verdict]:
        """Whoever owns a watched job has started it again: what stood against its former generation is over, in the ledger too."""
        return [
            dataclasses.replace(verdict, time_s=now_s, kind="recovered", tier="watch", evidence=(), against=())
            for verdict in self._tick.standing.values()
        ]

    def take_up_incidents(self) -> None:
        """Of a watched job: what an earlier watcher left open ends with the job's next restart as well. Raises LedgerError."""
        for incident in self._ledger.incidents(job=self.state.name, state="open"):
            if incident.state == "open" and incident.verdict is not None:
                self._note_standing([incident.verdict])

    def _record(self, samples: Sequence[Sample], observation: Observation) -> None:
        recorder = self._stages.recorder
        if recorder is None:
            return
        recorder.append_samples(samples)
        recorder.append_signals(observation.signals)
        if self._tick.recorded != self.state.generation:
            recorder.note_ranks(self.state.generation, self.state.rank_machine)
            self._tick.recorded = self.state.generation
        recorder.append_sighting(observation)

    def _note_finished(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            if signal.kind == "exit" and signal.data.get("code") == 0 and signal.generation == self.state.generation:
                self._tick.finished.add((self.state.generation, signal.rank))

    def _observe(self, now_s: float, window: Window | None, signals: Sequence[Signal], views: Mapping[str, MachineView]) -> Observation:
        generation, unheard = self.state.generation, Seen()
        seen = self._guard("capture", lambda: self._witnesses.take_flows(generation), unheard)
        nothing: Sequence[Statement] = ()
        statements = self._guard("capture", lambda: self._witnesses.take_statements(generation), nothing)
        flows = seen.flows
        watched, quiet_until_s = self._stages.watched, 0.0
        if watched is not None:
            flows = [flow for flow in flows if watched.owns(flow.machine, flow.pid)]
            if math.isnan(self._stages.progress.typical_s):  # silence means nothing before a step's usual time is known
                quiet_until_s = self.state.generation_start_s + _LEARN_S
        return Observation(
            now_s=now_s,
            window=window,
            signals=signals,
            job=self.state.view(self.standbys(), quiet_until_s),
            fleet=views,
            flows=flows,
            clock_error_s=self._stages.fleet.clock_error_s(),
            statements=statements,
            attempts=seen.attempts,
        )

    def _request(self, requests: frozenset[RequestKind], observation: Observation, verdicts: Sequence[Verdict]) -> None:
        """Ask the job's agents for what a rule wants to see; the answer is in a later observation. Stacks and dumps only as long as
        nobody has been named for this standstill: they hold processes up for a moment."""
        if any(verdict.machines and verdict.kind != "recovered" for verdict in verdicts):
            self._tick.named_s = observation.now_s
        moved_s = self._stages.progress.advanced_s
        wanted = requests - {"stacks", "dumps"} if self._tick.named_s >= moved_s else requests
        self._witnesses.request(wanted, observation, moved_s)

    def _open_incidents(self, now_s: float) -> None:
        """Every conclusion is written down before anything is decided; one by one, so that a ledger that fails loses none."""
        backlog, name = self._tick.backlog, self.state.name
        while backlog.notes:
            self._ledger.append(*backlog.notes[0], job=name)
            backlog.notes.pop(0)
        while backlog.unrecorded:
            verdict = backlog.unrecorded[0]
            incident = self._ledger.open_incident(verdict, job=name, time_s=now_s)
            backlog.unrecorded.pop(0)
            if verdict.kind != "recovered":
                backlog.put([(verdict, incident)])
        if backlog.dropped:
            text = f"{backlog.dropped} conclusions are lost: more than {MOST} waited for the ledger"
            self._ledger.append(kinds.DEGRADED, {"what": "backlog", "detail": text}, job=name)
            backlog.dropped = 0

    def _decide(self, now_s: float) -> None:
        """All verdicts that stand go to the policy together: faults at the same time are one decision, and one restart. What a
        failure of the ledger leaves undecided goes back to where it waited."""
        backlog = self._tick.backlog
        items, late = backlog.take(now_s)
        if not items and not late:
            return
        try:
            history = self._ledger.history(self.state.name, now_s)
            self.state.barred = set(history.barred)
            context = self._stages.context(self.state, self.standbys(), now_s)
            while late:
                self._note_decision(overdue_page(*late[0], now_s), [late[0][0]])
                late.pop(0)
            nothing: list[Decision] | None = None
            decide = functools.partial(self._stages.policy.decide, [verdict for verdict, _ in items], history, context)
            decisions = self._guard("policy", decide, nothing) if items else []
            left = items if decisions is None else [item for decision in decisions for item in concerned(decision, items)]
            for decision in decisions or ():
                answered = concerned(decision, items)
                if self._carry_out(decision, answered):
                    backlog.put(answered, decision.reason)
                left = [item for item in left if item not in answered]
            items = left
        finally:
            backlog.put([*items, *(item for item, _ in late)])

    def _carry_out(self, decision: Decision, items: Sequence[Item]) -> bool:
        """True if the answer is "not now": ask again."""
        name, incident = self.state.name, items[0][1]
        if decision.action in ("evict", "restart") and self._stages.recovery is not None:
            now_s = self._clock.now_s()
            context = self._stages.context(self.state, self.standbys(), now_s)
            decision = self._stages.policy.recheck(decision, self._ledger.history(name, now_s), context)
        if decision.reason in RETRY_REASONS and decision.action == "none":
            return True
        self._note_decision(decision, items)
        if self._stages.recovery is None:
            return False
        if decision.reason == "max_restarts":  # its launcher may not have told yet that the workers are dead
            told = next((item.message for item in decision.verdict.evidence if item.message), decision.verdict.cause)
            self._tick.last_words = (f"{told}; {decision.detail}", incident, self._clock.now_s() + _LAST_WORDS_S)
        if decision.action not in ("evict", "restart"):
            return False
        try:
            result = self._stages.recovery.carry_out(decision, incident)
        except LedgerError:
            raise
        except MinderError as error:
            self._give_up(str(error), incident)
            return False
        self.blame_missing(result)
        return False

    def _note_decision(self, decision: Decision, items: Sequence[Item]) -> None:
        for each in dict.fromkeys(item[1] for item in items):
            self._ledger.append(kinds.DECISION, decision, job=self.state.name, incident=each, operation_id=decision.operation_id)
        self._stages.measures.decided(decision)
        self.say(f"decision: {decision.action} {', '.join(decision.machines)} ({decision.detail or decision.reason})")

    def _give_up(self, why: str, incident: str) -> None:
        self._ledger.append(kinds.DEGRADED, {"what": "recovery", "detail": why}, job=self.state.name, incident=incident)
        self.say(f"the job is given up: {why}")
        self.state.phase, self.state.ended_because = "failed", why
        self._ledger.append(kinds.JOB_ENDED, {"outcome": "failed", "detail": why}, job=self.state.name)

    def blame_missing(self, result: StartResult) -> None:
        """Machines that do not start their workers are the next suspects, all at once: a standby can be bad too."""
        now_s, since_s = self._clock.now_s(), self.state.generation_start_s
        for machine, why in result.missing.items():
            evidence = (Evidence("launcher", machine, why, since_s=since_s),)
            verdict = Verdict(now_s, "machine", "evict", (machine,), "absence", 0.9, since_s, evidence, (), ("start",))
            self._tick.backlog.note([verdict])
            self._stages.measures.concluded([verdict])
        if result.missing:
            self.state.phase = "running"
            self._open_incidents(now_s)
            self._decide(now_s)

    def _note_first_step(self, observation: Observation) -> None:
        state, progress = self.state, self._stages.progress
        if state.phase == "recovering" or state.generation == 0 or math.isinf(progress.step):
            return
        if not state.first_step_seen and progress.generation == state.generation:
            step, time_s = progress.first or (progress.step, progress.advanced_s)
            payload = {
                "step": int(step),
                "generation": state.generation,
                "resumed_from": state.resumed_from,
                "last_step": None if math.isinf(state.last_step) else int(state.last_step),
                "step_seconds": None if math.isnan(progress.typical_s) else progress.typical_s,
                "gpus": len(state.rank_machine),
            }
            if self._stages.watched is None:
                self._ledger.append(kinds.FIRST_STEP, payload, job=state.name, incident=state.incident, time_s=time_s)
            if state.incident is not None:
                self.say(f"generation {state.generation} steps again at step {int(step)}")
            state.first_step_seen, state.phase, state.incident = True, "running", None
        state.last_step = max(state.last_step, progress.step)

    def _note_end(self) -> None:
        """The job is over when every rank's script has returned, whether or not it ever told of a step; or when workers are dead
        and may not be restarted any more."""
        state, words, now_s = self.state, self._tick.last_words, self._clock.now_s()
        if words is not None and now_s < words[2] and self._stages.context(state, (), now_s).workers_dead:
            self._give_up(words[0], words[1])
        if state.phase not in ("starting", "running") or not state.rank_machine or self._stages.watched is not None:
            return
        if all((state.generation, rank) in self._tick.finished for rank in state.rank_machine):
            state.phase = "finished"
            self._ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job=state.name)
            self.say("the job is finished")


def _headline(verdict: Verdict) -> str:
    who = ", ".join(verdict.machines) or "the job"
    return f"verdict: {verdict.kind} {who}, {verdict.cause}, {verdict.tier}, confidence {verdict.confidence:.2f}"
