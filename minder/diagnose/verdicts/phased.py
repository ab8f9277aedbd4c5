"""What telemetry says while the job is in a phase that it declared: nothing new. A checkpoint moves every machine's levels, and not all
at the same instant; none of that is a fault. A fault inside a phase is told when the phase ends, or when it lasts too long;
one that clearly began before the phase, at once.
"""

from __future__ import annotations

from collections import defaultdict

from minder.diagnose.verdicts.progress import QUIET_PHASES
from minder.model.evidence import Signal
from minder.model.observation import Observation, Rule, RuleResult

__all__ = ["PhasedRule"]

_SETTLE_S = 15.0  # after a phase the levels come back one by one
_UNKNOWN_S, _LEAST_S, _MOST_S = 120.0, 60.0, 240.0  # patience with a phase: unknown kind, and the bounds of three times its longest
_STANDS_S = 120.0
_BEFORE_S = 20.0  # a deviation that is older than the phase by this much does not come from it


class PhasedRule:
    """A telemetry rule that hears `phase` signals (types.Rule): of a recording, where no launcher tells what the workers do.

    A phase that machines tell one by one is open while half of those that began it are in it: who is left alone in it hangs.
    """

    def __init__(self, rule: Rule) -> None:
        self.name = rule.name
        self._rule = rule
        self._open: dict[str, dict[str, float]] = defaultdict(dict)  # phase to machine ("": the job) to when it began
        self._members: dict[str, set[str]] = defaultdict(set)  # phase to all who are or were in it this time
        self._longest_s: dict[str, float] = {}
        self._began_s = self._ended_s = float("-inf")  # of the newest phase
        self._standing: dict[tuple[str, ...], float] = {}  # machines to when they were last suspected aloud

    def observe(self, observation: Observation) -> RuleResult:
        for signal in observation.signals:
            if signal.kind == "phase" and signal.data.get("phase") in QUIET_PHASES:
                self._note(str(signal.data["phase"]), signal)
        result, now_s = self._rule.observe(observation), observation.now_s
        quiet = self._is_quiet(now_s)
        self._standing = {machines: seen_s for machines, seen_s in self._standing.items() if now_s - seen_s <= _STANDS_S}
        older_s = self._began_s - _BEFORE_S
        told = tuple(item for item in result.suspects if not quiet or item.machines in self._standing or item.since_s < older_s)
        self._standing.update({item.machines: now_s for item in told})
        return RuleResult(told, result.requests, result.blind)

    def _note(self, phase: str, signal: Signal) -> None:
        machine, inside = signal.machine or "", self._open[phase]
        if signal.data.get("state") == "begin":
            if not inside:
                self._members[phase] = set()
            if not any(self._open.values()):
                self._began_s = signal.time_s
            inside[machine] = signal.time_s
            self._members[phase].add(machine)
        elif machine in inside:
            lasted_s = signal.time_s - inside.pop(machine)
            self._longest_s[phase] = max(self._longest_s.get(phase, 0.0), lasted_s)
            self._ended_s = signal.time_s

    def _is_quiet(self, now_s: float) -> bool:
        lasting = any(self._lasts(phase, now_s) for phase in self._open)
        return lasting or (now_s - self._ended_s < _SETTLE_S and not any(self._open.values()))

    def _lasts(self, phase: str, now_s: float) -> bool:
        inside = self._open[phase]
        if not inside or 2 * len(inside) < len(self._members[phase]):
            return False
        longest_s = self._longest_s.get(phase)
        patience_s = _UNKNOWN_S if longest_s is None else min(_MOST_S, max(_LEAST_S, 3.0 * longest_s))
        return now_s - min(inside.values()) <= patience_s
