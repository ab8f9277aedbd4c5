"""What probes prove of a machine, out of the ledger: what failed must pass before the machine is called proven again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from minder.model.history import LedgerEvent
from minder.model.probes import Judged
from minder.record.incidents import kinds
from minder.record.incidents.probes import fold_probes

__all__ = ["PROOF_KINDS", "Proof", "ProofFold", "ProofState"]

ProofState = Literal["passed", "unknown", "slow", "failed"]
PROOF_KINDS = (kinds.PROBES, kinds.UNBARRED)
_JUDGED: tuple[Judged, ...] = ("pass", "slow", "fail")


@dataclass(frozen=True, slots=True)
class Proof:
    """state: "unknown" where no probe of it was judged yet. time_s: of its newest probes by the controller that keeps it as a standby; None
    without any. detail: what failed or is slow, one line."""

    state: ProofState = "unknown"
    time_s: float | None = None
    detail: str = ""

    @property
    def keeps_out(self) -> str:
        """Why the machine is given no ranks, "" where its probes do not speak against it."""
        return f"its probe failed, and has not passed since: {self.detail}" if self.state == "failed" else ""


@dataclass(slots=True)
class _Machine:
    verdicts: dict[str, tuple[Judged, str]] = field(default_factory=dict)  # probe to its newest verdict
    time_s: float | None = None


class ProofFold:
    """`add` events of PROOF_KINDS in the ledger's order, of all jobs; `of` a machine is what they say."""

    def __init__(self) -> None:
        self._machines: dict[str, _Machine] = {}

    def add(self, events: Iterable[LedgerEvent]) -> None:
        for event in events:
            if event.kind == kinds.UNBARRED:  # a person vouches for it: what failed before is repaired
                self._machines.pop(str(event.payload.get("machine")), None)
            for run in fold_probes([event]) if event.kind == kinds.PROBES else ():
                known = self._machines.setdefault(run.machine, _Machine())
                known.verdicts |= {item.probe: (item.verdict, item.reason) for item in run.judgements if item.verdict in _JUDGED}
                known.time_s = event.time_s if run.why == "standby" else known.time_s

    def of(self, machine: str) -> Proof:
        known = self._machines.get(machine)
        if known is None:
            return Proof()
        bad: tuple[tuple[ProofState, Judged], ...] = (("failed", "fail"), ("slow", "slow"))
        for state, word in bad:
            lines = [f"{probe}: {reason}" for probe, (verdict, reason) in known.verdicts.items() if verdict == word]
            if lines:
                return Proof(state, known.time_s, "; ".join(lines))
        return Proof("passed" if known.verdicts else "unknown", known.time_s)
