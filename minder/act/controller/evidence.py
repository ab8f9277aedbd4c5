"""Evidence before the kill: stacks, process states, sockets, kernel log and last log lines of the suspects and two peers."""

from __future__ import annotations

from typing import Any

from minder.act.controller.state import JobState
from minder.act.recovery.placement import machine_order
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.record.incidents import Ledger, kinds
from minder.wire.fleet import Fleet

__all__ = ["capture_evidence"]

_MOST = 4
_WANTED = ["processes", "stacks", "flows", "kernel", "logs"]


def capture_evidence(state: JobState, ledger: Ledger, fleet: Fleet, decision: Decision, incident: str, deadline_s: float) -> None:
    """Ask the agents, and write what they say into the incident; once per operation. Of a restart that takes no machine away, the
    machines that its evidence names come first."""
    if any(event.operation_id == decision.operation_id for event in ledger.events(incident=incident, kinds=[kinds.EVIDENCE])):
        return

    def tell(kind: str, payload: dict[str, Any]) -> None:
        ledger.append(kind, payload, job=state.name, incident=incident, operation_id=decision.operation_id)

    tell(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "begin", "detail": ""})
    told = decision.machines or tuple(dict.fromkeys(item.machine for item in decision.verdict.evidence if item.machine is not None))[:_MOST]
    peers = [machine for machine in machine_order(state.rank_machine) if machine not in told][:2]
    wanted = [machine for machine in (*told, *peers) if machine in fleet.machines]
    for machine, answer in fleet.capture(wanted, _WANTED, deadline_s * 0.8).items():
        data: Any = {"error": str(answer)} if isinstance(answer, WireError) else dict(answer)
        tell(kinds.EVIDENCE, {"machine": machine, "what": "evidence", "data": data})
    tell(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "end", "detail": ""})
