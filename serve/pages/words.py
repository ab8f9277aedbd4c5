"""What records say, in the words of a reader at night."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup, escape

from minder.model.clock import format_time

__all__ = ["clock_words", "marked", "phase_words", "pretty", "state_words"]

_MOST_LETTERS = 6000
_STATES = {
    "open": "open",
    "acting": "being acted on",
    "recovering": "recovering",
    "closed": "closed",
}
_PHASES = {
    "starting": "starting",
    "running": "running",
    "recovering": "recovering",
    "suspended": "suspended, to be tested",
    "diagnosing": "standing, its machines are tested",
    "replaying": "standing, groups of its machines replay it",
    "finished": "finished",
    "failed": "failed",
}


def state_words(state: str) -> str:
    return _STATES.get(state, state)


def phase_words(phase: str | None) -> str:
    return _PHASES.get(phase or "", phase or "nothing is known")


def clock_words(time_s: float) -> str:
    """Date and time to the second, in UTC.

    >>> clock_words(1772431951.25)
    '2026-03-02 06:12:31 UTC'
    """
    return format_time(time_s)[:19].replace("T", " ") + " UTC"


def marked(text: str) -> Markup:
    """A line in which commands stand between backticks, as code.

    >>> marked("run `minder train` <now>")
    Markup('run <code>minder train</code> &lt;now&gt;')
    """
    parts = str(escape(text)).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts)))  # each was escaped


def pretty(data: Any) -> str:
    """Captured data to look at, cut where it grows long."""
    text = json.dumps(data, indent=1, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}\n... and {len(text) - _MOST_LETTERS} letters more"
