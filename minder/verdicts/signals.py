"""Explicit signals that name a machine by themselves: Xid errors, links that stay down, who exited first, non-finite gradients.

Sources disagree about Xids (peers.md e1), so the rule keeps three answers apart: sure hardware (evict), hardware that may have healed
itself (watch: it only speaks together with telemetry), and the application's own errors (nothing). A link flap that heals is
nobody's fault, however often it happens; exits after the first, SIGTERM and watchdog aborts are echoes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from minder.signals.xid import XidRule, find_xid_rule
from minder.types import Evidence, Observation, RuleResult, Signal, Suspect, Tier

__all__ = ["SignalRule"]

_CONTAINED = frozenset({63, 92, 94, 121})  # contained or remapped, or the catalogues disagree: it only speaks together with telemetry
_XID_LINE = re.compile(r"NVRM: Xid \([^)]*\): (\d+)")
_DEADLY = frozenset({4, 7, 8, 9, 11})  # SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV; SIGABRT is mostly a watchdog's echo
_ECHO_S = 5.0
_FIRST_BY_S = 1.0  # clocks of recordings are no better
_SETTLE_S = 3.0
_ORDERED = 0.99
_DOWN_S = 45.0
_REPEAT_S = 60.0  # how long a finding is told again, so that other rules can agree with it


class SignalRule:
    """Reads xid, kernel, link, exit and nonfinite signals, and operators' orders (types.Rule). Works without a job view."""

    name = "signals"

    def __init__(self, xid_rules: Mapping[int, XidRule], *, workers: bool = True) -> None:
        """workers: also judge exits and gradients; a live job has rules of its own for those, which know its generations."""
        self._xid_rules = xid_rules
        self._workers = workers
        self._down: dict[tuple[str, str | None], Signal] = {}
        self._exits: list[Signal] = []
        self._echoes: list[Signal] = []  # errors that point at somebody else, by their own words
        self._nonfinite: dict[str, Signal] = {}
        self._restart_s = float("-inf")
        self._findings: list[Suspect] = []
        self._told_down: set[tuple[str, str | None]] = set()

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        for signal in observation.signals:
            present = job is None or (signal.time_s >= job.generation_start_s and (self._workers or signal.machine in job.machines))
            if present:  # what a restarted controller hears again of an earlier generation is over
                self._note(signal)
        now_s = observation.now_s
        machines = len(observation.job.machines) if observation.job is not None else 0
        self._findings += [*self._links(now_s), *self._first_exit(now_s), *self._gradients(now_s, machines)]
        here = None if job is None or self._workers else set(job.machines)  # of a live job: who has left it is not accused again
        self._findings = [
            item for item in self._findings if now_s - item.time_s <= _REPEAT_S and (here is None or not here.isdisjoint(item.machines))
        ]
        return RuleResult(tuple(self._findings))

    def _note(self, signal: Signal) -> None:
        if signal.kind == "phase" and signal.data.get("phase") == "restart":
            self._restart_s = signal.time_s
        if signal.machine is None:
            return
        code = _xid_code(signal)
        if code is not None:
            self._note_xid(signal, code)
        elif signal.kind == "order":
            self._findings.append(
                _suspect(signal, signal.time_s, "evict", _ORDERED, f"an operator orders its eviction: {signal.message}"[:240])
            )
        elif signal.kind == "link":
            key = (signal.machine, signal.device)
            if signal.data.get("state") == "down":
                self._down.setdefault(key, signal)
            else:
                self._down.pop(key, None)
                self._told_down.discard(key)
        elif not self._workers:
            return
        elif signal.kind == "exit" and not signal.data.get("expected"):
            self._exits.append(signal)
        elif signal.kind == "exception" and signal.data.get("victim"):
            self._echoes.append(signal)
        elif signal.kind == "nonfinite":
            self._nonfinite.setdefault(signal.machine, signal)

    def _note_xid(self, signal: Signal, code: int) -> None:
        rule = find_xid_rule(code, self._xid_rules)
        tier: Tier | None = "evict" if rule.evict else "watch" if rule.severity == "fatal" or code in _CONTAINED else None
        if tier is None or signal.machine is None:
            return
        confidence = 0.95 if tier == "evict" else 0.4
        message = f"Xid {code} ({rule.severity}, {rule.action}, by {rule.source}): {signal.message}"[:240]
        self._findings.append(_suspect(signal, signal.time_s, tier, confidence, message))

    def _links(self, now_s: float) -> list[Suspect]:
        """A link that stays down: its machine is cut off, if the others' links are up."""
        found = []
        lasting = {key: item for key, item in self._down.items() if now_s - item.time_s >= _DOWN_S}
        for key, signal in lasting.items():
            alone = len({machine for machine, _ in self._down}) == 1
            if key not in self._told_down and alone:
                self._told_down.add(key)
                message = f"link {signal.device or ''} down for {now_s - signal.time_s:.0f} s".replace("  ", " ")
                found.append(_suspect(signal, now_s, "page", 0.8, message))
        return found

    def _first_exit(self, now_s: float) -> list[Suspect]:
        """The first worker that died by a deadly signal, if it was clearly the first and others died or complained after it.

        Clearly: by more than the clocks' error, or because all others only ended with an error or said that a peer had gone.
        """
        if not self._exits or now_s - self._exits[0].time_s < _SETTLE_S:
            return []
        exits = sorted((item for item in self._exits if _failed(item)), key=lambda item: item.time_s)
        echoes = [item for item in self._echoes if exits and abs(item.time_s - exits[0].time_s) < _ECHO_S]
        self._exits, self._echoes = [], []
        if not exits or abs(exits[0].time_s - self._restart_s) < 30.0:
            return []
        deadly = [item for item in exits if int(item.data.get("signal") or 0) in _DEADLY]
        alone = len({item.machine for item in deadly}) == 1 and deadly[0].time_s - exits[0].time_s < _FIRST_BY_S
        first = deadly[0] if alone else exits[0]
        rest = sorted((item for item in (*exits, *echoes) if item.machine != first.machine), key=lambda item: item.time_s)
        clearly = alone or all(item.time_s - first.time_s >= _FIRST_BY_S for item in rest)
        if int(first.data.get("signal") or 0) not in _DEADLY or not rest or not clearly:
            return []
        message = f"ended by signal {first.data.get('signal')}; {len({item.machine for item in rest})} machines failed because of it"
        return [_suspect(first, now_s, "evict", 0.85, message)]

    def _gradients(self, now_s: float, machines: int) -> list[Suspect]:
        if not self._nonfinite or now_s - min(item.time_s for item in self._nonfinite.values()) < _SETTLE_S:
            return []
        reports, self._nonfinite = self._nonfinite, {}
        if len(reports) > 1 or machines == 1:
            return []
        signal = next(iter(reports.values()))
        evidence = Evidence("gradient", signal.machine, f"own gradient not finite: {signal.message or signal.data.get('what', '')}".strip())
        machine = signal.machine or ""
        return [Suspect(now_s, self.name, "machine", (machine,), "numeric", 0.9, signal.time_s, "evict", (evidence,))]


def _suspect(signal: Signal, now_s: float, tier: Tier, confidence: float, message: str) -> Suspect:
    machine = signal.machine or ""
    evidence = Evidence(signal.kind, machine, message, device=signal.device, since_s=signal.time_s)
    return Suspect(now_s, SignalRule.name, "machine", (machine,), "explicit", confidence, signal.time_s, tier, (evidence,))


def _xid_code(signal: Signal) -> int | None:
    if signal.kind == "xid":
        code = signal.data.get("code")
        return code if isinstance(code, int) else None
    if signal.kind == "kernel":
        match = _XID_LINE.search(signal.message)
        return int(match.group(1)) if match else None
    return None


def _failed(signal: Signal) -> bool:
    return bool(signal.data.get("signal")) or bool(signal.data.get("code"))
