"""Rules that raise in a replay: the other rules' verdicts are printed, and then the replay fails instead of passing for a whole one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from minder.diagnose.verdicts.judge import RuleFailure
from minder.model.errors import RuleFailedError

__all__ = ["FailedRules"]

_log = logging.getLogger("minder.verdicts")


class FailedRules:
    """Counts what the judge's rules raised; the traceback goes to the log once per distinct failure."""

    def __init__(self) -> None:
        self._met: set[tuple[str, ...]] = set()
        self._counts: Counter[str] = Counter()
        self._last: RuleFailure | None = None

    def note(self, failures: Sequence[RuleFailure]) -> None:
        for failure in failures:
            self._counts[failure.rule] += 1
            self._last = failure
            if failure.key not in self._met:
                self._met.add(failure.key)
                _log.error("rule failed: %s\n%s", failure.rule, failure.trace)

    def check(self) -> None:
        """Raises RuleFailedError if any rule raised."""
        if self._last is not None:
            counts = ", ".join(f"{rule} {count} times" for rule, count in sorted(self._counts.items()))
            raise RuleFailedError(f"rules failed ({counts}; the last: {self._last.error}): what they would have said is unknown")
