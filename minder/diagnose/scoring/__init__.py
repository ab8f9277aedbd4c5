"""Where a job's telemetry is scored: in the controller's own process, or by an actor of a Ray cluster (docs/ray.md).

Only scores come from elsewhere. Verdicts, decisions, the ledger and every action stay with the one leader.
"""
