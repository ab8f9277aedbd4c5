"""The parts of a tick: the contracts of its stages, what they carry from tick to tick, and the boundary around each of them.

Whatever goes wrong in one part is counted, logged, written to the ledger, shown; the tick goes on. A traceback goes to the log and to the
ledger once per distinct failure. A part that fails again and again is never switched off: it shows in `Tick.failing` until it works
again, and its count in `Tick.errors` grows.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from minder.act.controller.backlog import Backlog
from minder.act.controller.diagnosis.beside import Beside
from minder.act.controller.diagnosis.diagnosing import Diagnosing
from minder.act.controller.diagnosis.pair_news import PairNews
from minder.act.controller.diagnosis.replaying import Replaying
from minder.act.controller.orders.hung import HungJob
from minder.act.controller.orders.skipping import Skipping
from minder.act.controller.orders.updating import Updating
from minder.act.controller.reading.attachment import Attachment
from minder.act.controller.reading.tracing import StepTraces
from minder.act.controller.reading.watched import WatchedJob
from minder.act.controller.reporting.measures import Measures
from minder.act.controller.standbys.growth import Growth
from minder.act.controller.standbys.pool import Admits
from minder.act.controller.standbys.pool_size import PoolSize
from minder.act.controller.standbys.standby_tests import StandbyProbing
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.recovery.restart import StartResult
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.hang import Standing
from minder.diagnose.verdicts.judge import RuleFailure
from minder.ingest.sources.source import Source
from minder.model.decision import ActionResult, Decision
from minder.model.errors import LedgerError, MinderError
from minder.model.evidence import Scores, Signal, Verdict
from minder.model.history import History
from minder.model.log import event
from minder.model.observation import Observation, RequestKind, Rule
from minder.model.telemetry import Sample, Window
from minder.model.topology import Parallelism
from minder.record.incidents import kinds
from minder.wire.fleet import Fleet

__all__ = [
    "ActionSink",
    "Carrier",
    "DecisionMaker",
    "EnginePart",
    "Guards",
    "SignalSource",
    "Stages",
    "Tick",
    "VerdictJudge",
    "WindowMaker",
    "rule_part",
]

T = TypeVar("T")
_log = logging.getLogger("minder.controller")
_AGAIN = (10, 100, 1000, 10_000)  # of a part's failures: reported once more, without the traceback
_MOST_DISTINCT = 20  # of one part
_TRACE_LINES = 20


class SignalSource(Protocol):
    def take(self, now_s: float) -> list[Signal]: ...

    def take_unreadable(self) -> int: ...


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
    source: Source
    windows: WindowMaker
    judge: VerdictJudge
    policy: DecisionMaker
    recovery: Carrier | None
    tracker: JobTracker
    context: Callable[[JobState, Sequence[str], float], PolicyContext]
    recorder: ActionSink | None = None
    scores: Callable[[], Scores | None] = lambda: None
    watched: WatchedJob | None = None  # a job that others start and restart
    attachment: Attachment | None = None  # says what is seen of a watched job
    unread: Callable[[], Mapping[str, str]] = dict  # machine to why its own page could not be read, where the source knows
    standby_probing: StandbyProbing = field(default_factory=StandbyProbing)  # how standbys are tested while they wait
    admits: Admits | None = None  # what a machine is given that joins; None: none can join
    inbox: SignalSource | None = None  # what the service took for the job
    engine: EnginePart | None = None  # the scheduler that owns the machines
    parallelism: Parallelism | None = None  # of the job, for the parallel groups that captures are weighed by
    traces: StepTraces | None = None  # of the job's steps; None where they cannot be asked for
    measures: Measures = field(default_factory=Measures)
    alarm: Callable[[], str] = str  # what the job's own pace says to look closer for, one line; "" if nothing. It names no machine
    diagnosing: Diagnosing | None = None  # tests a job's machines while it stands; None where minder cannot
    replaying: Replaying | None = None  # replays a job on groups of its machines while it stands
    beside: Beside | None = None  # quick probes beside a restart
    pair_news: PairNews | None = None  # pair tests that a person ordered
    hung: HungJob | None = None  # restarts a job that stands; None where minder cannot
    pool_size: PoolSize | None = None  # how many standbys the job should have; None of a job that is only watched
    sizes: tuple[int, int] = (0, 0)  # machines that the job has at least, and at full size; (0, 0): its size never changes
    updates: Updating | None = None  # of the job's code; None of a job that is only watched
    skipping: Skipping | None = None  # of batches; None of a job that is only watched
    growth: Growth | None = None  # lets a job that is short grow again; None where its size never changes
    standing: Callable[[], Standing | None] = lambda: None  # for how long the job has stood as a whole
    unscored: Callable[[], str] = str  # why telemetry that is there is not scored, one line; "" if it is
    move_clock: Callable[[float], None] = lambda by_s: None  # the wall clock was set forward by so many seconds

    @property
    def holds(self) -> list[Diagnosing | Replaying]:
        """What may hold the job while it stands."""
        return [part for part in (self.diagnosing, self.replaying) if part is not None]


@dataclass(slots=True)
class Tick:
    """The loop's memory; nothing of it outlives the process."""

    errors: Counter[str] = field(default_factory=Counter)
    failing: dict[str, str] = field(default_factory=dict)  # part to its error, of the parts whose newest run raised
    named_s: float = -math.inf  # when a verdict last named machines
    accused_s: float = -math.inf  # when one last did that may evict
    message: str = ""
    held: list[Signal] = field(default_factory=list)  # heard while nothing may be concluded; they wait for that
    recorded: int = 0  # generation whose ranks the recording knows
    last_words: tuple[str, str, float] | None = None  # no restart is left: why, the incident, and until when that ends the job
    backlog: Backlog = field(default_factory=Backlog)
    opened: list[tuple[Verdict, str]] = field(default_factory=list)  # (verdict, incident) of this tick
    excerpts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # (incident, evidence) that is not written yet
    alarm: str = ""  # as it was reported; "" if there is none
    unscored: list[str] = field(default_factory=list)  # why telemetry is not scored, as it was reported; empty if it is
    standing: dict[tuple[str, ...], Verdict] = field(default_factory=dict)  # of a watched job: what a restart of it ends
    planned_s: float = 1.0  # a tick begins so often, if it can
    took_s: float = 0.0  # the last one

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self.named_s += by_s
        self.accused_s += by_s
        if self.last_words is not None:
            why, incident, until_s = self.last_words
            self.last_words = (why, incident, until_s + by_s)

    def note_standing(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self.standing.pop(verdict.machines, None)
            if verdict.kind != "recovered":
                self.standing[verdict.machines] = verdict

    def end_standing(self, now_s: float) -> list[Verdict]:
        """A watched job was started again: what stood against its former generation is over, in the ledger too."""
        return [
            dataclasses.replace(verdict, time_s=now_s, kind="recovered", tier="watch", evidence=(), against=())
            for verdict in self.standing.values()
        ]


def rule_part(rule: str) -> str:
    """What a verdict rule is called among the parts: in errors, metrics and events."""
    return f"rule:{rule}"


class Guards:
    """Counts into `tick`, reports by its backlog. job: its name, for the log."""

    def __init__(self, job: str, tick: Tick, measures: Measures) -> None:
        self._job, self._tick, self._measures = job, tick, measures
        self._met: dict[str, set[tuple[str, ...]]] = {}
        self._now: set[str] = set()  # parts that failed at this tick: a part may run several times

    def begin(self) -> None:
        """Another tick."""
        self._now.clear()

    def run(self, part: str, work: Callable[[], T], nothing: T, writes: bool = False) -> T:
        """`work()`, or `nothing` where it raises. writes: it writes to the ledger, whose errors end the tick (LedgerError)."""
        try:
            begun_s = time.perf_counter()
            try:
                result = work()
            finally:
                self._measures.ran(part, time.perf_counter() - begun_s)
        except Exception as error:
            if writes and isinstance(error, LedgerError):
                raise
            self._failed(part, RuleFailure.of(part, error), expected=isinstance(error, MinderError))
            return nothing
        self._worked(part)
        return result

    def note_rules(self, rules: Collection[str], failures: Sequence[RuleFailure]) -> None:
        """What the judge's rules raised at this tick. rules: the names of those that were asked."""
        raised = {failure.rule for failure in failures}
        for failure in failures:
            self._failed(rule_part(failure.rule), failure)
        for rule in rules:
            if rule not in raised:
                self._worked(rule_part(rule))

    def _failed(self, part: str, failure: RuleFailure, expected: bool = False) -> None:
        tick, met = self._tick, self._met.setdefault(part, set())
        tick.errors[part] += 1
        tick.failing[part] = failure.error
        self._now.add(part)
        count, is_new = tick.errors[part], failure.key not in met and len(met) < _MOST_DISTINCT
        if not expected:
            tick.message = f"{part} failed: {failure.error}"
        if not is_new and count not in _AGAIN:
            return
        met.add(failure.key)
        trace = failure.trace if is_new and not expected else None
        event(_log, logging.ERROR, "part failed", job=self._job, part=part, count=count, detail=failure.error, traceback=trace)
        payload = {"source": part, "what": part, "error": failure.error, "detail": failure.error, "count": count}
        if part.startswith(rule_part("")):
            payload["rule"] = failure.rule
        if trace is not None:
            payload["traceback"] = "\n".join(trace.rstrip("\n").split("\n")[-_TRACE_LINES:])
        tick.backlog.tell(kinds.SOURCE_ERROR if part == "telemetry" else kinds.DEGRADED, payload)

    def _worked(self, part: str) -> None:
        if part not in self._now and self._tick.failing.pop(part, None) is not None:
            event(_log, logging.WARNING, "part works again", job=self._job, part=part, count=self._tick.errors[part])
