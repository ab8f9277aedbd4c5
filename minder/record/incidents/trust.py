"""Whether a machine is given ranks again: a matter of the ledger, whichever job it was evicted from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["DISTRUST_EVICTIONS", "DISTRUST_WINDOW_S", "NOT_TESTED", "TrustFold", "distrust_because"]

NOT_TESTED = "not tested: "  # how the detail of a test begins that failed because it could not be done
DISTRUST_EVICTIONS, DISTRUST_WINDOW_S = 2, 7 * 86_400.0  # as policy.ladder has them where a site sets nothing


def distrust_because(
    machine: str,
    evicted_s: Sequence[float],
    now_s: float,
    most: int = DISTRUST_EVICTIONS,
    window_s: float = DISTRUST_WINDOW_S,
) -> str | None:
    """Why a machine is given no ranks before an offline test: evicted `most` times or more within `window_s` seconds, from any job, since
    it last passed one. None where it may be trusted; most 0: always."""
    lately = [time_s for time_s in evicted_s if time_s > now_s - window_s]
    if not most or len(lately) < most:
        return None
    return f"{machine} was evicted {len(lately)} times within {window_s / 86_400:g} days and has passed no test since"


class TrustFold:
    """evicted_s: machine to when it was evicted, from any job, since it last passed a test or a person vouched for it. Feed it events of
    UNBARRED, INTENT, RESULT and RETEST_ASKED, of every job, in ledger order."""

    def __init__(self) -> None:
        self.evicted_s: dict[str, tuple[float, ...]] = {}
        self._evictions: dict[str, tuple[float, tuple[str, ...]]] = {}  # operation to its time and machines, until its result
        self._tests: dict[str, str] = {}  # operation to its machine

    def add(self, event: LedgerEvent) -> None:
        """Events of other kinds change nothing."""
        name, payload = event.operation_id or "", event.payload
        if event.kind == kinds.INTENT and payload.get("action") == "evict":
            self._evictions[name] = (event.time_s, tuple(map(str, payload.get("machines") or ())))
        elif event.kind == kinds.RETEST_ASKED and name:
            self._tests[name] = str(payload.get("machine"))
        elif event.kind == kinds.UNBARRED and payload.get("forced"):
            self.evicted_s.pop(str(payload.get("machine")), None)
        elif event.kind == kinds.RESULT and payload.get("outcome") in ("done", "already_done"):
            time_s, machines = self._evictions.pop(name, (0.0, ()))
            for machine in machines:
                self.evicted_s[machine] = (*self.evicted_s.get(machine, ()), time_s)
            self.evicted_s.pop(self._tests.pop(name, ""), None)
