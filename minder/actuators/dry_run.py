"""Says what would be done."""

from __future__ import annotations

from minder.types import ActionResult, Decision

__all__ = ["DryRunActuator"]


class DryRunActuator:
    """Takes no action at all."""

    name = "dry_run"

    def execute(self, decision: Decision) -> ActionResult:
        what = f"would {decision.action} {', '.join(decision.machines) or decision.verdict.kind}"
        return ActionResult(decision.operation_id, decision.time_s, "dry_run", what)
