"""From verdicts to decisions: a visible list of stages, each pure. No I/O, no clock: time is in the data."""

from __future__ import annotations

from minder.policy.config import PolicyConfig
from minder.policy.context import PolicyContext
from minder.policy.policy import RETRY_REASONS, Policy, operation_name

__all__ = ["RETRY_REASONS", "Policy", "PolicyConfig", "PolicyContext", "operation_name"]
