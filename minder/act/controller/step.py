"""The controller: one straight function per tick. Telemetry, signals, verdicts, decisions, actions; then the first new step.

A stage that fails is counted, written to the ledger and shown; it never ends the loop, and what it would have said is "no data".
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from minder.act.controller.clock_steps import ClockSteps
from minder.act.controller.deciding import Deciding
from minder.act.controller.ending import note_finished, spoilt_because
from minder.act.controller.excerpts import Excerpts
from minder.act.controller.failures import BlameWatch, identify
from minder.act.controller.guards import Guards, rule_part
from minder.act.controller.hearing import Hearing
from minder.act.controller.pool import Pool
from minder.act.controller.retests import Retests
from minder.act.controller.stages import Stages
from minder.act.controller.state import JobState, incidents_of_restart
from minder.act.controller.status import write_status
from minder.act.controller.step_sight import StepSight, started_without_steps
from minder.act.controller.tick import Tick
from minder.act.controller.witnesses import Seen, Witnesses
from minder.act.recovery.restart import StartResult
from minder.model.clock import Clock
from minder.model.errors import LeaseLostError, LedgerError
from minder.model.evidence import Signal, Statement, Verdict
from minder.model.log import event
from minder.model.observation import MachineView, Observation, RequestKind
from minder.model.telemetry import Sample, Window
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.endings import end_run
from minder.record.incidents.words import verdict_words

__all__ = ["Controller"]

T = TypeVar("T")
_log = logging.getLogger("minder.controller")
_NO_VERDICTS: tuple[list[Verdict], frozenset[RequestKind]] = ([], frozenset())
_AHEAD_S = 60.0  # samples from further in the future would only pile up: whoever stamped them has another clock
_MOST_TOLD = 3  # causes of one outage
_ACCUSED_S = 600.0  # whom to evict is known, or was: no more rounds
_LEARN_S = 600.0  # so long may a job that we came upon take to show how long its steps are


class Controller:
    """Watches one job. `run` loops `step` until the job ends; signals wake it before the next tick."""

    def __init__(self, state: JobState, stages: Stages, ledger: Ledger, clock: Clock, state_dir: Path) -> None:
        self.state = state
        self._stages = stages
        self._ledger = ledger
        self._clock = clock
        self._state_dir = state_dir
        self._tick = Tick()
        self._guards = Guards(state.name, self._tick, stages.measures)
        stages.measures.parts = tuple(rule_part(rule.name) for rule in stages.judge.rules)
        self._clock_steps = ClockSteps(clock)
        self._hearing = Hearing(state, stages, self._tick, self._guards, self._clock_steps)
        self._hearing.on_say = self.say
        self._excerpts = Excerpts()
        self._blame = BlameWatch(state, ledger, stages.policy.config)
        self._deciding = Deciding(state, stages, ledger, clock, self._tick, self, self._blame)
        self._step_sight = StepSight(watched=stages.watched is not None)
        self._witnesses = Witnesses(stages.fleet, clock.now_s, stages.parallelism)
        self._retests = Retests(state, ledger, stages.fleet, clock.now_s)
        self.pool = Pool(state, ledger, stages.fleet, clock, stages.admits, stages.policy.config)
        self._retests.on_say = self.pool.on_say = self.say
        self.on_verdict: Callable[[Verdict], None] = lambda verdict: None
        self.on_say: Callable[[str], None] = lambda message: None
        self.says_verdicts = True  # False: the receiver of `on_verdict` says them
        if stages.recovery is not None:
            stages.recovery.on_phase, stages.recovery.on_result = self.say, stages.measures.acted

    def accused(self) -> tuple[str, ...]:
        """Whom verdicts named last, for some minutes."""
        return self._excerpts.accused(self._clock.now_s())

    def step(self, now_s: float) -> None:
        """One tick at `now_s` (unix seconds)."""
        stages, state = self._stages, self.state
        self._guards.begin()
        moved_s = self._follow_clock()
        silence: list[Sample] = []
        samples = self.guard("telemetry", lambda: list(stages.source.collect(now_s)), silence)
        stages.measures.sampled(samples)
        window = self.guard("windows", lambda: self._align(samples, now_s), None)
        self.guard("excerpts", lambda: self._excerpts.note(window), None)
        generation = state.generation
        observation = self._look(now_s, window, moved_s)
        verdicts, requests = self._conclude(now_s, observation)
        if observation is not None:
            self.guard("recording", lambda: self._record(samples, observation), None)
        self.guard("scoring", self._note_scoring, None)
        self.guard("alarm", self._note_alarm, None)
        if observation is not None:
            self.guard("steps", lambda: self._note_steps(observation, samples), None)
            self.guard("attachment", lambda: self._note_sight(observation, samples), None)
        if stages.watched is not None:
            verdicts = [*(self._tick.end_standing(now_s) if state.generation > generation > 0 else ()), *verdicts]
            self._tick.note_standing(verdicts)
        verdicts = [*verdicts, *self.guard("hang", lambda: self._end_hang(now_s), _NO_VERDICTS[0])]
        self._deciding.note(verdicts)  # nothing below this line may lose what was concluded
        stages.measures.concluded(verdicts)
        if observation is not None:
            self.guard("requests", lambda: self._request(requests, observation, verdicts), None)
        self._tell(verdicts)
        if stages.engine is not None:  # a job that it started again may step by the time it is seen: whose step that is comes first
            self.guard("engine", functools.partial(stages.engine.tick, now_s), None, writes=True)
        if observation is not None:
            self._blame.begin()
            self.guard("first_step", lambda: self._note_first_step(observation), None, writes=True)
        note = started_without_steps(state, stages.tracker, now_s)
        if note:
            self.guard("first_step", lambda: self._end_start(note), None, writes=True)
        in_job = () if observation is None or observation.job is None else observation.job.machines
        self._deciding.turn(now_s)
        self.guard("retests", self._retests.tick, None, writes=True)
        self.guard("blame", lambda: self._blame.tick(stages.tracker, now_s), None, writes=True)
        if stages.watched is None:
            self.guard("pool", self.pool.tick, None, writes=True)
        self._keep_excerpts(now_s, in_job)  # pictures for people: after everything that must not wait
        self.guard("end", self._note_end, None, writes=True)
        self.write_status(now_s)

    def _look(self, now_s: float, window: Window | None, moved_s: float) -> Observation | None:
        """What this tick shows; None where that cannot be said. Then nothing is concluded, and the signals wait for the next tick."""
        self.guard("signals", lambda: self._hearing.take(now_s, moved_s), None)
        heard = self.guard("fleet", lambda: self._hearing.hear(now_s), None)
        if heard is None:
            return None
        signals, views = heard
        self.guard("finished", lambda: self._note_finished(signals), None)
        self.guard("blame", lambda: self._blame.hear(signals), None)
        observation = self.guard("observe", lambda: self._observe(now_s, window, signals, views), None)
        if observation is None:
            self._tick.held = [*signals, *self._tick.held]
        return observation

    def _conclude(self, now_s: float, observation: Observation | None) -> tuple[list[Verdict], frozenset[RequestKind]]:
        """What the rules say. An episode does not end, and silence is no standstill, while the job could not be looked at."""
        judge, tracker = self._stages.judge, self._stages.tracker
        if observation is None:
            judge.keep_open(now_s)
            return _NO_VERDICTS
        if self._clock_steps.settling:
            return _NO_VERDICTS
        seen = self.guard("progress", lambda: tracker.update(observation), observation)
        if "progress" in self._tick.failing:
            tracker.hold(now_s)
            judge.keep_open(now_s)
        verdicts, requests = self.guard("judge", lambda: judge.judge(seen), _NO_VERDICTS)
        self._guards.note_rules([rule.name for rule in judge.rules], judge.failures)
        return [identify(verdict, self.state, tracker) for verdict in verdicts], requests

    def _tell(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            event(
                _log, logging.INFO, "verdict", job=self.state.name, kind=verdict.kind, tier=verdict.tier, machines=verdict.machines,
                cause=verdict.cause, confidence=round(verdict.confidence, 3), sources=verdict.sources, generation=self.state.generation,
            )  # fmt: skip
            said = verdict_words(verdict, self.state.rank_machine)
            if self.says_verdicts:
                self.say(said)
            else:
                self._tick.message = said
            self.on_verdict(verdict)

    def _follow_clock(self) -> float:
        """Seconds that the wall clock was set forward since the last tick: then every time that is remembered moves with it."""
        moved_s = self._clock_steps.look()
        if moved_s:
            way = "forward" if moved_s > 0 else "back"
            detail = f"the clock was set {way} by {abs(moved_s):.0f} s: what was learned of the telemetry is learned anew"
            self._tick.errors["clock"] += 1
            self._tick.backlog.tell(kinds.DEGRADED, {"what": "clock", "detail": detail})
            self._tick.move(moved_s)
            self.state.generation_start_s += moved_s
            self._stages.measures.move(moved_s, self._clock.steady_s())
            if self._stages.hung is not None:
                self._stages.hung.move(moved_s)
            self._stages.move_clock(moved_s)
            self.say(detail)
        return moved_s

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
            self._ledger.check_fence()
            with self._stages.measures.stage("tick"):
                self.step(self._clock.now_s())
        except LeaseLostError:
            raise
        except LedgerError as error:
            self._tick.errors["ledger"] += 1
            if not self._tick.backlog.unwritten:
                event(_log, logging.ERROR, "degraded", job=self.state.name, part="ledger", detail=str(error))
            self._tick.backlog.unwritten = str(error)
            self.say(f"no action while the ledger cannot be used: {error}")
        else:
            if self._tick.backlog.unwritten:
                event(_log, logging.WARNING, "part works again", job=self.state.name, part="ledger")
            self._tick.backlog.unwritten = ""

    def close(self) -> None:
        """Finish the recording; captures that still run are left to end by themselves."""
        with ExitStack() as stack:
            if self._stages.recorder is not None:
                stack.callback(self._stages.recorder.close)
            stack.callback(self._stages.source.close)
            stack.callback(self._retests.close)
            self._witnesses.close()

    def say(self, message: str) -> None:
        self._tick.message = message
        self.on_say(message)
        self.write_status(self._clock.now_s())

    def standbys(self) -> list[str]:
        """As the pool says."""
        return self.pool.standbys()

    def write_status(self, now_s: float) -> None:
        extra = {
            "message": self._tick.message,
            "step": self._stages.tracker.steps.step,
            "typical_step_s": self._stages.tracker.steps.typical_s,
            "mode": None if (mode := self._stages.tracker.mode) is None else mode.to_json(),
            "loss": self._newest_loss(),
            "incident": self.state.incident,
            "standbys": self.standbys(),
            "missing": self.pool.missing() if self._stages.watched is None else {},
            "dry_run": self._stages.policy.config.dry_run,
            "scores": self._stages.scores(),
            "errors": dict(self._tick.errors),
            "failing": dict(self._tick.failing),
            "unscored": self._stages.unscored(),
            "alarm": self._tick.alarm,
            "no_steps": self._step_sight.trouble,
            "stands_s": None if (standing := self._stages.standing()) is None else now_s - standing.since_s,
            "restart_in_s": None if self._stages.hung is None else self._stages.hung.left_s,
            "undecided": len(self._tick.backlog),
            "unwritten": self._ledger.beat_error or self._tick.backlog.unwritten,
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

    def guard(self, stage: str, work: Callable[[], T], nothing: T, writes: bool = False) -> T:
        """`work()`, or `nothing` where it raises (Guards.run)."""
        return self._guards.run(stage, work, nothing, writes)

    def _align(self, samples: Sequence[Sample], now_s: float) -> Window | None:
        self._stages.windows.push([sample for sample in samples if sample.time_s < now_s + _AHEAD_S])
        window = self._stages.windows.pop(now_s)
        self._stages.measures.aligned(window, self._clock.steady_s())
        for note in self._stages.windows.notes():
            self._tick.backlog.tell(kinds.DEGRADED, {"what": "telemetry", "detail": note})
        return window

    def take_up_paused(self) -> None:
        """What an earlier controller left waiting for the end of a pause. Raises LedgerError."""
        self._deciding.take_up()

    def take_up_incidents(self) -> None:
        """Of a watched job: what an earlier watcher left open ends with the job's next restart as well. Raises LedgerError."""
        for incident in self._ledger.open_incidents(self.state.name):
            if incident.state == "open" and incident.verdict is not None:
                self._tick.note_standing([incident.verdict])

    def _end_hang(self, now_s: float) -> list[Verdict]:
        """What a hang that has lasted too long, or a person, asks for."""
        stages, state = self._stages, self.state
        if stages.hung is None or state.phase not in ("starting", "running"):
            return []
        standing, context = stages.standing(), functools.partial(stages.context, state, self.standbys())
        found = [*stages.hung.orders(now_s), *stages.hung.look(standing, context, now_s, stages.tracker.steps.typical_s)]
        return [identify(verdict, state, stages.tracker) for verdict in found]

    def _keep_excerpts(self, now_s: float, in_job: Sequence[str]) -> None:
        """The telemetry around a fault goes into its incident. Raises LedgerError; what was not written comes with the next tick."""
        tick, nothing = self._tick, list[tuple[str, dict[str, Any]]]()
        while tick.opened:
            self._excerpts.want(*tick.opened.pop(0), in_job)
        tick.excerpts += self.guard("excerpts", lambda: self._excerpts.due(now_s), nothing)
        while tick.excerpts:
            self._ledger.append(kinds.EVIDENCE, tick.excerpts[0][1], job=self.state.name, incident=tick.excerpts[0][0])
            tick.excerpts.pop(0)

    def _note_scoring(self) -> None:
        """Telemetry that nobody scores is told: the silence of its rule means nothing."""
        trouble = self._stages.unscored()
        told = self._tick.unscored
        if trouble and trouble not in told and len(told) < _MOST_TOLD:  # first that there is no answer, then why
            told.append(trouble)
            self._tick.errors["scoring"] += 1
            self._tick.backlog.tell(kinds.DEGRADED, {"what": "scoring", "detail": trouble})
            self.say(f"telemetry is not scored: {trouble}")
        elif told and not trouble:
            told.clear()
            self._tick.backlog.tell(kinds.NOTE, {"text": "telemetry is scored again"})
            self.say("telemetry is scored again")

    def _note_alarm(self) -> None:
        """That the job's pace is unusual is told as it begins, and names nobody: rules do, of what they then see."""
        alarm = self._stages.alarm()
        if alarm and not self._tick.alarm:
            self._tick.backlog.tell(kinds.NOTE, {"text": alarm})
            self.say(alarm)
        self._tick.alarm = alarm

    def _note_steps(self, observation: Observation, samples: Sequence[Sample]) -> None:
        """That no step is read is said once a generation, with its remedy, and so is its end."""
        said = self._step_sight.look(self._clock.steady_s(), observation, self._stages.tracker.steps.step, samples)
        if said:
            self._tick.backlog.tell(kinds.NOTE, {"text": said})
            self.say(said)

    def _note_sight(self, observation: Observation, samples: Sequence[Sample]) -> None:
        """Of a watched job: what is seen of it, and what is not. Said, and written down."""
        stages = self._stages
        if stages.attachment is None or self._clock_steps.settling:
            return
        trouble = self._tick.failing.get("telemetry", "")
        now_s, step = self._clock.steady_s(), stages.tracker.steps.step
        for said in stages.attachment.look(now_s, observation, samples, step, trouble, stages.unread()):
            self._tick.backlog.tell(kinds.NOTE, {"text": said, **stages.attachment.take_news()})
            self.say(said)

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
        note_finished(self.state, signals)

    def _observe(self, now_s: float, window: Window | None, signals: Sequence[Signal], views: Mapping[str, MachineView]) -> Observation:
        generation, unheard = self.state.generation, Seen()
        seen = self.guard("capture", lambda: self._witnesses.take_flows(generation), unheard)
        nothing: Sequence[Statement] = ()
        statements = self.guard("capture", lambda: self._witnesses.take_statements(generation), nothing)
        flows = seen.flows
        watched, quiet_until_s = self._stages.watched, 0.0
        if watched is not None:
            flows = [flow for flow in flows if watched.owns(flow.machine, flow.pid)]
            if math.isnan(self._stages.tracker.steps.typical_s):  # silence means nothing before a step's usual time is known
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
        nobody has been named for this standstill, and rounds of a slow job only where nobody has just been accused: they hold processes
        up for a moment."""
        named = [verdict for verdict in verdicts if verdict.machines and verdict.kind != "recovered"]
        if named:
            self._tick.named_s = observation.now_s
        if any(verdict.tier == "evict" for verdict in named):
            self._tick.accused_s = observation.now_s
        tracker = self._stages.tracker
        moved_s, self._witnesses.gpus = tracker.moved_s, tracker.activity.has_gpus
        wanted = requests - {"stacks", "dumps"} if self._tick.named_s >= moved_s else requests
        if observation.now_s - self._tick.accused_s < _ACCUSED_S:
            wanted -= {"round"}
        self._witnesses.request(wanted, observation, moved_s)

    def blame_missing(self, result: StartResult) -> None:
        """Machines that do not start their workers are the next suspects, all at once: a standby can be bad too."""
        self._deciding.blame_missing(result)

    def _note_first_step(self, observation: Observation) -> None:
        state, tracker = self.state, self._stages.tracker
        if state.phase == "recovering" or state.generation == 0 or math.isinf(tracker.steps.step):
            return
        if not state.first_step_seen and tracker.steps.generation == state.generation:
            step, time_s = tracker.steps.first or (tracker.steps.step, tracker.steps.advanced_s)
            payload = {
                "step": int(step),
                "generation": state.generation,
                "resumed_from": state.resumed_from,
                "last_step": None if math.isinf(state.last_step) else int(state.last_step),
                "step_seconds": None if math.isnan(tracker.steps.typical_s) else tracker.steps.typical_s,
                "gpus": len(state.rank_machine),
            }
            if self._stages.watched is None or state.incident is not None:
                self._close_others()
                self._ledger.append(kinds.FIRST_STEP, payload, job=state.name, incident=state.incident, time_s=time_s)
            if state.incident is not None:
                self.say(f"generation {state.generation} steps again at step {int(step)}")
            state.first_step_seen, state.phase, state.incident = True, "running", None
        state.last_step = max(state.last_step, tracker.steps.step)

    def _end_start(self, note: str) -> None:
        state = self.state
        if state.incident is not None:
            self._ledger.append(kinds.CLOSED, {"by": "activity", "note": note}, job=state.name, incident=state.incident)
        self._close_others()
        state.phase, state.incident = "running", None
        self.say(note)

    def _close_others(self) -> None:
        """One restart may end several incidents: two machines at once, or a standby that was bad too. The first step closes them all."""
        events = self._ledger.events(job=self.state.name, kinds=[kinds.DECISION, kinds.FIRST_STEP, kinds.CLOSED])
        for incident in incidents_of_restart(events):
            if incident != self.state.incident:
                payload = {"by": "first new step", "note": f"handled together with {self.state.incident}"}
                self._ledger.append(kinds.CLOSED, payload, job=self.state.name, incident=incident)

    def _note_end(self) -> None:
        """The job is over when every rank's script has returned, whether or not it ever told of a step; or when workers are dead
        and may not be restarted any more."""
        state, words, now_s = self.state, self._tick.last_words, self._clock.now_s()
        if words is not None and now_s < words[2] and self._stages.context(state, (), now_s).workers_dead:
            self._deciding.give_up(words[0], words[1])
        if state.phase not in ("starting", "running") or not state.rank_machine or self._stages.watched is not None:
            return
        if all((state.generation, rank) in state.finished for rank in state.rank_machine):
            state.ended_because = spoilt_because(state)
            state.phase = "failed" if state.ended_because else "finished"
            end_run(self._ledger, state.name, state.phase, state.ended_because)
            self.say(f"the job has ended, and failed: {state.ended_because}" if state.ended_because else "the job is finished")
