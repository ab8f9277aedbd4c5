"""The first failure of a generation, and whose it is. What follows it within the job is an echo.

The rule, after ByteRobust (arXiv 2509.16293, automated fault tolerance, Fig. 5):

| the first failure, on corrected clocks | leads to |
|---|---|
| an exception of the machine's class (broken hardware by the driver's library, EIO of its own disk) | its machine, evict |
| an exception of the program's class (memory, asserts, kernels, shapes, mistakes in Python) | the job, restart in place |
| the same from four ranks of five, on two machines or more | the job, restart in place |
| the same, of numbers that are not finite | the job, restart in place: the sum over all ranks hides whose they are (sort "batch") |
| any other exception, an exit code, a signal | unknown: the job, restart in place; the policy remembers it (minder.act.policy.blame) |
| victims only | the job, restart in place; a machine that is silent meanwhile is the absence rule's |

Kernel lines, Xids and lost devices are other rules' evidence (minder.diagnose.verdicts.signals). An unknown failure waits two
seconds for them. Remote errors, connection resets, SIGTERM, watchdog time-outs and every exit after the first accuse no machine. Failures
within the clocks' error of each other are a tie.

In a recording (`FirstExit`, for the rule of signals) the first worker that died by a deadly signal is remembered until the generation ends.
Its peers do not die at once: they wait in a collective until a watchdog ends them, seconds or minutes later, or for ever. So it is named
when others fail after it, or when the job stands because of it. A signal does not say whose fault it was: that is a page, unless the
machine's own evidence stands beside it. Of deadly exits within the clocks' error of each other, on several machines, none was first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from minder.edge.signals.exceptions import SUM_NOT_FINITE, ExceptionKind, classify_exception
from minder.model.evidence import Evidence, Failure, Signal, Suspect, Tier
from minder.model.observation import Observation, RuleResult

__all__ = ["CrashRule", "FirstExit", "Named"]

_SETTLE_S = 0.6  # echoes and the exit that follows an exception arrive in this time
_ALONE_S = 2.5  # a victim's report without any culprit waits this long for one
_EVIDENCE_S = 2.0  # the kernel's own line about a dead process comes with the agent's next look
_KERNEL_S = 30.0
_MOST_VERSIONS = 8  # of the code, that a failure remembers
_FATAL_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}


@dataclass(frozen=True, slots=True)
class _Failure:
    """All that one worker reported when it failed. looks: alike on every rank where the program is at fault."""

    machine: str
    rank: int | None
    time_s: float
    kind: ExceptionKind
    text: str
    fingerprint: str = ""
    looks: str = ""
    step: int | None = None
    code_version: str = ""
    of_sum: bool = False  # it says that what may be a sum over all ranks is not finite


@dataclass(slots=True)
class _Case:
    generation: int
    opened_s: float
    failures: dict[tuple[str, int | None, int | None], _Failure] = field(default_factory=dict)
    closed: bool = False


class CrashRule:
    """Collects exits and exceptions of the running generation and judges the first (observation.Rule)."""

    name = "crash"

    def __init__(self) -> None:
        self._case: _Case | None = None
        self._kernel: list[Signal] = []

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if self._case is not None and self._case.generation != job.generation:
            self._case = None
        for signal in observation.signals:
            self._note(signal, job.generation, job.generation_start_s)
        self._kernel = [item for item in self._kernel if item.time_s > observation.now_s - _KERNEL_S]
        case = self._case
        if case is None or case.closed or job.phase not in ("running", "starting"):
            return RuleResult()
        return self._judge(case, observation)

    def _note(self, signal: Signal, generation: int, started_s: float) -> None:
        if signal.kind == "kernel":
            self._kernel.append(signal)
        if signal.kind not in ("exit", "exception") or signal.machine is None or signal.generation != generation:
            return
        failure = _read_failure(signal)
        if failure is None or signal.time_s < started_s:
            return
        if self._case is None:
            self._case = _Case(generation, signal.time_s)
        key = (signal.machine, signal.rank, signal.pid)
        known = self._case.failures.get(key)
        if known is None or (known.kind == "victim" and failure.kind != "victim" and failure.time_s <= known.time_s):
            self._case.failures[key] = failure
        self._case.opened_s = min(self._case.opened_s, signal.time_s)

    def _judge(self, case: _Case, observation: Observation) -> RuleResult:
        assert observation.job is not None
        age_s = observation.now_s - case.opened_s
        if age_s < _SETTLE_S:
            return RuleResult()
        culprits = sorted((item for item in case.failures.values() if item.kind != "victim"), key=lambda item: item.time_s)
        if not culprits:
            return self._only_victims(case, observation, age_s)
        ranks = len(observation.job.rank_machine) or 1
        same = _same_everywhere(culprits, ranks)
        broken = None if same else next((item for item in culprits if item.kind == "machine"), None)
        tied = [item for item in culprits if item.time_s - culprits[0].time_s <= 2 * observation.clock_error_s]
        if broken is None and not same and age_s < (_EVIDENCE_S if tied[0].kind == "unknown" else _SETTLE_S):
            return RuleResult((), frozenset({"stacks"}) if len({item.machine for item in tied}) > 1 else frozenset())
        case.closed = True
        if broken is not None:
            return RuleResult((self._suspect([broken], case, observation, 0.97),))
        return RuleResult((self._suspect(same or tied, case, observation, 0.95 if same else 0.6),))

    def _only_victims(self, case: _Case, observation: Observation, age_s: float) -> RuleResult:
        """All reports point at another rank: a machine that is silent is for the absence rule; else restart in place."""
        assert observation.job is not None
        missing = [m for m in observation.job.machines if not _answers(observation, m)]
        if age_s < _ALONE_S or missing:
            return RuleResult()
        case.closed = True
        evidence = tuple(Evidence("exit", item.machine, item.text, since_s=item.time_s) for item in list(case.failures.values())[:8])
        return RuleResult((Suspect(observation.now_s, self.name, "job", (), "unknown", 0.5, case.opened_s, "evict", evidence),))

    def _suspect(self, first: Sequence[_Failure], case: _Case, observation: Observation, confidence: float) -> Suspect:
        """Of the machine for the machine's class; else of the job, with the identity of what failed first."""
        broken = first[0].kind == "machine"
        kind: Literal["machine", "job"] = "machine" if broken else "job"
        machines = (first[0].machine,) if broken else ()
        versions = _versions(observation, case.generation)
        failures = tuple(_identity(item, case.generation, versions) for item in first if item.rank is not None)
        if failures and _is_shared(first):
            ranks = tuple(sorted(rank for item in failures for rank in item.ranks))
            failures = (replace(failures[0], ranks=ranks, sort="batch", kind="unknown"),)
        tier: Tier = "evict"  # of a job: restart it
        evidence = (*_evidence(first), *self._kernel_lines(first), *_echoes(first, list(case.failures.values())), *_stale(first, versions))
        return Suspect(
            observation.now_s, self.name, kind, machines, "explicit", confidence, first[0].time_s, tier, evidence, failures=failures
        )  # fmt: skip

    def _kernel_lines(self, first: Sequence[_Failure]) -> list[Evidence]:
        machines = {item.machine for item in first}
        lines = [item for item in self._kernel if item.machine in machines][:2]
        return [Evidence("kernel", item.machine, item.message, since_s=item.time_s) for item in lines]


def _evidence(first: Sequence[_Failure]) -> list[Evidence]:
    if len(first) > 1 and first[0].looks and all(item.looks == first[0].looks for item in first):
        verb = "raised" if first[0].fingerprint else "ended"
        said = [Evidence("exception", None, f"{len(first)} ranks {verb} the same: {first[0].text}", since_s=first[0].time_s)]
        return [*said, Evidence("job", None, _SHARED)] if _is_shared(first) else said
    together = " (first within the clocks' error)" if len(first) > 1 else ""
    return [
        Evidence("exit", item.machine, f"failed first{together}: {item.text}; {_WHOSE[item.kind]}", since_s=item.time_s) for item in first
    ]


_SHARED = (
    "numbers of all ranks at once, as a sum over them has it: the data, the program, or one machine that computes wrongly; "
    "install_gradient_guard(model) would say which rank"
)


def _is_shared(first: Sequence[_Failure]) -> bool:
    """Whether all ranks say of the same numbers that they are not finite: a sum into which one rank's own went, and does not show."""
    return len(first) > 1 and all(item.of_sum and item.kind == "program" for item in first)  # `_same_everywhere` has called it so


_WHOSE = {
    "machine": "an error of the machine",
    "program": "an error of the program",
    "unknown": "this alone accuses no machine",
    "victim": "an echo",
}


def _echoes(first: Sequence[_Failure], failures: Sequence[_Failure]) -> list[Evidence]:
    """What other machines reported, by time."""
    machines = {item.machine for item in first}
    others = sorted((item for item in failures if item.machine not in machines), key=lambda item: item.time_s)[:5]
    return [Evidence("exit", item.machine, f"an echo, {_later(item, first[0])}: {item.text}", since_s=item.time_s) for item in others]


def _later(item: _Failure, first: _Failure) -> str:
    later_ms = (item.time_s - first.time_s) * 1000
    return f"{later_ms:.0f} ms later" if later_ms >= 0 else f"{-later_ms:.0f} ms before the end was noticed"


def _stale(first: Sequence[_Failure], versions: Sequence[str]) -> list[Evidence]:
    """That a machine's code is not that of all the others, which agree: for a person, since it accuses no machine."""
    if len(versions) != 2:
        return []
    odd = (item for item in first if item.code_version == versions[1])
    return [Evidence("exit", item.machine, f"runs code {versions[1]}, the others {versions[0]}", since_s=item.time_s) for item in odd]


def _versions(observation: Observation, generation: int) -> list[str]:
    """Of the code of all machines of the generation, the most common first."""
    job = observation.job
    views = (observation.fleet.get(name) for name in (() if job is None else job.machines))
    workers = [worker for view in views if view is not None for worker in view.workers if worker.generation == generation]
    return [name for name, _ in Counter(sorted(item.code_version for item in workers if item.code_version)).most_common()]


def _identity(item: _Failure, generation: int, versions: Sequence[str]) -> Failure:
    ranks = () if item.rank is None else (item.rank,)
    beside = tuple(name for name in versions if name != item.code_version)[:_MOST_VERSIONS]
    return Failure(
        item.time_s, item.machine, ranks, "crash", item.kind, item.fingerprint, item.step, generation,
        code_version=item.code_version, text=item.text, beside=beside,
    )  # fmt: skip


def _answers(observation: Observation, machine: str) -> bool:
    view = observation.fleet.get(machine)
    return view is not None and view.launcher_age_s is not None and view.launcher_age_s < 2.5


def _read_failure(signal: Signal) -> _Failure | None:
    """None for an end that is no failure: exit code 0, an end that was asked for, one seen only from outside (VanishedRule)."""
    data, machine = signal.data, signal.machine or ""
    rank = f"rank {signal.rank}: " if signal.rank is not None else ""
    version = str(data.get("code_version") or "")
    if signal.kind == "exception":
        return _read_exception(signal, rank, version)
    number, code = _signal_of(signal), data.get("code")
    if data.get("vanished") or data.get("expected") or (not number and code == 0):
        return None
    if number:
        text = f"ended by {_FATAL_SIGNALS.get(number, f'signal {number}')}"
        kind: ExceptionKind = "unknown" if number in _FATAL_SIGNALS else "victim"
        return _Failure(machine, signal.rank, signal.time_s, kind, rank + text, code_version=version)
    kind, text = "victim" if data.get("victim") else "unknown", f"exit code {code}"
    return _Failure(machine, signal.rank, signal.time_s, kind, rank + text, looks=text, code_version=version)


def _read_exception(signal: Signal, rank: str, version: str) -> _Failure:
    data = signal.data
    type_name, number, disk = str(data.get("type", "exception")), data.get("errno"), data.get("disk")
    whose = classify_exception(
        type_name, signal.message, errno=number if isinstance(number, int) else None, disk=disk if disk in ("local", "network") else None
    )
    fingerprint, step = str(data.get("fingerprint") or ""), data.get("step")
    text = f"{rank}{type_name}: {signal.message}"[:300]
    return _Failure(
        signal.machine or "", signal.rank, signal.time_s, whose.kind, text, fingerprint, fingerprint or type_name,
        step if isinstance(step, int) and step >= 0 else None, version, (whose.library, whose.code) == SUM_NOT_FINITE,
    )  # fmt: skip


def _same_everywhere(culprits: Sequence[_Failure], ranks: int) -> list[_Failure]:
    """The same exception, or the same exit code, from at least four ranks of five, and from two machines or more; else none."""
    looks = {item.looks for item in culprits if item.looks}
    same = [replace(item, kind="program") for item in culprits if item.looks == culprits[0].looks]
    alike = len(looks) == 1 and len(same) >= max(2, 0.8 * ranks) and len({item.machine for item in same}) > 1
    return same if alike else []


_DEADLY = frozenset({4, 7, 8, 9, 11})  # SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV; SIGABRT is mostly a watchdog's echo
_BEFORE_S = 5.0  # an echo may be reported before the end that caused it is noticed
_FIRST_BY_S = 1.0  # clocks of recordings are no better
_DEADLY_SETTLE_S = 3.0
_HANGS_S = 30.0  # a job that stands for so long after a deadly exit stands because of it
_RESTART_S = 30.0
_DEATHS = 8  # of one machine that are remembered
_GOES_ON = 3  # steps made after an exit that did not stop the job


@dataclass(frozen=True, slots=True)
class Named:
    """The exit that was first, and how many machines failed after it (0: the others hang)."""

    signal: Signal
    failed: int


class FirstExit:
    """Feed `note` the signals and ask `named` at every observation."""

    def __init__(self) -> None:
        self._exits: list[Signal] = []
        self._echoes: list[Signal] = []  # errors that point at another rank, by their own words
        self._restart_s = float("-inf")
        self._steps = 0
        self._generation: int | None = None
        self.deadly: dict[str, deque[float]] = {}  # machine to when ranks of it ended by a deadly signal

    def note(self, signal: Signal) -> None:
        if signal.kind == "phase" and signal.data.get("phase") == "restart":
            self._restart_s = signal.time_s
            self._forget()
        elif signal.kind == "membership" or (signal.kind == "step" and self._goes_on(signal)):
            self._forget()
        elif signal.machine is not None and signal.kind == "exit" and not signal.data.get("expected"):
            self._exits.append(signal)
            if _is_deadly(signal):
                self._note_deadly(signal)
        elif signal.machine is not None and signal.kind == "exception" and signal.data.get("victim"):
            self._echoes.append(signal)

    def named(self, observation: Observation, stands_s: Callable[[float], float]) -> Named | None:
        """The exit that was first, once that is clear. stands_s: how long the job has stood since about a time, 0 if it does not."""
        generation = None if observation.job is None else observation.job.generation
        if generation != self._generation:
            self._generation = generation
            self._exits = [item for item in self._exits if observation.job and item.time_s >= observation.job.generation_start_s]
            self.deadly = {}
            for item in self._exits:
                if _is_deadly(item):
                    self._note_deadly(item)
        exits = sorted((item for item in self._exits if _failed(item)), key=lambda item: item.time_s)
        if not exits or observation.now_s - exits[0].time_s < _DEADLY_SETTLE_S or abs(exits[0].time_s - self._restart_s) < _RESTART_S:
            return None
        deadly = [item for item in exits if _is_deadly(item)]
        if not deadly or deadly[0].time_s - exits[0].time_s >= _FIRST_BY_S:
            return None
        first = deadly[0]
        echoes = [item for item in self._echoes if item.time_s > first.time_s - _BEFORE_S]
        rest = [item for item in (*exits, *echoes) if item.machine != first.machine]
        tied = any(item.machine != first.machine and item.time_s - first.time_s < _FIRST_BY_S for item in deadly)
        if tied or not (rest or stands_s(first.time_s) >= _HANGS_S):
            return None
        return Named(first, len({item.machine for item in rest}))

    def _note_deadly(self, signal: Signal) -> None:
        self.deadly.setdefault(signal.machine or "", deque(maxlen=_DEATHS)).append(signal.time_s)

    def _goes_on(self, signal: Signal) -> bool:
        """Whether the job has made steps after what had ended: then it was no part of it, or the job was started again."""
        self._steps = self._steps + 1 if self._exits and signal.time_s > self._exits[0].time_s + _DEADLY_SETTLE_S else 0
        return self._steps >= _GOES_ON

    def _forget(self) -> None:
        self._exits, self._echoes, self._steps, self.deadly = [], [], 0, {}


_OF_SHELLS = frozenset({4, 6, 7, 8, 9, 11, 15})  # what a shell or a container reports as 128 + N; scripts use other such codes themselves


def _signal_of(signal: Signal) -> int:
    """The signal that ended a process, 0 where none did. Python's launchers write -N for it, shells and containers 128 + N."""
    number, code = signal.data.get("signal"), signal.data.get("code")
    if number or not isinstance(code, int):
        return int(number or 0)
    return -code if code < 0 else code - 128 if code - 128 in _OF_SHELLS else 0


def _is_deadly(signal: Signal) -> bool:
    return _signal_of(signal) in _DEADLY


def _failed(signal: Signal) -> bool:
    return bool(signal.data.get("signal")) or bool(signal.data.get("code"))
