"""What other systems say of a machine: evidence beside a suspicion that another rule has, never a verdict by itself (tier watch).

**Reports** (`ReportRule`): alerts of the site's Alertmanager, NVSentinel, gpud. Escalating others' alarms is what evicts healthy machines
at scale (peers of ours: one rule, 672 false fatal events in three hours), and an open page would keep every other machine from being named.
So a report opens nothing and is no suspicion's second witness. What is said of half the machines or more accuses none of them: it is about
what they share.

**NCCL's RAS** (`RasRule`), of a job that stands. A process that does not answer its peers, and a rank that has launched fewer operations
than most, are named. A rank that is ahead of the others made a call more than they did: that is a program's doing. That all is well, or no
answer, says nothing: RAS may say OK while a watchdog fires, and its thread may hang with its process. Source: NVIDIA, NCCL user guide, RAS;
nccl issues 1730 and 1911.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Evidence, Signal, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["RasRule", "ReportRule"]

_LASTS_S = 600.0
_CONFIDENCE = {"fatal": 0.5, "warning": 0.3}


class ReportRule:
    """Reads report signals (observation.Rule). A report speaks from its begin to its end, and for ten minutes at most."""

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
        owners = {owner for owner, other, _ in self._standing if other == name and owner in machines}
        return len(owners) > 1 and 2 * len(owners) >= len(machines)

    def _suspect(self, machine: str, now_s: float) -> Suspect:
        own = sorted((item for (owner, _, _), item in self._standing.items() if owner == machine), key=lambda item: item.time_s)
        evidence = tuple(
            Evidence("report", machine, f"{item.data.get('name')} ({item.data.get('severity')}): {item.message}"[:240], None, item.device)
            for item in own[:5]
        )
        confidence = max(_CONFIDENCE[str(item.data.get("severity"))] for item in own)
        return Suspect(now_s, self.name, "machine", (machine,), "explicit", confidence, own[0].time_s, "watch", evidence)


_STANDS_S = 300.0
_BEFORE_S = 5.0  # an answer from before the job stood shows another job
_SILENT, _BEHIND = 0.5, 0.4


class RasRule:
    """Reads ras signals (observation.Rule). tracker: shared, and updated before every observation."""

    name = "ras"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._heard: Signal | None = None

    def observe(self, observation: Observation) -> RuleResult:
        for signal in observation.signals:
            if signal.kind == "ras" and signal.data.get("answered"):
                self._heard = signal
        heard, since_s = self._heard, self._tracker.halt.since_s
        if heard is None or since_s is None or heard.time_s < since_s - _BEFORE_S or observation.now_s - heard.time_s > _STANDS_S:
            return RuleResult()
        silent, behind = (self._machines(heard, side, observation) for side in ("silent", "behind"))
        named, confidence, what = (silent, _SILENT, "does not answer RAS") if silent else (behind, _BEHIND, "launched fewer operations")
        machines = tuple(dict.fromkeys(named.values()))
        if len(machines) != 1:
            return RuleResult()
        evidence = (Evidence("ras", machines[0], f"{what}: {', '.join(named)} ({heard.message})"[:240], since_s=heard.time_s),)
        return RuleResult((Suspect(observation.now_s, self.name, "machine", machines, "stall", confidence, since_s, "watch", evidence),))

    def _machines(self, heard: Signal, side: str, observation: Observation) -> dict[str, str]:
        """Process as reported, to the machine it is on; those that cannot be placed are left out."""
        rows = heard.data.get(side)
        placed: dict[str, str] = {}
        for row in rows if isinstance(rows, (list, tuple)) else ():
            machine = _place(row, observation) if isinstance(row, Mapping) else None
            if machine is not None:
                rank = "" if row.get("rank") is None else f"rank {row['rank']}, "
                placed[f"{rank}process {row.get('pid')}"] = machine
        return placed


def _place(row: Mapping[str, Any], observation: Observation) -> str | None:
    """By its process number, if one machine alone has it; else by its rank, if the communicator is that of the whole job."""
    pid, job = row.get("pid"), observation.job
    owners = [machine for machine, view in observation.fleet.items() if any(worker.pid == pid for worker in view.workers)]
    if len(owners) == 1:
        return owners[0]
    if job is None or row.get("size") != len(job.rank_machine) or not isinstance(row.get("rank"), int):
        return None
    return job.rank_machine.get(row["rank"])
