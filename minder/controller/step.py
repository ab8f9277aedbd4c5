"""The controller: one straight function per tick. Telemetry, signals, verdicts, decisions, actions; then the first new step.

A stage that fails is counted, written to the ledger and shown; it never ends the loop, and what it would have said is "no data".
"""

from __future__ import annotations

import functools
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from minder.clock import Clock
from minder.controller.recover import Recovery
from minder.controller.state import JobState
from minder.controller.status import write_status
from minder.controller.watched import WatchedJob
from minder.errors import LedgerError, MinderError, WireError
from minder.incidents import Ledger, kinds
from minder.policy.context import PolicyContext
from minder.policy.policy import RETRY_REASONS
from minder.recovery.restart import StartResult, is_waiting
from minder.types import Decision, Evidence, Flow, History, MachineView, Observation, RequestKind, Sample, Scores, Signal, Verdict, Window
from minder.verdicts.progress import Progress
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Controller", "Stages"]

T = TypeVar("T")
_ASK_AGAIN_S = 900.0
_LAST_WORDS_S = 15.0
_LEARN_S = 600.0  # so long may a job that we came upon take to show how long its steps are


class SampleSource(Protocol):
    def collect(self, now_s: float) -> Sequence[Sample]: ...

    def close(self) -> None: ...


class WindowMaker(Protocol):
    def push(self, samples: Sequence[Sample]) -> None: ...

    def pop(self, now_s: float) -> Window | None: ...

    def notes(self) -> Sequence[str]: ...


class VerdictJudge(Protocol):
    def judge(self, observation: Observation) -> tuple[list[Verdict], frozenset[RequestKind]]: ...


class DecisionMaker(Protocol):
    def decide(self, verdicts: Sequence[Verdict], history: History, context: PolicyContext) -> list[Decision]: ...

    def recheck(self, decision: Decision, history: History, context: PolicyContext) -> Decision: ...


class ActionSink(Protocol):
    """Where samples, signals and truth go besides the pipeline (a recording)."""

    def append_samples(self, samples: Sequence[Sample]) -> None: ...

    def append_signals(self, signals: Sequence[Signal]) -> None: ...

    def note_ranks(self, generation: int, rank_machine: Mapping[int, str]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Stages:
    """Everything that a tick runs, wired by `minder.app`."""

    fleet: Fleet
    source: SampleSource
    windows: WindowMaker
    judge: VerdictJudge
    policy: DecisionMaker
    recovery: Recovery | None
    progress: Progress
    context: Callable[[JobState, Sequence[str], float], PolicyContext]
    recorder: ActionSink | None = None
    scores: Callable[[], Scores | None] = lambda: None
    watched: WatchedJob | None = None  # a job that somebody else starts and restarts


@dataclass(slots=True)
class _Tick:
    """What the loop carries from tick to tick."""

    errors: Counter[str] = field(default_factory=Counter)
    flows: Future[list[Flow]] | None = None
    message: str = ""
    recorded: int = 0  # generation whose ranks the recording knows
    finished: set[tuple[int, int | None]] = field(default_factory=set)  # (generation, rank) whose script returned
    pending: list[tuple[Verdict, str]] = field(default_factory=list)  # the policy said "not now"
    last_words: tuple[str, str, float] | None = None  # no restart is left: why, the incident, and until when that ends the job
    unrecorded: list[Verdict] = field(default_factory=list)  # until the ledger has them


class Controller:
    """Watches one job. `run` loops `step` until the job ends; signals wake it before the next tick."""

    def __init__(self, state: JobState, stages: Stages, ledger: Ledger, clock: Clock, state_dir: Path) -> None:
        self.state = state
        self._stages = stages
        self._ledger = ledger
        self._clock = clock
        self._state_dir = state_dir
        self._tick = _Tick()
        self._captures = ThreadPoolExecutor(1, thread_name_prefix="minder-capture")
        self.on_verdict: Callable[[Verdict], None] = lambda verdict: None
        self.on_say: Callable[[str], None] = lambda message: None
        if stages.recovery is not None:
            stages.recovery.on_phase = self.say

    def step(self, now_s: float) -> None:
        """One tick at `now_s` (unix seconds)."""
        stages, state = self._stages, self.state
        silence: list[Sample] = []
        samples = self._guard("telemetry", lambda: list(stages.source.collect(now_s)), silence)
        window = self._guard("windows", lambda: self._align(samples, now_s), None)
        signals, views = self._hear(now_s)
        self._record(samples, signals)
        observation = self._observe(now_s, window, signals, views)
        stages.progress.update(observation)
        self._note_first_step(observation)
        nothing: tuple[list[Verdict], frozenset[RequestKind]] = ([], frozenset())
        verdicts, requests = self._guard("judge", lambda: stages.judge.judge(observation), nothing)
        self._request(requests)
        for verdict in verdicts:
            self.say(_headline(verdict))
            self.on_verdict(verdict)
        self._tick.unrecorded += verdicts
        items = [(verdict, self._ledger.open_incident(verdict, job=state.name, time_s=now_s)) for verdict in self._tick.unrecorded]
        self._tick.unrecorded = []
        self._decide([item for item in items if item[0].kind != "recovered"], now_s)
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
            self.step(self._clock.now_s())
        except LedgerError as error:
            self._tick.errors["ledger"] += 1
            self.say(f"no action while the ledger cannot be used: {error}")

    def close(self) -> None:
        """Finish the recording; captures that still run are left to end by themselves."""
        self._captures.shutdown(wait=False, cancel_futures=True)
        self._stages.source.close()
        if self._stages.recorder is not None:
            self._stages.recorder.close()

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
        }
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
            self._ledger.append(kinds.DEGRADED, {"what": "telemetry", "detail": note}, job=self.state.name)
        return window

    def _hear(self, now_s: float) -> tuple[list[Signal], dict[str, MachineView]]:
        """Signals, and what each machine shows. Of a job that we only watch: its own ranks, under our count of its restarts."""
        signals, views, watched = self._stages.fleet.drain(), self._stages.fleet.views(), self._stages.watched
        if watched is None:
            return signals, views
        change = watched.follow(self.state, views, now_s)
        if change:
            self._ledger.append(kinds.NOTE, {"text": change}, job=self.state.name)
            self.say(change)
        return watched.translate_signals(self.state, signals), watched.translate_views(self.state, views)

    def _record(self, samples: Sequence[Sample], signals: Sequence[Signal]) -> None:
        if self._stages.recorder is not None:
            self._stages.recorder.append_samples(samples)
            self._stages.recorder.append_signals(signals)
            if self._tick.recorded != self.state.generation:
                self._stages.recorder.note_ranks(self.state.generation, self.state.rank_machine)
                self._tick.recorded = self.state.generation
        for signal in signals:
            if signal.kind == "exit" and signal.data.get("code") == 0 and signal.generation == self.state.generation:
                self._tick.finished.add((self.state.generation, signal.rank))

    def _observe(self, now_s: float, window: Window | None, signals: Sequence[Signal], views: Mapping[str, MachineView]) -> Observation:
        flows: Sequence[Flow] = ()
        pending = self._tick.flows
        if pending is not None and pending.done():
            flows, self._tick.flows = self._guard("capture", pending.result, []), None
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
        )

    def _request(self, requests: frozenset[RequestKind]) -> None:
        """Ask the job's agents for what a rule wants to see; the answer is in a later observation."""
        if "flows" in requests and self._tick.flows is None:
            machines = list(dict.fromkeys(self.state.rank_machine.values()))
            self._tick.flows = self._captures.submit(self._capture_flows, machines)

    def _capture_flows(self, machines: Sequence[str]) -> list[Flow]:
        answers = self._stages.fleet.capture(machines, ["flows"], 3.0, samples=4, interval_s=0.3)
        found = [answer for answer in answers.values() if not isinstance(answer, WireError)]
        return [from_json(Flow, item) for answer in found for item in answer.get("flows", ())]

    def _decide(self, fresh: Sequence[tuple[Verdict, str]], now_s: float) -> None:
        """All verdicts that stand go to the policy together: faults at the same time are one decision, and one restart."""
        items = [item for item in self._tick.pending if item[0].time_s > now_s - _ASK_AGAIN_S] + list(fresh)
        self._tick.pending = items
        if not items:
            return
        history = self._ledger.history(self.state.name, now_s)
        self.state.barred = set(history.barred)
        context = self._stages.context(self.state, self.standbys(), now_s)
        self._tick.pending = []
        none: list[Decision] = []
        decide = functools.partial(self._stages.policy.decide, [verdict for verdict, _ in items], history, context)
        for decision in self._guard("policy", decide, none):
            self._carry_out(decision, [item for item in items if _concerns(decision, item[0])] or items[:1])

    def _carry_out(self, decision: Decision, items: Sequence[tuple[Verdict, str]]) -> None:
        name, incident = self.state.name, items[0][1]
        if decision.action in ("evict", "restart") and self._stages.recovery is not None:
            now_s = self._clock.now_s()
            context = self._stages.context(self.state, self.standbys(), now_s)
            decision = self._stages.policy.recheck(decision, self._ledger.history(name, now_s), context)
        if decision.reason in RETRY_REASONS and decision.action == "none":
            self._tick.pending.extend(item for item in items if item not in self._tick.pending)
            return
        for each in dict.fromkeys(item[1] for item in items):
            self._ledger.append(kinds.DECISION, decision, job=name, incident=each, operation_id=decision.operation_id)
        self.say(f"decision: {decision.action} {', '.join(decision.machines)} ({decision.detail or decision.reason})")
        if self._stages.recovery is None:
            return
        if decision.reason == "max_restarts":  # its launcher may not have told yet that the workers are dead
            told = next((item.message for item in decision.verdict.evidence if item.message), decision.verdict.cause)
            self._tick.last_words = (f"{told}; {decision.detail}", incident, self._clock.now_s() + _LAST_WORDS_S)
        if decision.action not in ("evict", "restart"):
            return
        try:
            result = self._stages.recovery.carry_out(decision, incident)
        except LedgerError:
            self._tick.pending.extend(item for item in items if item not in self._tick.pending)
            raise
        except MinderError as error:
            self._give_up(str(error), incident)
            return
        self.blame_missing(result)

    def _give_up(self, why: str, incident: str) -> None:
        self._ledger.append(kinds.DEGRADED, {"what": "recovery", "detail": why}, job=self.state.name, incident=incident)
        self.say(f"the job is given up: {why}")
        self.state.phase, self.state.ended_because = "failed", why
        self._ledger.append(kinds.JOB_ENDED, {"outcome": "failed", "detail": why}, job=self.state.name)

    def blame_missing(self, result: StartResult) -> None:
        """Machines that do not start their workers are the next suspects, all at once: a standby can be bad too."""
        now_s, since_s, items = self._clock.now_s(), self.state.generation_start_s, []
        for machine, why in result.missing.items():
            evidence = (Evidence("launcher", machine, why, since_s=since_s),)
            verdict = Verdict(now_s, "machine", "evict", (machine,), "absence", 0.9, since_s, evidence, (), ("start",))
            items.append((verdict, self._ledger.open_incident(verdict, job=self.state.name, time_s=now_s)))
        if items:
            self.state.phase = "running"
            self._decide(items, now_s)

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


def _concerns(decision: Decision, verdict: Verdict) -> bool:
    """Whether a decision answers a verdict: its own, or one about a machine that it takes away too."""
    return decision.verdict == verdict or bool(set(decision.machines) & set(verdict.machines))


def _headline(verdict: Verdict) -> str:
    who = ", ".join(verdict.machines) or "the job"
    return f"verdict: {verdict.kind} {who}, {verdict.cause}, {verdict.tier}, confidence {verdict.confidence:.2f}"
