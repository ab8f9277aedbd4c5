"""The reason that minder writes at a node: who did it and by which operation, so that no drain of others is ever taken for it."""

from __future__ import annotations

import re

__all__ = ["operation_in", "reason_text"]

_OURS = re.compile(r"minder (?P<operation>[A-Za-z0-9][A-Za-z0-9._/-]*): .*")
_MOST = 200


def reason_text(operation_id: str, why: str) -> str:
    """One line of plain characters. Raises ValueError for an operation id that could not be read back.

    >>> reason_text("evict-0a1b", "stall, confidence 0.95")
    'minder evict-0a1b: stall, confidence 0.95'
    """
    plain = " ".join("".join(char if char.isascii() and char.isprintable() else " " for char in why).split())
    text = f"minder {operation_id}: {plain or 'no reason given'}"[:_MOST]
    if operation_in(text) != operation_id:
        raise ValueError(f'operation id "{operation_id}" cannot stand in a reason')
    return text


def operation_in(reason: str) -> str | None:
    """The operation that wrote this reason; None if it is not minder's.

    >>> operation_in("minder evict-0a1b: stall"), operation_in("minder says: bad fan"), operation_in("bad fan")
    ('evict-0a1b', None, None)
    """
    found = _OURS.fullmatch(reason)
    operation = found["operation"] if found else None
    return operation if operation is not None and "-" in operation else None
