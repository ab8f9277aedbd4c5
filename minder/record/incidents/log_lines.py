"""Every event that this process writes to the ledger is a line of its log too, with the same words (docs/logging.md)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from minder.model.history import LedgerEvent
from minder.model.log import event
from minder.record.incidents import kinds

__all__ = ["log_event"]

_log = logging.getLogger("minder.ledger")
_TROUBLE = frozenset({kinds.DEGRADED, kinds.SOURCE_ERROR, kinds.AMBIGUOUS})
_SILENT = frozenset({kinds.VERDICT})  # the controller logs it when it is concluded, whether or not the ledger can be written
_FIELDS = frozenset(
    {
        "action", "answer", "by", "detail", "generation", "machine", "machines", "name", "outcome", "phase", "reason", "replacements",
        "resumed_from", "scope", "source", "state", "step", "steps_lost", "target", "text", "until_s", "what", "why",
    }
)  # fmt: skip


def log_event(written: LedgerEvent) -> None:
    level = logging.WARNING if written.kind in _TROUBLE else logging.INFO
    if written.kind not in _SILENT and _log.isEnabledFor(level):
        known: dict[str, Any] = {"job": written.job, "incident": written.incident, "operation": written.operation_id}
        event(_log, level, written.kind, **known, **_short(written.payload))


def _short(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Words, numbers and lists of names; captures and nested records stay in the ledger."""
    return {key: value for key, value in payload.items() if key in _FIELDS and value not in ("", None) and not isinstance(value, Mapping)}
