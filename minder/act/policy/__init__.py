"""From verdicts to decisions: a visible list of stages, each pure. No I/O, no clock: time is in the data."""

from __future__ import annotations

from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.policy import RETRY_REASONS, Policy, operation_name

__all__ = ["RETRY_REASONS", "Policy", "PolicyConfig", "PolicyContext", "operation_name"]
