"""Exporters whose stamps are far behind: their samples are late, which is not the same as absent.

A collector in between, or an exporter that stamps its own values, gives samples that are a minute old when they can first be asked for.
An instant query that reaches 30 s back never sees them. So missing machines are looked for further back now and then; if new samples come
from there again and again, they are read, moved by the longest delay that was seen: steady, and as old as they are.
One old sample moves nothing: that is how a machine that died looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from minder.model.metrics import is_spoken
from minder.model.telemetry import Sample

__all__ = ["LateStamps"]

_LATE_S, _LATE_INTERVALS = 20.0, 2.5  # older than this at its arrival, an exporter's newest sample is late
_LOOKS = 3  # arrivals that must be late before one is moved
_REMEMBERED = 20  # arrivals
_MISSING_S, _MISSING_INTERVALS = 30.0, 3.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 300.0  # between looks far back
_JITTER_S = 60.0
_FORGET_S = 600.0

_Key = tuple[str, str | None, str]  # machine, device, and a metric: which exporter it was


@dataclass(slots=True)
class _Course:
    """Of one exporter's samples: the delays of the newest at each arrival, and by how much they are moved."""

    arrived_s: float
    delays_s: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    shift_s: float = 0.0


class LateStamps:
    """interval_s: of the samples. known: machines that are looked for. longest_s: how far back at most.

    late_s: machine to the seconds that its samples are moved by, of those that are late.
    """

    def __init__(self, interval_s: float, known: Callable[[], Collection[str]], longest_s: float) -> None:
        self._late_s = max(_LATE_S, _LATE_INTERVALS * interval_s)
        self._missing_s = max(_MISSING_S, _MISSING_INTERVALS * interval_s)
        self._known, self._longest_s = known, longest_s
        self._courses: dict[_Key, _Course] = {}
        self._heard_s: dict[str, float] = {}
        self._next_s, self._wait_s = float("-inf"), _FIRST_WAIT_S

    @property
    def late_s(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for (machine, _, _), course in self._courses.items():
            if course.shift_s:
                found[machine] = max(course.shift_s, found.get(machine, 0.0))
        return found

    def reach_s(self, now_s: float) -> float:
        """How far back the next question has to reach for late and for missing machines; 0 where there are none. Call it once
        per question."""
        late = [course.delays_s[-1] for course in self._courses.values() if course.delays_s[-1] > self._late_s]
        reach_s = max(late) + _JITTER_S if late else 0.0
        missing = [name for name in self._known() if now_s - self._heard_s.setdefault(name, now_s) > self._missing_s]
        if not missing:
            self._wait_s = _FIRST_WAIT_S
        elif now_s >= self._next_s:
            self._next_s, self._wait_s = now_s + self._wait_s, min(_LONGEST_WAIT_S, 2.0 * self._wait_s)
            reach_s = self._longest_s
        return min(reach_s, self._longest_s)

    def move(self, samples: Iterable[Sample], now_s: float) -> list[Sample]:
        """What is to be handed on of the samples that came now, in time order. One that was never on time is held back until it has been
        late often enough."""
        batch = [(_key(sample), sample) for sample in samples]
        newest: dict[_Key, float] = {}
        for key, sample in batch:
            newest[key] = max(sample.time_s, newest.get(key, sample.time_s))
        for key, time_s in newest.items():
            self._learn(key, now_s - time_s, now_s)
        self._courses = {key: course for key, course in self._courses.items() if now_s - course.arrived_s < _FORGET_S}
        found = [moved for key, sample in batch if (moved := self._moved(self._courses[key], sample)) is not None]
        return sorted(found, key=lambda sample: sample.time_s)

    def _learn(self, key: _Key, delay_s: float, now_s: float) -> None:
        course = self._courses.setdefault(key, _Course(now_s))
        course.arrived_s = now_s
        if not is_spoken(key[2]):  # what a Prometheus says of its own scrape is no word of the machine
            self._heard_s[key[0]] = now_s
        course.delays_s.append(delay_s)
        last = list(course.delays_s)[-_LOOKS:]
        if len(last) == _LOOKS and min(last) > self._late_s:
            course.shift_s = max(course.delays_s)  # a sample that comes sooner waits for its time
        elif max(last) <= self._late_s:
            course.shift_s = 0.0

    def _moved(self, course: _Course, sample: Sample) -> Sample | None:
        if course.shift_s:
            return replace(sample, time_s=sample.time_s + course.shift_s)
        return None if min(course.delays_s) > self._late_s else sample


def _key(sample: Sample) -> _Key:
    return sample.machine, sample.device, min(sample.values, default="")
