"""The log's lines on who talks to whom: a machine that is reached, lost or refuses us; a caller that is refused. Written on change, since a
controller asks thousands of times a minute, and so may a caller who guesses tokens."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from minder.model.log import event

__all__ = ["ContactLog", "RefusedCallers"]

_LOST_S = 3.0
_AGAIN_S = 60.0
_MOST = 1000
_LINES = 60  # of refused callers within a minute

Key = tuple[str, str]


class ContactLog:
    """What each machine's agent and launcher were last said to be."""

    def __init__(self) -> None:
        self._log = logging.getLogger("minder.fleet")
        self._said: dict[Key, str] = {}
        self._heard_s: dict[Key, float] = {}

    def reached(self, machine: str, part: str) -> None:
        self._heard_s[machine, part] = time.monotonic()
        self._say(logging.INFO, "reached", machine, part)

    def unheard(self, machine: str, part: str, detail: str) -> None:
        """It did not answer once; lost is what has not answered for some seconds."""
        if time.monotonic() - self._heard_s.setdefault((machine, part), time.monotonic()) > _LOST_S:
            self._say(logging.WARNING, "lost", machine, part, detail)

    def refused(self, machine: str, part: str, detail: str) -> None:
        self._say(logging.WARNING, "refused", machine, part, detail)

    def _say(self, level: int, word: str, machine: str, part: str, detail: str | None = None) -> None:
        if self._said.get((machine, part)) != word:
            self._said[machine, part] = word
            event(self._log, level, f"{part} {word}", machine=machine, detail=detail)


class RefusedCallers:
    """One line for each caller and reason, and one a minute with the count as long as it goes on; of however many callers, so many
    lines a minute: the next line says how many were left out."""

    def __init__(self, log: logging.Logger, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._log, self._monotonic_s = log, monotonic_s
        self._seen: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        self._minute_s, self._lines, self._left_out = float("-inf"), 0, 0

    def note(self, caller: str, why: str, path: str) -> None:
        """caller: its address. path: what it asked for, without the query."""
        now_s = self._monotonic_s()
        logged_s, count = self._seen.pop((caller, why), (float("-inf"), 0))
        count += 1
        if now_s - logged_s >= _AGAIN_S:
            self._log_refusal(now_s, caller, why, path, count)
            logged_s, count = now_s, 0
        self._seen[caller, why] = (logged_s, count)
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)

    def _log_refusal(self, now_s: float, caller: str, why: str, path: str, count: int) -> None:
        if now_s - self._minute_s >= _AGAIN_S:
            self._minute_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines > _LINES:
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out or None, 0
        event(
            self._log, logging.WARNING, "caller refused", caller=caller, reason=why, path=path[:200], count=count, lines_left_out=left_out
        )
