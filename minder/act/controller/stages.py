"""What a tick runs: the contracts of its stages, and the record that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from minder.act.controller.attachment import Attachment
from minder.act.controller.hung import HungJob
from minder.act.controller.inbox import Inbox
from minder.act.controller.joins import Admits
from minder.act.controller.measures import Measures
from minder.act.controller.state import JobState
from minder.act.controller.watched import WatchedJob
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.recovery.restart import StartResult
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.hang import Standing
from minder.diagnose.verdicts.judge import RuleFailure
from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Scores, Signal, Verdict
from minder.model.history import History
from minder.model.observation import Observation, RequestKind, Rule
from minder.model.telemetry import Sample, Window
from minder.model.topology import Parallelism
from minder.wire.fleet import Fleet

__all__ = ["ActionSink", "Carrier", "DecisionMaker", "EnginePart", "SampleSource", "Stages", "VerdictJudge", "WindowMaker"]


class SampleSource(Protocol):
    def collect(self, now_s: float) -> Sequence[Sample]: ...

    def close(self) -> None: ...


class WindowMaker(Protocol):
    def push(self, samples: Sequence[Sample]) -> None: ...

    def pop(self, now_s: float) -> Window | None: ...

    def notes(self) -> Sequence[str]: ...


class VerdictJudge(Protocol):
    @property
    def rules(self) -> Sequence[Rule]: ...

    @property
    def failures(self) -> Sequence[RuleFailure]: ...

    def keep_open(self, now_s: float) -> None: ...

    def judge(self, observation: Observation) -> tuple[list[Verdict], frozenset[RequestKind]]: ...


class DecisionMaker(Protocol):
    config: PolicyConfig

    def decide(self, verdicts: Sequence[Verdict], history: History, context: PolicyContext) -> list[Decision]: ...

    def recheck(self, decision: Decision, history: History, context: PolicyContext) -> Decision: ...


class Carrier(Protocol):
    """Carries decisions out: our own launchers do (`Recovery`), or the engine that owns the job (`EngineRecovery`)."""

    on_phase: Callable[[str], None]
    on_result: Callable[[ActionResult], None]

    def carry_out(self, decision: Decision, incident: str | None) -> StartResult: ...

    def stop(self, decision: Decision, incident: str) -> bool:
        """End a job that hangs and has no restart left. False: it is not ours to end."""
        ...


class EnginePart(Protocol):
    """What was asked of an engine and is not answered yet."""

    def tick(self, now_s: float) -> None: ...

    def close(self) -> None: ...


class ActionSink(Protocol):
    """Where a tick's input goes besides the pipeline (a recording)."""

    def append_samples(self, samples: Sequence[Sample]) -> None: ...

    def append_signals(self, signals: Sequence[Signal]) -> None: ...

    def append_sighting(self, observation: Observation) -> None: ...

    def note_ranks(self, generation: int, rank_machine: Mapping[int, str]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Stages:
    """Everything that a tick runs, wired by `minder.app.build`."""

    fleet: Fleet
    source: SampleSource
    windows: WindowMaker
    judge: VerdictJudge
    policy: DecisionMaker
    recovery: Carrier | None
    tracker: JobTracker
    context: Callable[[JobState, Sequence[str], float], PolicyContext]
    recorder: ActionSink | None = None
    scores: Callable[[], Scores | None] = lambda: None
    watched: WatchedJob | None = None  # a job that somebody else starts and restarts
    attachment: Attachment | None = None  # says what is seen of a watched job
    unread: Callable[[], Mapping[str, str]] = dict  # machine to why its own page could not be read, where the source knows
    admits: Admits | None = None  # what a machine is given that joins; None: none can join
    inbox: Inbox | None = None  # what the service took for the job
    engine: EnginePart | None = None  # the scheduler that owns the machines
    parallelism: Parallelism | None = None  # of the job, for the parallel groups that captures are weighed by
    measures: Measures = field(default_factory=Measures)
    alarm: Callable[[], str] = str  # what the job's own pace says to look closer for, one line; "" if nothing. It names nobody
    hung: HungJob | None = None  # restarts a job that stands; None where nobody of ours can
    standing: Callable[[], Standing | None] = lambda: None  # for how long the job has stood as a whole
    unscored: Callable[[], str] = str  # why telemetry that is there is not scored, one line; "" if it is
    move_clock: Callable[[float], None] = lambda by_s: None  # the wall clock was set forward by so many seconds
