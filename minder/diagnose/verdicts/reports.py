"""What other systems report of a machine: alerts of the site's Alertmanager, NVSentinel, gpud. Evidence, never a verdict by itself.

Escalating others' alarms is what evicts healthy machines at scale (peers of ours: one rule, 672 false fatal events in three hours), and an
open page would keep everybody else from being named. So a report opens nothing and is nobody's second witness: it stands beside a
suspicion that another rule has. What is said of half the machines or more accuses nobody: it is about what they share.
"""

from __future__ import annotations

from minder.model.evidence import Evidence, Signal, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["ReportRule"]

_LASTS_S = 600.0
_CONFIDENCE = {"fatal": 0.5, "warning": 0.3}


class ReportRule:
    """Reads report signals (types.Rule). A report speaks from its begin to its end, and for ten minutes at most."""

    name = "reports"

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str, str | None], Signal] = {}

    def observe(self, observation: Observation) -> RuleResult:
        now_s = observation.now_s
        for signal in observation.signals:
            self._note(signal)
        self._standing = {key: item for key, item in self._standing.items() if now_s - item.time_s <= _LASTS_S}
        machines = observation.job.machines if observation.job is not None else ()
        return RuleResult(tuple(self._suspect(name, now_s) for name in machines if self._speaks_of(name, machines)))

    def _note(self, signal: Signal) -> None:
        if signal.kind != "report" or signal.machine is None:
            return
        key = (signal.machine, str(signal.data.get("name")), signal.device)
        if signal.data.get("state") == "end":
            self._standing.pop(key, None)
        elif signal.data.get("severity") in _CONFIDENCE:
            self._standing.setdefault(key, signal)

    def _speaks_of(self, machine: str, machines: tuple[str, ...]) -> bool:
        return any(not self._is_everywhere(name, machines) for owner, name, _ in self._standing if owner == machine)

    def _is_everywhere(self, name: str, machines: tuple[str, ...]) -> bool:
        told = {owner for owner, other, _ in self._standing if other == name and owner in machines}
        return len(told) > 1 and 2 * len(told) >= len(machines)

    def _suspect(self, machine: str, now_s: float) -> Suspect:
        own = sorted((item for (owner, _, _), item in self._standing.items() if owner == machine), key=lambda item: item.time_s)
        evidence = tuple(
            Evidence("report", machine, f"{item.data.get('name')} ({item.data.get('severity')}): {item.message}"[:240], None, item.device)
            for item in own[:5]
        )
        confidence = max(_CONFIDENCE[str(item.data.get("severity"))] for item in own)
        return Suspect(now_s, self.name, "machine", (machine,), "explicit", confidence, own[0].time_s, "watch", evidence)
