"""What speaks for or against a machine: signals, scores, suspects, what captures say, verdicts. Plain and frozen, standard library only.

Shape legend: M machines. Times are unix seconds (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "NOT_JUDGED",
    "NO_CAUSE",
    "SPOILT",
    "STEADY",
    "STRAGGLES",
    "TIER_ORDER",
    "CaptureFinding",
    "Cause",
    "Evidence",
    "Failure",
    "Scores",
    "Signal",
    "SignalKind",
    "StepStudy",
    "StudiedWorker",
    "Suspect",
    "Tier",
    "Verdict",
    "VerdictKind",
    "what_steps_were",
]


STRAGGLES = 1.1  # times the ideal step: the straggler study's line, below it a job does not straggle
STEADY, NOT_JUDGED, NO_CAUSE = "not slow", "not judged", "no single cause"
SPOILT = "spoilt"  # the source of evidence that the job trains on with weights which all ranks' own numbers have spoilt
Cause = Literal["stall", "slowdown", "absence", "explicit", "numeric", "unknown"]
Tier = Literal["watch", "page", "evict"]
VerdictKind = Literal["machine", "group", "job", "recovered"]
SignalKind = Literal[
    "kernel", "xid", "link", "exit", "log", "step", "phase", "membership", "exception", "nonfinite", "spike", "waiting", "report", "order",
    "scrape", "ras"]  # fmt: skip


class _TierOrder(dict[str, int]):
    """A tier that a newer version wrote is worth a person's look, and never an eviction."""

    def __missing__(self, tier: str) -> int:
        return self["page"]


TIER_ORDER: dict[str, int] = _TierOrder(watch=0, page=1, evict=2)


@dataclass(frozen=True, slots=True)
class Signal:
    """An explicit event (events.jsonl of docs/recordings.md, plus `exception`, `nonfinite`, `spike`, `waiting` from our own workers).

    data by kind: exit {code, signal}, exception {type, fingerprint, victim, errno?, disk?}, xid {code}, link, scrape {state},
    phase {phase, state},
    step {step, loss, grad_norm, seconds}, report {name, severity, state} (another system's), membership {joined, left}, order (message),
    nonfinite {step, what}, spike {step, what, value, usual}, ras {answered, problems, silent, behind, ahead}.
    """

    time_s: float
    kind: SignalKind
    machine: str | None = None
    message: str = ""
    rank: int | None = None
    device: str | None = None
    pid: int | None = None
    generation: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation for or against a verdict. `observed`/`expected` in the metric's base unit."""

    source: str
    machine: str | None = None
    message: str = ""
    metric: str | None = None
    device: str | None = None
    observed: float | None = None
    expected: float | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """What is compared when the same trouble comes back (minder.act.policy.blame).

    sort: "crash", "hang" or "slow"; "nonfinite" or "spike" of one rank's own numbers, "batch" of the numbers of all ranks at one step.
    kind: "machine" (evidence that belongs to machines), "program" or "unknown".
    fingerprint: "" where a failure has no structure to be known by: a bare exit code or signal, a rank that stands in a collective.
    step: the newest one before it; stepped: whether its generation had made a step. code_version: "" if unknown. Times are unix seconds.
    batch: the global batch that its step consumed, None where the job's loader does not number them (minder.model.batch_ranges).
    update: the version of the job's code that its generation ran, 0 as its launchers were started. It is known of hangs too.
    beside: versions that other machines of that generation reported, the most common first: arguments or files of a machine's own make
    another version of the same code.
    """

    time_s: float
    machine: str
    ranks: tuple[int, ...]
    sort: str
    kind: str = "unknown"
    fingerprint: str = ""
    step: int | None = None
    generation: int = 0
    stepped: bool = False
    code_version: str = ""
    text: str = ""
    batch: int | None = None
    update: int = 0
    beside: tuple[str, ...] = ()

    def is_same_code(self, other: Failure) -> bool:
        """As far as both are known. Versions that ran beside one another are one code, and so are those that ran beside the same one."""
        own, its = ({item.code_version, *item.beside} - {""} for item in (self, other))
        known = self.code_version and other.code_version
        return self.update == other.update and (not known or not own.isdisjoint(its))

    def is_like(self, other: Failure) -> bool:
        """Of the same sort, without two fingerprints that differ."""
        return self.sort == other.sort and (not self.fingerprint or not other.fingerprint or self.fingerprint == other.fingerprint)


@dataclass(frozen=True, slots=True)
class Scores:
    """What a detector says of each machine at one grid row; higher is more anomalous.

    score_M and threshold are in the detector's own unit. evidence and since_s are only of machines above half the threshold.
    group: machines that fail together, as a rack, a stage or a pair. not_judged: machine to one line, for those of which the detector does
    not believe what is exported. clocks_off: machines that are compared with their peers at another time. slowed: whether the training of
    all is slower than usual, or stands, or was lately; None: the detector does not say.
    """

    time_s: float
    machines: tuple[str, ...]
    score_M: np.ndarray
    threshold: float
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    since_s: Mapping[str, float] = field(default_factory=dict)
    cause: Mapping[str, Cause] = field(default_factory=dict)
    quiet: bool = False  # a phase that all machines share: no machine's fault
    in_time_s: tuple[float, float] = (float("-inf"), float("inf"))  # silence before it, or oddness after it, did not stop the training
    group: tuple[str, ...] = ()
    not_judged: Mapping[str, str] = field(default_factory=dict)
    clocks_off: tuple[str, ...] = ()
    slowed: bool | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """Who may be to blame, from one source of evidence; `source` is the rule's name.

    alone: the highest tier while no other source names the same; None: `tier`.
    """

    time_s: float
    source: str
    kind: Literal["machine", "group", "job"]
    machines: tuple[str, ...]
    cause: Cause
    confidence: float
    since_s: float
    tier: Tier = "watch"
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    alone: Tier | None = None
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class CaptureFinding:
    """What a capture of the job's processes says, for itself: `source` is "stacks" or "collectives". No suspects: no machine is named.
    "round": one capture of stacks among several of a slow job (verdicts/fail_slow.py); "look": the first of two, as soon as it is there.
    stands: stacks were the same twice; None: unknown."""

    time_s: float
    source: Literal["stacks", "collectives", "round", "look"]
    suspects: tuple[Suspect, ...] = ()
    stands: bool | None = None


@dataclass(frozen=True, slots=True)
class StudiedWorker:
    """One worker (dp_rank, stage) in a study of traced steps. Seconds are a step's, all microbatches together, without waiting.

    slowdown: S with all but this one ideal; against_peers: its computes as a ratio to the median of its stage's others, None without any;
    steady: the share of steps in which it was slower than they.
    """

    dp_rank: int
    stage: int
    rank: int
    machine: str
    forward_s: float
    backward_s: float
    slowdown: float
    against_peers: float | None = None
    steady: float | None = None


@dataclass(frozen=True, slots=True)
class StepStudy:
    """What the what-if analysis says of a window of a job's traced steps (docs/step-traces.md). Times are unix seconds.

    cause: its answer; "not judged": `why` says why, and every figure is unknown. slowdown: S; worst_workers_share: M_W;
    last_stage_share: M_S; steps: how many, first_step to last_step; blamed: machines of slow workers, the slowest first.
    begin_s, end_s: when the first of the steps began and the last one ended. seconds, ideal_s, fixed_s: of a step, as replayed, with all
    made ideal, and with the cause repaired.
    """

    time_s: float
    cause: str
    why: str = ""
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    begin_s: float | None = None
    end_s: float | None = None
    slowdown: float | None = None
    waste: float | None = None
    worst_workers_share: float | None = None
    last_stage_share: float | None = None
    replay_error: float | None = None
    trusted: bool = False
    seconds: float | None = None
    ideal_s: float | None = None
    fixed_s: float | None = None
    blamed: tuple[str, ...] = ()
    workers: tuple[StudiedWorker, ...] = ()

    @property
    def judged(self) -> bool:
        return self.cause != NOT_JUDGED

    @property
    def said(self) -> str:
        return what_steps_were(self.cause, self.slowdown, self.trusted)


def what_steps_were(cause: str, slowdown: float | None, trusted: bool) -> str:
    """Of a study: its cause, or "not slow", "no single cause"; "not judged" also where it is not to be trusted.

    >>> [what_steps_were("none", slowdown, True) for slowdown in (1.02, 1.4)]
    ['not slow', 'no single cause']
    """
    if slowdown is None or not trusted or cause == NOT_JUDGED:
        return NOT_JUDGED
    if cause != "none":
        return cause
    return NO_CAUSE if slowdown >= STRAGGLES else STEADY


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fused conclusion: one per episode; `recovered` closes it."""

    time_s: float
    kind: VerdictKind
    tier: Tier
    machines: tuple[str, ...]
    cause: Cause
    confidence: float
    since_s: float
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    sources: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()  # what failed, for the memory of blame
