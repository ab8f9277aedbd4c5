"""What probes prove of a machine, out of the ledger: what failed must pass before the machine is called proven again.

Tests by pairs are a probe like the others here: a machine that is faulty with two others stays so until a pair test finds it good."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from minder.model.history import LedgerEvent
from minder.model.pairs import NodeState
from minder.model.probes import Judged
from minder.record.incidents import kinds
from minder.record.incidents.pairs import fold_pairs
from minder.record.incidents.probes import fold_probes

__all__ = ["PROOF_KINDS", "Proof", "ProofFold", "ProofState"]

ProofState = Literal["passed", "unknown", "slow", "failed"]
PROOF_KINDS = (kinds.PROBES, kinds.PAIRS, kinds.UNBARRED)
_JUDGED: tuple[Judged, ...] = ("pass", "slow", "fail")
_OF_PAIR: dict[NodeState, Judged] = {"good": "pass", "slow": "slow", "faulty": "fail"}


@dataclass(frozen=True, slots=True)
class Proof:
    """state: "unknown" where no probe of it was judged yet. time_s: of its newest probes by the controller that keeps it as a standby; None
    without any. detail: what failed or is slow, one line."""

    state: ProofState = "unknown"
    time_s: float | None = None
    detail: str = ""

    @property
    def turn(self) -> int:
        """Smaller is used first, where it is given ranks at all: proven, then unknown, which is not faulty, then slow, which is better than
        none."""
        return ("passed", "unknown", "slow", "failed").index(self.state)

    @property
    def keeps_out(self) -> str:
        """Why the machine is given no ranks, "" where its probes do not speak against it."""
        return f"its probe failed, and has not passed since: {self.detail}" if self.state == "failed" else ""


@dataclass(slots=True)
class _Machine:
    verdicts: dict[str, tuple[Judged, str]] = field(default_factory=dict)  # probe to its newest verdict
    time_s: float | None = None


_UNKNOWN = Proof()


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
            for tests in fold_pairs([event]) if event.kind == kinds.PAIRS else ():
                for node in tests.graph.nodes:
                    if (word := _OF_PAIR.get(node.state)) is not None:
                        self._machines.setdefault(node.machine, _Machine()).verdicts["pair"] = (word, node.reason)

    def open_of(self, machine: str) -> tuple[str, ...]:
        """Probes that failed or were slow when they were last judged, and have not passed since."""
        known = self._machines.get(machine, _Machine())
        return tuple(probe for probe, (verdict, _) in known.verdicts.items() if verdict != "pass")

    def of(self, machine: str) -> Proof:
        known = self._machines.get(machine)
        if known is None:
            return _UNKNOWN
        bad: tuple[tuple[ProofState, Judged], ...] = (("failed", "fail"), ("slow", "slow"))
        for state, word in bad:
            lines = [f"{probe}: {reason}" for probe, (verdict, reason) in known.verdicts.items() if verdict == word]
            if lines:
                return Proof(state, known.time_s, "; ".join(lines))
        return Proof("passed" if known.verdicts else "unknown", known.time_s)
