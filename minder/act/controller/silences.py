"""Machines whose samples stop coming, for a line when that begins and one when it ends. It is reported, and accuses no machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from minder.model.metrics import is_spoken
from minder.model.telemetry import Sample

__all__ = ["Silences"]

_INTERVALS = 3.0
_SHORTEST_S = 5.0  # a busy machine answers a second or two late
_FOLLOWS = 0.2  # how fast the usual gap follows, per gap
_SHOWN = 4


class Silences:
    """Times are of a monotonic clock, and of arrival: a stamp that is far behind is late, not absent.

    heard: every machine of which a sample came since the start. usual_s: the gap between the samples of a machine, as most have it.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._heard_s: dict[str, float] = {}
        self._waits_s: dict[str, float] = {}  # of machines that were not heard yet: since when they are waited for
        self._gap_s: dict[str, float] = {}
        self._told: set[str] = set()

    @property
    def heard(self) -> frozenset[str]:
        return frozenset(self._heard_s)

    @property
    def usual_s(self) -> float:
        return max(self._interval_s, round(median(self._gap_s.values()))) if self._gap_s else self._interval_s

    def hear(self, steady_s: float, samples: Iterable[Sample]) -> None:
        """What a Prometheus says of its own scrape that failed is no word of the machine."""
        for machine in {sample.machine for sample in samples if not sample.values or not all(is_spoken(name) for name in sample.values)}:
            before_s = self._heard_s.get(machine)
            if before_s is not None and machine not in self._told and steady_s > before_s:
                known_s = self._gap_s.get(machine, steady_s - before_s)
                self._gap_s[machine] = known_s + _FOLLOWS * (steady_s - before_s - known_s)
            self._heard_s[machine] = steady_s

    def begin(self, steady_s: float, machines: Collection[str]) -> None:
        """No machine is silent before now: the watch attached, or the telemetry as a whole was out."""
        for machine in machines:
            if machine in self._heard_s:
                self._heard_s[machine] = steady_s
            else:
                self._waits_s[machine] = steady_s
                self._told.add(machine)  # the line that stated what was attached to has named it

    def look(self, steady_s: float, machines: Sequence[str], causes: Mapping[str, str]) -> list[str]:
        """Lines to be said now. machines: those that should speak. causes: why one could not be read, where that is known."""
        since_s = {machine: self._heard_s.get(machine, self._waits_s.setdefault(machine, steady_s)) for machine in machines}
        silent = {machine for machine in machines if steady_s - since_s[machine] > self._patience_s(machine)}
        back = sorted(self._told & set(machines) & self._heard_s.keys() - silent)
        new = sorted(silent - self._told)
        self._told = (self._told | silent) - set(back)
        found = [f"samples of {_list(back)} come again"] if back else []
        return [*found, *self._describe(steady_s, new, since_s, silent, causes, len(machines))] if new else found

    def _patience_s(self, machine: str) -> float:
        return max(_SHORTEST_S, _INTERVALS * max(self._interval_s, self._gap_s.get(machine, 0.0)))

    def _describe(
        self, steady_s: float, new: Sequence[str], since_s: Mapping[str, float], silent: Collection[str], causes: Mapping[str, str], of: int
    ) -> list[str]:
        longest_s = max(steady_s - since_s[machine] for machine in new)
        if len(silent) == of > 1:
            return [f"no machine has a sample for {longest_s:.0f} s: it is the monitoring that is out, until something else says so"]
        cause = next((f" ({causes[machine]})" for machine in new if machine in causes), "")
        return [f"no sample of {_list(new)} for {longest_s:.0f} s{cause}: that is no data, and accuses no machine by itself"]


def _list(machines: Sequence[str]) -> str:
    return ", ".join(machines[:_SHOWN]) + (f" and {len(machines) - _SHOWN} more" if len(machines) > _SHOWN else "")
