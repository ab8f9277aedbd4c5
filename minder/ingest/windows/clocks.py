"""Machines whose clock is off, found by when their samples arrive. Only for sources that pass on the machines' own stamps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from minder.model.telemetry import Sample

__all__ = ["ClockOffsets"]

_TOLERATED_S = 2.0  # below this, an offset is jitter and polling
_LOOKS = 5  # arrivals that must agree before a clock is called wrong
_FORGET = 0.1  # how fast the estimate follows a clock that is mended, per arrival


class ClockOffsets:
    """Per machine the delay from stamp to arrival, against the median machine."""

    def __init__(self) -> None:
        self._delay_s: dict[str, float] = {}
        self._looks: dict[str, int] = {}
        self._correction_s: dict[str, float] = {}
        self._notes: list[str] = []

    def learn(self, samples: Sequence[Sample], arrived_s: float) -> None:
        """Take one batch that arrived together. Only a machine's newest stamp counts; its older ones waited."""
        newest: dict[str, float] = {}
        for sample in samples:
            newest[sample.machine] = max(sample.time_s, newest.get(sample.machine, sample.time_s))
        for machine, stamp_s in newest.items():
            delay_s = arrived_s - stamp_s
            known_s = self._delay_s.get(machine, delay_s)
            # The shortest delay is the clock's; longer ones are the network's and the poll's.
            self._delay_s[machine] = delay_s if delay_s < known_s else known_s + _FORGET * (delay_s - known_s)
            self._looks[machine] = self._looks.get(machine, 0) + 1
        if len(self._delay_s) >= 3:
            usual_s = statistics.median(self._delay_s.values())
            for machine in newest:
                self._judge(machine, self._delay_s[machine] - usual_s)

    def correction_s(self, machine: str) -> float:
        """Seconds to add to the machine's stamps."""
        return self._correction_s.get(machine, 0.0)

    def take_notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    def _judge(self, machine: str, offset_s: float) -> None:
        applied_s = self._correction_s.get(machine, 0.0)
        if self._looks[machine] < _LOOKS or abs(offset_s - applied_s) <= _TOLERATED_S:
            return
        if abs(offset_s) <= _TOLERATED_S:
            del self._correction_s[machine]
            self._notes.append(f"the clock of {machine} is right again")
            return
        self._correction_s[machine] = offset_s
        side = "behind" if offset_s > 0 else "ahead"
        self._notes.append(f"the clock of {machine} is {abs(offset_s):.1f} s {side} of its peers: its samples are moved")
