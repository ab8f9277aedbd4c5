"""What NCCL's RAS says of a job that stands, as one more witness: it never convicts alone (tier watch).

A process that does not answer its peers, and a rank that has launched fewer operations than most, are named. A rank that is ahead of the
others made a call more than they did: that is a program's doing. That all is well, or no answer, says nothing: RAS may say OK while a
watchdog fires, and its thread may hang with its process. Source: NVIDIA, NCCL user guide, RAS; nccl issues 1730 and 1911.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Evidence, Signal, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["RasRule"]

_STANDS_S = 300.0
_BEFORE_S = 5.0  # an answer from before the job stood shows another job
_SILENT, _BEHIND = 0.5, 0.4


class RasRule:
    """Reads ras signals (types.Rule). tracker: shared, and updated before every observation."""

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
        """Process as told, to the machine it is on; those that cannot be placed are left out."""
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
