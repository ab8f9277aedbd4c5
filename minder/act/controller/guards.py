"""The stage boundaries of a tick: whatever goes wrong in one part is counted, logged, written to the ledger, shown; the tick goes on.

A traceback goes to the log and to the ledger once per distinct failure. A part that fails again and again is never switched off: it shows
in `Tick.failing` until it works again, and its count in `Tick.errors` grows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from minder.act.controller.measures import Measures
from minder.act.controller.tick import Tick
from minder.diagnose.verdicts.judge import RuleFailure
from minder.model.errors import LedgerError, MinderError
from minder.model.log import event
from minder.record.incidents import kinds

__all__ = ["Guards", "rule_part"]

T = TypeVar("T")
_log = logging.getLogger("minder.controller")
_AGAIN = (10, 100, 1000, 10_000)  # of a part's failures: told once more, without the traceback
_MOST_DISTINCT = 20  # of one part
_TRACE_LINES = 20


def rule_part(rule: str) -> str:
    """What a verdict rule is called among the parts: in errors, metrics and events."""
    return f"rule:{rule}"


class Guards:
    """Counts into `tick`, tells by its backlog. job: its name, for the log."""

    def __init__(self, job: str, tick: Tick, measures: Measures) -> None:
        self._job, self._tick, self._measures = job, tick, measures
        self._met: dict[str, set[tuple[str, ...]]] = {}
        self._now: set[str] = set()  # parts that failed at this tick: a part may run several times

    def begin(self) -> None:
        """Another tick."""
        self._now.clear()

    def run(self, part: str, work: Callable[[], T], nothing: T, writes: bool = False) -> T:
        """`work()`, or `nothing` where it raises. writes: it writes to the ledger, whose errors end the tick (LedgerError)."""
        try:
            with self._measures.stage(part):
                result = work()
        except Exception as error:
            if writes and isinstance(error, LedgerError):
                raise
            self._failed(part, RuleFailure.of(part, error), expected=isinstance(error, MinderError))
            return nothing
        self._worked(part)
        return result

    def note_rules(self, rules: Collection[str], failures: Sequence[RuleFailure]) -> None:
        """What the judge's rules raised at this tick. rules: the names of those that were asked."""
        raised = {failure.rule for failure in failures}
        for failure in failures:
            self._failed(rule_part(failure.rule), failure)
        for rule in rules:
            if rule not in raised:
                self._worked(rule_part(rule))

    def _failed(self, part: str, failure: RuleFailure, expected: bool = False) -> None:
        tick, met = self._tick, self._met.setdefault(part, set())
        tick.errors[part] += 1
        tick.failing[part] = failure.error
        self._now.add(part)
        count, is_new = tick.errors[part], failure.key not in met and len(met) < _MOST_DISTINCT
        if not expected:
            tick.message = f"{part} failed: {failure.error}"
        if not is_new and count not in _AGAIN:
            return
        met.add(failure.key)
        trace = failure.trace if is_new and not expected else None
        event(_log, logging.ERROR, "part failed", job=self._job, part=part, count=count, detail=failure.error, traceback=trace)
        payload = {"source": part, "what": part, "error": failure.error, "detail": failure.error, "count": count}
        if part.startswith(rule_part("")):
            payload["rule"] = failure.rule
        if trace is not None:
            payload["traceback"] = "\n".join(trace.rstrip("\n").split("\n")[-_TRACE_LINES:])
        tick.backlog.tell(kinds.SOURCE_ERROR if part == "telemetry" else kinds.DEGRADED, payload)

    def _worked(self, part: str) -> None:
        if part not in self._now and self._tick.failing.pop(part, None) is not None:
            event(_log, logging.WARNING, "part works again", job=self._job, part=part, count=self._tick.errors[part])
