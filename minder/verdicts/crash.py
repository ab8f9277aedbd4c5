"""Who failed first. Of all failures of one generation, the earliest one on corrected clocks accuses its machine; what follows
within the job is an echo.

Remote errors, connection resets, SIGTERM, watchdog time-outs and every exit after the first never accuse their reporter.
Failures inside the clocks' error of each other are a tie; the same exception from (nearly) every rank is the job's own.
Source: byterobust.md sections 3.2 and 4; peers.md section c (most crashes take all ranks dark within seconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minder.types import Evidence, Observation, RuleResult, Signal, Suspect

__all__ = ["CrashRule"]

_SETTLE_S = 0.6  # echoes and the exit that follows an exception arrive in this time
_ALONE_S = 2.5  # a victim's report without any culprit waits this long for one
_HARDWARE = ("cuda error", "ecc", "xid", "uncorrectable", "illegal memory access", "device-side", "cublas", "cudnn", "nvlink", "bus error")
_FATAL_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}


@dataclass(slots=True)
class _Failure:
    """All that one worker said when it failed."""

    machine: str
    rank: int | None
    time_s: float
    victim: bool
    fingerprint: str
    text: str
    hardware: bool
    looks: str = ""  # alike on every rank where the job's own code is at fault


@dataclass(slots=True)
class _Case:
    generation: int
    opened_s: float
    failures: dict[tuple[str, int | None, int | None], _Failure] = field(default_factory=dict)
    kernel: list[Signal] = field(default_factory=list)
    closed: bool = False


class CrashRule:
    """Collects exits and exceptions of the running generation and names the first (types.Rule)."""

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
        self._kernel = [item for item in self._kernel if item.time_s > observation.now_s - 30]
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
        if known is None or (known.victim and not failure.victim and failure.time_s <= known.time_s):
            self._case.failures[key] = failure
        self._case.opened_s = min(self._case.opened_s, signal.time_s)

    def _judge(self, case: _Case, observation: Observation) -> RuleResult:
        assert observation.job is not None
        age_s = observation.now_s - case.opened_s
        if age_s < _SETTLE_S:
            return RuleResult()
        culprits = sorted((item for item in case.failures.values() if not item.victim), key=lambda item: item.time_s)
        victims = [item for item in case.failures.values() if item.victim]
        if not culprits:
            return self._only_victims(case, victims, observation, age_s)
        ranks = len(observation.job.rank_machine) or 1
        if _is_everybodys(culprits, ranks):
            case.closed = True
            return RuleResult((_job_suspect(culprits, observation.now_s),))
        tied = [item for item in culprits if item.time_s - culprits[0].time_s <= 2 * observation.clock_error_s]
        machines = tuple(dict.fromkeys(item.machine for item in tied))
        if len(machines) > 1 and age_s < _ALONE_S:
            return RuleResult((), frozenset({"stacks"}))
        case.closed = True
        if len(machines) > 1:
            return RuleResult((_tie(tied, machines, observation),))
        if culprits[0].fingerprint and not culprits[0].hardware:
            return RuleResult((_own_code(culprits[0], observation.now_s),))
        return RuleResult((self._first(culprits[0], culprits, victims, observation),))

    def _only_victims(self, case: _Case, victims: Sequence[_Failure], observation: Observation, age_s: float) -> RuleResult:
        """Everybody points at somebody else: the machine that says nothing at all is for the absence rule; else restart in place."""
        assert observation.job is not None
        missing = [m for m in observation.job.machines if not _answers(observation, m)]
        if age_s < _ALONE_S or missing:
            return RuleResult()
        case.closed = True
        evidence = tuple(Evidence("exit", item.machine, item.text, since_s=item.time_s) for item in victims[:8])
        return RuleResult((Suspect(observation.now_s, self.name, "job", (), "unknown", 0.5, case.opened_s, "evict", evidence),))

    def _first(self, first: _Failure, culprits: Sequence[_Failure], victims: Sequence[_Failure], observation: Observation) -> Suspect:
        kernel = [item for item in self._kernel if item.machine == first.machine and item.data.get("what") == "oom"]
        evidence = [Evidence("exit", first.machine, f"failed first: {first.text}", since_s=first.time_s)]
        evidence += [Evidence("kernel", first.machine, item.message, since_s=item.time_s) for item in kernel[:2]]
        echoes = [item for item in [*culprits, *victims] if item.machine != first.machine]
        for item in sorted(echoes, key=lambda item: item.time_s)[:5]:
            later_ms = (item.time_s - first.time_s) * 1000
            when = f"{later_ms:.0f} ms later" if later_ms >= 0 else f"{-later_ms:.0f} ms before the end was noticed"
            evidence.append(Evidence("exit", item.machine, f"an echo, {when}: {item.text}", since_s=item.time_s))
        confidence = 0.97 if victims or kernel else 0.9
        return Suspect(
            observation.now_s, self.name, "machine", (first.machine,), "explicit", confidence, first.time_s, "evict", tuple(evidence)
        )


def _answers(observation: Observation, machine: str) -> bool:
    view = observation.fleet.get(machine)
    return view is not None and view.launcher_age_s is not None and view.launcher_age_s < 2.5


def _read_failure(signal: Signal) -> _Failure | None:
    rank = f"rank {signal.rank}: " if signal.rank is not None else ""
    if signal.kind == "exception":
        kind, message = str(signal.data.get("type", "exception")), signal.message
        hardware = any(word in message.lower() for word in _HARDWARE)
        victim = bool(signal.data.get("victim"))
        fingerprint = str(signal.data.get("fingerprint") or kind)
        text = f"{rank}{kind}: {message}"[:300]
        return _Failure(signal.machine or "", signal.rank, signal.time_s, victim, fingerprint, text, hardware, fingerprint)
    if signal.data.get("vanished"):
        return None  # seen from outside: the rule for vanished processes weighs it
    number, code = signal.data.get("signal"), signal.data.get("code")
    if not number and code == 0:
        return None
    if signal.data.get("expected"):
        return None
    if number:
        text = f"{rank}ended by {_FATAL_SIGNALS.get(int(number), f'signal {number}')}"
        return _Failure(signal.machine or "", signal.rank, signal.time_s, int(number) not in _FATAL_SIGNALS, "", text, True)
    victim, text = bool(signal.data.get("victim")), f"exit code {code}"
    return _Failure(signal.machine or "", signal.rank, signal.time_s, victim, "", rank + text, False, text)


def _is_everybodys(culprits: Sequence[_Failure], ranks: int) -> bool:
    """The same exception, or the same exit code, from at least four ranks of five, and from two machines or more."""
    looks = {item.looks for item in culprits if item.looks}
    same = [item for item in culprits if item.looks == culprits[0].looks]
    return len(looks) == 1 and len(same) >= max(2, 0.8 * ranks) and len({item.machine for item in same}) > 1


def _job_suspect(culprits: Sequence[_Failure], now_s: float) -> Suspect:
    first = culprits[0]
    verb = "raised" if first.fingerprint else "ended"
    evidence = (Evidence("exception", None, f"{len(culprits)} ranks {verb} the same: {first.text}", since_s=first.time_s),)
    return Suspect(now_s, CrashRule.name, "job", (), "explicit", 0.95, first.time_s, "evict", evidence)


def _own_code(first: _Failure, now_s: float) -> Suspect:
    """One rank's exception in the user's code: the first answer is a restart in place (byterobust.md section 4, reattempt)."""
    evidence = (Evidence("exception", first.machine, f"only here, in the job's own code: {first.text}", since_s=first.time_s),)
    return Suspect(now_s, CrashRule.name, "job", (), "explicit", 0.6, first.time_s, "evict", evidence)


def _tie(tied: Sequence[_Failure], machines: tuple[str, ...], observation: Observation) -> Suspect:
    message = f"first within the clocks' error of {observation.clock_error_s * 1000:.0f} ms"
    evidence = tuple(Evidence("exit", item.machine, f"{item.text} ({message})", since_s=item.time_s) for item in tied)
    return Suspect(observation.now_s, CrashRule.name, "group", machines, "explicit", 0.5, tied[0].time_s, "page", evidence)
