"""The identity of a failure, and the trial that tells a machine from its ranks. Plain records, standard library only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Failure", "Trial"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What is compared when the same trouble comes back (minder.policy.blame).

    sort: "crash", "hang", "nonfinite" or "slow". kind: "machine" (evidence that belongs to machines), "program" or "unknown".
    fingerprint: "" where a failure has no structure to be known by: a bare exit code or signal, a rank that stands in a collective.
    step: the newest one before it; stepped: whether its generation had made a step. code_version: "" if unknown. Times are unix seconds.
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


@dataclass(frozen=True, slots=True)
class Trial:
    """A machine that was taken off its ranks to see whether a failure follows them. Neither barred nor evicted.

    partner: who took its ranks: a standby, or a machine of the job that exchanged its own with it. finding: "" while it lasts, then
    "follows the rank", "stays with the machine" or "did not come back".
    """

    operation_id: str
    machine: str
    partner: str
    ranks: tuple[int, ...]
    begun_s: float
    exchanged: bool
    incident: str | None = None
    finding: str = ""
