"""The straggler study's questions about a site's own jobs: how often are steps slow, when, and why (arXiv 2505.05713; pure).

The answers come from the what-if studies in the ledger: each stands for the time until the next one, an hour and a half at most, and never
beyond the generation that it studied: the job's machines may be others after a restart. Time in which a job ran and no study stands, or one
that could not be judged or trusted, is "not judged": it is neither slow nor healthy, and every share of slow time is of the judged time.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from minder.model.evidence import NO_CAUSE, NOT_JUDGED, STEADY, what_steps_were
from minder.model.history import LedgerEvent
from minder.offline.reliability.runs import Run
from minder.offline.reliability.stretches import Span
from minder.record.incidents import kinds

__all__ = ["AGES", "CAUSES", "SlowSteps", "add_up", "count_slow_steps", "is_mostly_slow", "weeks_between"]

CAUSES = ("worker", "stage imbalance", "sequence imbalance", "communication", NO_CAUSE)
AGES = (
    ("first hour", 3600.0),
    ("1 h to 6 h", 6 * 3600.0),
    ("6 h to 24 h", 86_400.0),
    ("1 d to 7 d", 7 * 86_400.0),
    ("after 7 d", math.inf),
)
_STANDS_S = 5400.0  # a study, without another: the controller writes one an hour
_HOUR_S = 3600.0
_Table = dict[str, dict[str, float]]


@dataclass(slots=True)
class SlowSteps:
    """Seconds by what the steps were ("not slow", one of CAUSES, "not judged"): in all, by hour of the day (UTC), the run's age, the week.

    wasted_s: what ideal steps would have saved, of the judged time. jobs: name to the same seconds, of each.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    by_hour: dict[int, dict[str, float]] = field(default_factory=dict)
    by_age: _Table = field(default_factory=dict)
    by_week: _Table = field(default_factory=dict)
    jobs: _Table = field(default_factory=dict)
    wasted_s: float = 0.0

    @property
    def studied(self) -> bool:
        return any(seconds > 0 for word, seconds in self.seconds.items() if word != NOT_JUDGED)

    def add(self, span: Span, word: str, begun_s: float, waste: float) -> None:
        """One stretch of one run. begun_s: when the run began; waste: 0 to 1."""
        for begin_s, end_s in _pieces(span, begun_s):
            seconds, moment = end_s - begin_s, datetime.fromtimestamp(begin_s, UTC)
            age = next(name for name, limit_s in AGES if begin_s - begun_s < limit_s)
            tables = (self.seconds, self.by_hour.setdefault(moment.hour, {}), self.by_age.setdefault(age, {}))
            for table in (*tables, self.by_week.setdefault(_week(moment), {})):
                table[word] = table.get(word, 0.0) + seconds
            self.wasted_s += waste * seconds


def count_slow_steps(job: str, events: Iterable[LedgerEvent], runs: Sequence[Run], period: Span) -> SlowSteps:
    """Of one job. events: its own, in ledger order. Of a job whose runs are not recorded only the studied time counts."""
    events = list(events)
    studies = [event for event in events if event.kind == kinds.STEP_STUDY]
    starts_s = sorted(event.time_s for event in events if event.kind == kinds.GENERATION_STARTED)
    spans = [(run.begin_s, run.begin_s, run.end_s) for run in runs]
    if not runs and studies:
        spans = [(studies[0].time_s, studies[0].time_s, studies[-1].time_s + _STANDS_S)]
    found = SlowSteps()
    for begun_s, begin_s, end_s in spans:
        own = [event for event in studies if begin_s <= event.time_s < end_s]
        at_s = begin_s
        ends = [*(item.time_s for item in own), end_s][1:]
        for event, following in zip(own, ends, strict=True):
            word, waste = _read(event.payload)
            following_start = bisect.bisect_right(starts_s, event.time_s)
            restart_s = starts_s[following_start] if following_start < len(starts_s) else math.inf
            stands_s = min(following, event.time_s + _STANDS_S, restart_s)
            found.add(_clip((at_s, event.time_s), period), NOT_JUDGED, begun_s, 0.0)
            found.add(_clip((event.time_s, stands_s), period), word, begun_s, waste)
            at_s = stands_s
        if runs:
            found.add(_clip((at_s, end_s), period), NOT_JUDGED, begun_s, 0.0)
    found.jobs[job] = dict(found.seconds)
    return found


def is_mostly_slow(seconds: Mapping[str, float]) -> bool | None:
    """Of one job: whether its steps were slow in at least half of its judged time; None where none was judged."""
    slow_s = sum(seconds.get(cause, 0.0) for cause in CAUSES)
    judged_s = slow_s + seconds.get(STEADY, 0.0)
    return slow_s >= 0.5 * judged_s if judged_s > 0 else None


def add_up(parts: Iterable[SlowSteps]) -> SlowSteps:
    """Of several jobs; those without any time are left out."""
    total = SlowSteps()
    for part in parts:
        total.wasted_s += part.wasted_s
        total.jobs |= {job: seconds for job, seconds in part.jobs.items() if seconds}
        _add(total.seconds, part.seconds)
        for hour, seconds in part.by_hour.items():
            _add(total.by_hour.setdefault(hour, {}), seconds)
        for whole, own in ((total.by_age, part.by_age), (total.by_week, part.by_week)):
            for name, seconds in own.items():
                _add(whole.setdefault(name, {}), seconds)
    return total


def _add(total: dict[str, float], part: Mapping[str, float]) -> None:
    for word, seconds in part.items():
        total[word] = total.get(word, 0.0) + seconds


def _read(payload: Mapping[str, object]) -> tuple[str, float]:
    """What the steps were, and which share of them an ideal step would save."""
    slowdown, waste, cause = payload.get("slowdown"), payload.get("waste"), payload.get("cause")
    times = float(slowdown) if isinstance(slowdown, (int, float)) else None
    word = what_steps_were(str(cause) if cause in CAUSES else "none", times, payload.get("trusted") is True)
    return word, max(0.0, float(waste)) if isinstance(waste, (int, float)) and word != NOT_JUDGED else 0.0


def _clip(span: Span, period: Span) -> Span:
    begin_s = max(span[0], period[0])
    return begin_s, max(begin_s, min(span[1], period[1]))


def _pieces(span: Span, begun_s: float) -> Iterable[Span]:
    """The span, cut at each full hour, and so at each week, and where the run comes to another age."""
    begin_s, end_s = span
    ages_s = [begun_s + limit_s for _, limit_s in AGES]
    while begin_s < end_s:
        hour_s = (math.floor(begin_s / _HOUR_S) + 1) * _HOUR_S
        next_s = min(end_s, hour_s, *(age_s for age_s in ages_s if age_s > begin_s))
        yield begin_s, next_s
        begin_s = next_s


def _week(moment: date) -> str:
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02d}"


def weeks_between(weeks: Iterable[str]) -> list[str]:
    """All weeks from the first to the last of these: one in which no job ran is a row as well.

    >>> weeks_between(["2027-W01", "2026-W52"])
    ['2026-W52', '2026-W53', '2027-W01']
    """
    known = sorted(weeks)
    found = known[:1]
    while found and found[-1] < known[-1]:
        year, _, week = found[-1].partition("-W")
        found.append(_week(date.fromisocalendar(int(year), int(week), 1) + timedelta(days=7)))
    return found
