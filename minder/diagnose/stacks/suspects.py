"""Stacks as one voice among the verdict rules."""

from __future__ import annotations

from typing import Literal

from minder.diagnose.stacks.finding import Finding
from minder.model.evidence import Evidence, Suspect

__all__ = ["suspects_from_stacks"]


def suspects_from_stacks(finding: Finding, time_s: float, since_s: float | None = None) -> tuple[Suspect, ...]:
    """What a finding accuses, for minder's verdicts. time_s: when the capture was known; since_s: when the stall began, if known.

    An eviction is one suspect (machine, or group where a whole parallel group goes) of tier evict. Other suspects are watched, and
    a fault of the software or the workload is the job's, whether or not it shows on one machine. Nobody is nobody. Work that passes by
    itself, such as a checkpoint, may by itself not even page (`alone`).
    """
    begins_s = time_s if since_s is None else since_s
    evidence = tuple(Evidence("stacks", suspect.machine, suspect.reason, since_s=begins_s) for suspect in finding.suspects)
    if finding.evict:
        confidence = max((suspect.confidence for suspect in finding.suspects), default=0.5)
        kind: Literal["machine", "group"] = "group" if finding.group is not None else "machine"
        return (Suspect(time_s, "stacks", kind, finding.evict, "stall", confidence, begins_s, "evict", evidence),)
    machines = tuple(dict.fromkeys(suspect.machine for suspect in finding.suspects))
    confidence = max((suspect.confidence for suspect in finding.suspects), default=0.5)
    if finding.blame in ("software", "workload"):
        evidence = evidence or (Evidence("stacks", None, finding.because, since_s=begins_s),)
        alone: Literal["watch"] | None = "watch" if finding.passes else None
        return (Suspect(time_s, "stacks", "job", (), "stall", confidence, begins_s, "watch", evidence, alone=alone),)
    if not finding.suspects:
        return ()
    return (Suspect(time_s, "stacks", "machine", machines, "stall", confidence, begins_s, "watch", evidence),)
