"""What a rule may look at in one tick, and what it answers. Plain and frozen; times are unix seconds (UTC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from minder.model.evidence import CaptureFinding, Signal, StepStudy, Suspect
from minder.model.job_mode import JobMode
from minder.model.telemetry import ConnectivityProbe, Flow, Window

__all__ = ["JobView", "MachineView", "Observation", "RequestKind", "Rule", "RuleResult", "WeighingRule", "WorkerView"]


RequestKind = Literal["flows", "reach", "stacks", "dumps", "round", "still"]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker slot of a machine, as its launcher reports it."""

    slot: int
    pid: int | None
    rank: int | None
    state: Literal["starting", "waiting", "running", "interrupted", "exited", "ended"]
    generation: int
    step: int | None = None
    step_time_s: float | None = None
    alive_time_s: float | None = None  # last tick of the worker's own background thread
    phase: str | None = None  # open phase: checkpoint, evaluation, compile
    loss: float | None = None
    first_step: int | None = None  # of this generation
    first_step_time_s: float | None = None
    job: str | None = None  # of a process that no launcher of ours started: the name that its environment gives
    device: str | None = None
    work: float | None = None  # of this generation so far, by the script's own count
    work_unit: str | None = None  # samples, tokens
    code_version: str | None = None

    @property
    def has_ended(self) -> bool:
        """Its process is gone, by itself or on order."""
        return self.state in ("exited", "ended")


@dataclass(frozen=True, slots=True)
class MachineView:
    """What the controller last heard of a machine. Ages are None if it was never heard of."""

    machine: str
    agent_age_s: float | None
    launcher_age_s: float | None
    workers: tuple[WorkerView, ...] = ()
    agent_restarted_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """The job as the controller knows it. `quiet_until_s`: start-up, compilation, checkpoint load, evaluation. `had_steps`: steps of this
    run have been read, so a generation without any does not step. is_short: it goes on with fewer machines than at full size.
    sized_in: the generation in which it last got another number of ranks, so that rank numbers of before mean other places; 0: none."""

    name: str
    generation: int
    phase: Literal["starting", "running", "recovering", "suspended", "diagnosing", "replaying", "finished", "failed"]
    machines: tuple[str, ...]
    standbys: tuple[str, ...]
    barred: tuple[str, ...]
    rank_machine: Mapping[int, str]
    quiet_until_s: float
    generation_start_s: float
    had_steps: bool = False
    is_short: bool = False
    sized_in: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a verdict rule may look at in one tick. Nothing here lies in the future of `now_s`. mode: what the job is doing, set by
    the job's tracker before any rule looks; None: not set, or the job is over. studies: what-if analyses that ended since the tick before.
    """

    now_s: float
    window: Window | None = None
    signals: Sequence[Signal] = ()
    job: JobView | None = None
    fleet: Mapping[str, MachineView] = field(default_factory=dict)
    flows: Sequence[Flow] = ()
    clock_error_s: float = 0.05
    statements: Sequence[CaptureFinding] = ()
    attempts: Sequence[ConnectivityProbe] = ()
    mode: JobMode | None = None
    studies: Sequence[StepStudy] = ()


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Suspects, and what the rule wants to see before it says more. no_data: it could not look, so its silence means nothing."""

    suspects: tuple[Suspect, ...] = ()
    requests: frozenset[RequestKind] = frozenset()
    no_data: bool = False


class Rule(Protocol):
    """A verdict rule: stateful, causal, no I/O."""

    name: str

    def observe(self, observation: Observation) -> RuleResult: ...


@runtime_checkable
class WeighingRule(Rule, Protocol):
    """A rule that also weighs what others say. It stands before them: it has seen the observation when they speak."""

    def weigh(self, suspect: Suspect, now_s: float) -> Suspect:
        """The suspicion as it is, with one more piece of evidence, or with a lower tier."""
        ...
