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

from minder.act.controller.captures import Captures, Connections
from minder.act.controller.deciding import Deciding
from minder.act.controller.diagnosis.retests import Retests
from minder.act.controller.evidence import Excerpts
from minder.act.controller.failures import BlameWatch, identify
from minder.act.controller.milestones import Milestones, note_finished, started_without_steps
from minder.act.controller.reading.hearing import ClockSteps, Hearing
from minder.act.controller.reading.sight import SightNotes
from minder.act.controller.reading.signal_count import SignalCount
from minder.act.controller.reading.work_rate import WorkRate
from minder.act.controller.reporting.shadow import ShadowRule
from minder.act.controller.reporting.status import write_status
from minder.act.controller.reporting.study_notes import StudyNotes
from minder.act.controller.stages import Guards, Stages, Tick, rule_part
from minder.act.controller.standbys.pool import Pool
from minder.act.controller.standbys.standby_tests import StandbyTests
from minder.act.controller.state import JobState
from minder.act.policy.context import PolicyContext, Sizes
from minder.act.recovery.restart import StartResult
from minder.model.clock import Clock
from minder.model.decision import Size
from minder.model.errors import LeaseLostError, LedgerError, MinderError
from minder.model.evidence import CaptureFinding, Signal, StepStudy, Verdict
from minder.model.log import event
from minder.model.observation import MachineView, Observation, RequestKind
from minder.model.telemetry import Sample, Window
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.words import verdict_words

__all__ = ["Controller"]

T = TypeVar("T")
_log = logging.getLogger("minder.controller")
_NO_VERDICTS: tuple[list[Verdict], frozenset[RequestKind]] = ([], frozenset())
_AHEAD_S = 60.0  # samples from further in the future would only pile up: their machine has another clock
_LEAST_PAUSE = 0.1  # of the interval: other threads of the process have their turn
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
        self._sight = SightNotes(stages, self._tick, clock, self._clock_steps)
        self._milestones = Milestones(state, ledger, stages.tracker, watches=stages.watched is not None)
        self._captures = Captures(stages.fleet, clock.now_s, stages.parallelism)
        self._study_notes = StudyNotes(state_dir, self._tick.backlog.tell)
        self._signal_count = SignalCount(stages.measures.signals, functools.partial(ledger.append, job=state.name))
        past = functools.partial(ledger.events, job=state.name, kinds=(kinds.WORK,))
        self._work_rate = WorkRate(past, self._tick.backlog.tell)
        self._retests = Retests(state, ledger, stages.fleet, clock.now_s)
        probing = stages.standby_probing
        self.pool = Pool(state, ledger, stages.fleet, clock, stages.admits, stages.policy.config, tested=probing.is_on)
        self._standby_tests = StandbyTests(state, ledger, stages.fleet, clock, self.pool.proofs, probing)
        self._retests.on_say = self.pool.on_say = self._standby_tests.on_say = self._sight.on_say = self._milestones.on_say = self.say
        self.on_verdict: Callable[[Verdict], None] = lambda verdict: None
        self.on_say: Callable[[str], None] = lambda message: None
        self.says_verdicts = True  # False: the receiver of `on_verdict` says them
        if stages.recovery is not None:
            stages.recovery.on_phase, stages.recovery.on_result = self.say, stages.measures.acted
        for hold in stages.holds:
            hold.on_say = self.say

    def accused(self) -> tuple[str, ...]:
        """Whom verdicts named last, for some minutes."""
        return self._excerpts.accused(self._clock.now_s())

    def step(self, now_s: float) -> None:
        """One tick at `now_s` (unix seconds): collect and align, look at the job, conclude; then act, and write the status."""
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
        self.guard("scoring", self._sight.note_scoring, None)
        self.guard("scoring", self._sight.note_unjudged, None)
        self.guard("alarm", self._sight.note_alarm, None)
        if observation is not None:
            self.guard("steps", lambda: self._sight.note_steps(observation, samples), None)
            self.guard("attachment", lambda: self._sight.note_attachment(observation, samples), None)
        if stages.watched is not None:
            verdicts = [*(self._tick.end_standing(now_s) if state.generation > generation > 0 else ()), *verdicts]
            self._tick.note_standing(verdicts)
        verdicts = [*verdicts, *self.guard("hang", lambda: self._end_hang(now_s), _NO_VERDICTS[0])]
        verdicts = [*verdicts, *self.guard("updates", lambda: self._update(now_s), _NO_VERDICTS[0])]
        verdicts = [*verdicts, *self.guard("skips", lambda: self._skip(now_s), _NO_VERDICTS[0])]
        verdicts = [*verdicts, *self.guard("growth", lambda: self._grow(now_s), _NO_VERDICTS[0])]
        self._deciding.note(verdicts)  # nothing below this line may lose what was concluded
        stages.measures.concluded(verdicts)
        if observation is not None:
            self.guard("requests", lambda: self._request(requests, observation, verdicts), None)
            self.guard("work", functools.partial(self._note_work, now_s, observation), None)
            self.guard("step traces", lambda: self._ask_traces(observation), None)
        self._tell(verdicts)
        if stages.engine is not None:  # a job that it started again may step by the time it is seen: whose step that is comes first
            self.guard("engine", functools.partial(stages.engine.tick, now_s), None, writes=True)
        if observation is not None:
            self.guard("blame", self._blame.begin, None, writes=True)
            self.guard("first_step", self._milestones.note_first_step, None, writes=True)
        note = started_without_steps(state, stages.tracker, now_s)
        if note:
            self.guard("first_step", functools.partial(self._milestones.end_start, note), None, writes=True)
        in_job = () if observation is None or observation.job is None else observation.job.machines
        self._go_on_with()
        self.guard("deciding", functools.partial(self._deciding.turn, now_s), None, writes=True)
        self.guard("retests", self._retests.tick, None, writes=True)
        self.guard("blame", lambda: self._blame.tick(stages.tracker, now_s), None, writes=True)
        if stages.watched is None:
            self.guard("pool", self.pool.tick, None, writes=True)
            self.guard("standbys", lambda: self._standby_tests.tick(self.pool.waiting()), None, writes=True)
        if stages.pool_size is not None:
            self.guard("pool_size", functools.partial(stages.pool_size.tick, *self._pool(self.standbys())), None, writes=True)
        self._keep_excerpts(now_s, in_job)  # pictures for people: after everything that must not wait
        self.guard("end", self._note_end, None, writes=True)
        over = state.phase in ("finished", "failed")
        self.guard("signals", lambda: self._signal_count.note(now_s, over), None, writes=True)
        self.write_status(now_s)

    def _go_on_with(self) -> None:
        """What was begun at an earlier tick, and what waits for the job's next start."""
        stages = self._stages
        parts = [(hold.part, hold.tick) for hold in stages.holds]
        more = (("beside", stages.beside), ("updates", stages.updates), ("skips", stages.skipping))
        parts += [(name, part.tick) for name, part in more if part is not None]
        for name, tick in parts:
            self.guard(name, tick, None, writes=True)

    def _look(self, now_s: float, window: Window | None, moved_s: float) -> Observation | None:
        """What this tick shows; None where that cannot be said. Then nothing is concluded, and the signals wait for the next tick."""
        self.guard("signals", lambda: self._hearing.take(now_s, moved_s), None)
        self._signal_count.lost(self._hearing.take_lost())
        heard = self.guard("fleet", lambda: self._hearing.hear(now_s), None)
        if heard is None:
            return None
        signals, views = heard
        self.guard("finished", lambda: note_finished(self.state, signals), None)
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
        judging = {rule.name for rule in judge.rules if not isinstance(rule, ShadowRule)}
        if judging & {failure.rule for failure in judge.failures} or "judge" in self._tick.failing:
            self._signal_count.lost({"rule": len(seen.signals)})
        else:
            self._signal_count.judged(len(seen.signals))
        return [self.guard("blame", functools.partial(identify, verdict, self.state, tracker), verdict) for verdict in verdicts], requests

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
            self._stages.measures.move(moved_s, self._clock.monotonic_s())
            self._work_rate.move(moved_s)
            if self._stages.hung is not None:
                self._stages.hung.move(moved_s)
            if self._stages.growth is not None:
                self._stages.growth.move(moved_s)
            self._stages.move_clock(moved_s)
            self.say(detail)
        return moved_s

    def run(self, wake: threading.Event, stopping: threading.Event, interval_s: float) -> None:
        """Tick every `interval_s`, or as soon as a signal comes, until the job ended or `stopping` is set. A tick that takes longer is
        followed by the next after a short pause: telemetry that came meanwhile is read then, no tick is made up for."""
        self._tick.planned_s = interval_s
        while not stopping.is_set() and self.state.phase not in ("finished", "failed"):
            begun_s = self._clock.monotonic_s()
            self._step_or_wait()
            self._tick.took_s = self._clock.monotonic_s() - begun_s
            woken = wake.wait(max(interval_s - self._tick.took_s, _LEAST_PAUSE * interval_s))
            wake.clear()
            if woken:
                stopping.wait(0.25)  # let the echoes of a failure arrive: they belong to the same tick

    def _step_or_wait(self) -> None:
        """Without the ledger nothing may be acted on: that is reported, and what was concluded waits for it."""
        try:
            self._ledger.check_fence()
            self.guard("tick", lambda: self.step(self._clock.now_s()), None, writes=True)
            if "tick" in self._tick.failing:  # it did not come to its end, where the status is written
                self.write_status(self._clock.now_s())
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
            stack.callback(self._standby_tests.close)
            if self._stages.updates is not None:
                stack.callback(self._stages.updates.close)
            if self._stages.traces is not None:
                stack.callback(self._stages.traces.close)
            self._captures.close()

    def say(self, message: str) -> None:
        self._tick.message = message
        self.on_say(message)
        self.write_status(self._clock.now_s())

    def standbys(self) -> list[str]:
        """As the pool says."""
        return self.pool.standbys()

    def sizes(self, now_s: float) -> Sizes | None:
        """How small the job may become, and why it may not now; None where it keeps its size."""
        return self._stages.context(self.state, (), now_s).sizes

    def write_status(self, now_s: float) -> None:
        """A part like the others: where it fails, the terminal shows the last status, and the loop goes on."""
        self.guard("status", lambda: self._write_status(now_s), None)

    def _write_status(self, now_s: float) -> None:
        standbys, pool_size, views = self.standbys(), self._stages.pool_size, self._stages.fleet.views()
        extra = {
            "message": self._tick.message,
            "step": self._stages.tracker.steps.step,
            "typical_step_s": self._stages.tracker.steps.typical_s,
            "mode": None if (mode := self._stages.tracker.mode) is None else mode.to_json(),
            "loss": _newest_loss(views),
            "work": self._work_rate.status(),
            "incident": self.state.incident,
            "standbys": standbys,
            "pool": None if pool_size is None else pool_size.status(*self._pool(standbys)),
            "missing": self.pool.missing() if self._stages.watched is None else {},
            "proven": self.pool.proven() if self._stages.watched is None else {},
            "dry_run": self._stages.policy.config.dry_run,
            "size": self._size(),
            "update": None if self._stages.updates is None else self._stages.updates.status(),
            "skips": None if self._stages.skipping is None else self._stages.skipping.status(),
            "scores": self._stages.scores(),
            "errors": dict(self._tick.errors),
            "failing": dict(self._tick.failing),
            "unscored": self._stages.unscored(),
            "not_judged": self._sight.unjudged(),
            "alarm": self._tick.alarm,
            "no_steps": self._sight.steps.trouble,
            "tick": {"planned_s": self._tick.planned_s, "took_s": round(self._tick.took_s, 3)},
            "stands_s": None if (standing := self._stages.standing()) is None else now_s - standing.since_s,
            "restart_in_s": None if self._stages.hung is None else self._stages.hung.left_s,
            "undecided": len(self._tick.backlog),
            "unwritten": self._ledger.beat_error or self._tick.backlog.unwritten,
        }
        self._stages.measures.show(now_s, extra)
        try:
            write_status(self._state_dir / "status.json", now_s, self.state, views, extra)
        except OSError as error:  # a full disk, say
            raise MinderError(f"status.json cannot be written: {error.strerror or error}") from error

    def _pool(self, standbys: Sequence[str]) -> tuple[int, int]:
        """How many of them are ready, and how many wait for their first test."""
        untested = len(self.pool.untested(standbys))
        return len(standbys) - untested, untested

    def _size(self) -> dict[str, Any] | None:
        """Of a job that may go on with fewer machines: how many it has, of how many, and that in words where it is short."""
        least, full = self._stages.sizes
        machines = len(set(self.state.rank_machine.values()))
        if not full or not machines:
            return None
        return {"machines": machines, "full": full, "least": least, "says": Size(machines, full).words if machines < full else ""}

    def _note_work(self, now_s: float, observation: Observation) -> None:
        workers = [worker for view in observation.fleet.values() for worker in view.workers]
        machines = len(set(self.state.rank_machine.values()))
        self._work_rate.note(now_s, workers, self.state.generation, self.state.update, machines)

    def guard(self, stage: str, work: Callable[[], T], nothing: T, writes: bool = False) -> T:
        """`work()`, or `nothing` where it raises (Guards.run)."""
        return self._guards.run(stage, work, nothing, writes)

    def _align(self, samples: Sequence[Sample], now_s: float) -> Window | None:
        """The grid rows that became complete; None where none did. What telemetry was refused, and why, goes into the ledger."""
        self._stages.windows.push([sample for sample in samples if sample.time_s < now_s + _AHEAD_S])
        window = self._stages.windows.pop(now_s)
        self._stages.measures.aligned(window, self._clock.monotonic_s())
        for note in self._stages.windows.notes():
            self._tick.backlog.tell(kinds.DEGRADED, {"what": "telemetry", "detail": note})
        return window

    def take_up_paused(self) -> None:
        """What an earlier controller left waiting for the end of a pause. Raises LedgerError."""
        self._deciding.take_up()

    def take_up_held(self) -> str:
        """The tests, or the replay, that an earlier controller had begun; one line, "" for none. Raises LedgerError."""
        return "; ".join(line for line in [hold.take_up() for hold in self._stages.holds] if line)

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
        standing = stages.standing()

        def context(at_s: float) -> PolicyContext:
            return stages.context(state, self.standbys(), at_s)

        found = [*stages.hung.orders(now_s), *stages.hung.look(standing, context, now_s, stages.tracker.steps.typical_s)]
        return [identify(verdict, state, stages.tracker) for verdict in found]

    def _update(self, now_s: float) -> list[Verdict]:
        """What an update that must not wait any longer asks for."""
        return [] if self._stages.updates is None else self._stages.updates.orders(now_s)

    def _skip(self, now_s: float) -> list[Verdict]:
        """What an order to leave a batch out asks for."""
        return [] if self._stages.skipping is None else self._stages.skipping.orders(now_s)

    def _grow(self, now_s: float) -> list[Verdict]:
        """What a job that is short asks for, once a standby is ready to join it."""
        stages = self._stages
        return [] if stages.growth is None else stages.growth.look(lambda: stages.context(self.state, self.standbys(), now_s))

    def _keep_excerpts(self, now_s: float, in_job: Sequence[str]) -> None:
        """The telemetry around a fault goes into its incident. Raises LedgerError; what was not written comes with the next tick."""
        tick, nothing = self._tick, list[tuple[str, dict[str, Any]]]()
        while tick.opened:
            self._excerpts.want(*tick.opened.pop(0), in_job)
        tick.excerpts += self.guard("excerpts", lambda: self._excerpts.due(now_s), nothing)
        while tick.excerpts:
            self._ledger.append(kinds.EVIDENCE, tick.excerpts[0][1], job=self.state.name, incident=tick.excerpts[0][0])
            tick.excerpts.pop(0)

    def _record(self, samples: Sequence[Sample], observation: Observation) -> None:
        """What a replay needs of this tick, where the job is recorded."""
        recorder = self._stages.recorder
        if recorder is None:
            return
        recorder.append_samples(samples)
        recorder.append_signals(observation.signals)
        if self._tick.recorded != self.state.generation:
            recorder.note_ranks(self.state.generation, self.state.rank_machine)
            self._tick.recorded = self.state.generation
        recorder.append_sighting(observation)

    def _observe(self, now_s: float, window: Window | None, signals: Sequence[Signal], views: Mapping[str, MachineView]) -> Observation:
        """All that the rules may look at in this tick: what came by itself, and the answers to what they asked for."""
        generation, unheard = self.state.generation, Connections()
        seen = self.guard("capture", lambda: self._captures.take_flows(generation), unheard)
        nothing: Sequence[CaptureFinding] = ()
        statements = self.guard("capture", lambda: self._captures.take_statements(generation), nothing)
        none, traces = list[StepStudy](), self._stages.traces
        studies = none if traces is None else self.guard("step traces", lambda: list(traces.take(generation)), none)
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
            studies=studies,
        )

    def _ask_traces(self, observation: Observation) -> None:
        tracker, traces = self._stages.tracker, self._stages.traces
        self._study_notes.note(observation.studies, self.state.name, self.state.generation)
        if traces is not None:
            traces.ask(observation.job, tracker.steps.typical_s, tracker.slow_spell.since_s)

    def _request(self, requests: frozenset[RequestKind], observation: Observation, verdicts: Sequence[Verdict]) -> None:
        """Ask the job's agents for what a rule wants to see; the answer is in a later observation. Stacks and dumps only as long as
        no machine has been named for this standstill, and rounds of a slow job only where none has just been accused: they hold processes
        up for a moment."""
        named = [verdict for verdict in verdicts if verdict.machines and verdict.kind != "recovered"]
        if named:
            self._tick.named_s = observation.now_s
        if any(verdict.tier == "evict" for verdict in named):
            self._tick.accused_s = observation.now_s
        tracker = self._stages.tracker
        moved_s, self._captures.gpus = tracker.moved_s, tracker.activity.has_gpus
        wanted = requests - {"stacks", "dumps"} if self._tick.named_s >= moved_s else requests
        if observation.now_s - self._tick.accused_s < _ACCUSED_S:
            wanted -= {"round"}
        self._captures.request(wanted, observation, moved_s)

    def blame_missing(self, result: StartResult) -> None:
        """Machines that do not start their workers are the next suspects, all at once: a standby can be bad too."""
        self._deciding.blame_missing(result)

    def _note_end(self) -> None:
        """The job is over when every rank's script has returned; or when workers are dead and may not be restarted any more."""
        words, now_s = self._tick.last_words, self._clock.now_s()
        if words is not None and now_s < words[2] and self._stages.context(self.state, (), now_s).workers_dead:
            self._deciding.give_up(words[0], words[1])
        self._milestones.note_end()


def _newest_loss(views: Mapping[str, MachineView]) -> float | None:
    known = [(worker.step or 0, worker.loss) for view in views.values() for worker in view.workers if worker.loss is not None]
    return max(known)[1] if known else None
