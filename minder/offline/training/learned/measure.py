"""Figures of a validation: tables, paired gains, exact bounds, calibration, and whether a successor has earned its place (pure).

Legend: N accusations, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.offline.evaluation.intervals import Figure, poisson_lower, poisson_upper
from minder.offline.evaluation.scoring import LIMIT_S, summarise
from minder.offline.training.learned.trial import WAYS
from minder.offline.training.learned.validate import Row
from minder.simulate.worlds.catalogue import TUNED_ON

__all__ = ["Gain", "Line", "Verdict", "as_drawn", "earned", "lines", "measure_gain", "reliability_slope", "said_and_right", "shown_only"]

_DAY_S = 86_400.0
_RESAMPLES = 2000
_FEWEST = 300  # first accusations that a calibration is judged on


@dataclass(frozen=True, slots=True)
class Line:
    """One way to decide, on some recordings.

    delay_s: mean, a miss or a wrong name as 420 s. grey_f1: of recordings with a grey fault and of healthy ones. false_per_day: of healthy
    job time, false_low to false_high exact (95 %).
    """

    way: str
    recordings: int
    f1: float
    precision: float
    recall: float
    delay_s: float
    grey_f1: float
    false_count: int
    healthy_days: float
    false_low: float
    false_high: float
    found: int
    wrong: int
    missed: int
    quiet: int

    @property
    def false_per_day(self) -> float:
        return self.false_count / self.healthy_days if self.healthy_days else math.nan


def lines(rows: Sequence[Row], ways: Sequence[str] = WAYS) -> list[Line]:
    return [_line(rows, way) for way in ways]


def _line(rows: Sequence[Row], way: str) -> Line:
    outcomes = [row.outcomes[way] for row in rows]
    summary = summarise([item.judged for item in outcomes])
    grey = summarise([row.outcomes[way].judged for row in rows if row.recording.grey or row.recording.fault is None])
    delays = [item.delay_s for item in outcomes if item.delay_s == item.delay_s]
    count, days = sum(item.false_count for item in outcomes), sum(item.healthy_s for item in outcomes) / _DAY_S
    low = poisson_lower(count, 0.975)
    bounds = (low / days, poisson_upper(count, 0.975) / days) if days else (math.nan, math.nan)
    delay_s = float(np.mean(delays)) if delays else math.nan
    outcome = (summary.found, summary.wrong, summary.missed, summary.quiet)
    return Line(way, len(rows), summary.f1, summary.precision, summary.recall, delay_s, grey.f1, count, days, *bounds, *outcome)


def as_drawn(rows: Sequence[Row]) -> list[Row]:
    """The seeds that were asked for, faults that no metric shows among them."""
    return [row for row in rows if not row.recording.is_redrawn]


def shown_only(rows: Sequence[Row]) -> list[Row]:
    """Without recordings whose fault no metric shows, and with what these were redrawn as."""
    return [row for row in rows if not row.recording.is_hidden]


@dataclass(frozen=True, slots=True)
class Gain:
    """Of one way over another, paired: the mean over families. Intervals: families drawn anew, then their recordings."""

    f1: Figure
    delay_s: Figure
    false_per_day: Figure


def measure_gain(rows: Sequence[Row], old: str = "default", new: str = "pool", resamples: int = _RESAMPLES, seed: int = 0) -> Gain:
    families = sorted({row.recording.family for row in rows})
    tables = [np.array([_counts(row, old, new) for row in rows if row.recording.family == family]) for family in families]
    rng = np.random.default_rng(seed)
    draws = np.array([_difference([_again(tables[i], rng) for i in rng.integers(len(tables), size=len(tables))]) for _ in range(resamples)])
    value = _difference(tables)
    return Gain(*(Figure(float(value[i]), *np.nanpercentile(draws[:, i], [2.5, 97.5]).tolist()) for i in range(3)))


def _again(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(table[rng.integers(len(table), size=len(table))])


def _counts(row: Row, old: str, new: str) -> list[float]:
    found: list[float] = []
    for way in (old, new):
        item = row.outcomes[way]
        outcome = item.judged.outcome
        delay_s = item.delay_s if item.delay_s == item.delay_s else 0.0
        found += [outcome == "found", outcome in ("found", "wrong"), delay_s, item.false_count]
    return [*found, row.recording.fault is not None, row.outcomes[new].healthy_s / _DAY_S]


def _difference(tables: Sequence[np.ndarray]) -> np.ndarray:
    """(F1, delay in seconds, false accusations a day): new less old, each the mean over families."""
    sums = np.array([table.sum(axis=0) for table in tables], dtype=np.float64)
    faults, days = sums[:, 8], sums[:, 9]
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = [np.nan_to_num(2.0 * sums[:, k] / (sums[:, k + 1] + faults)) for k in (0, 4)]
        delay = [sums[:, k] / faults for k in (2, 6)]
    false = [sums[:, k].sum() / max(days.sum(), 1e-9) for k in (3, 7)]
    return np.array([(f1[1] - f1[0]).mean(), np.nanmean(delay[1] - delay[0]), false[1] - false[0]])


def said_and_right(rows: Sequence[Row], way: str) -> tuple[np.ndarray, np.ndarray]:
    """(said, right) of the first accusation of each recording that has one; what is said of a group's was fitted on the other groups."""
    found = [(row.outcomes[way].first_p, row.outcomes[way].first_right) for row in rows if not math.isnan(row.outcomes[way].first_p)]
    return np.array([p for p, _ in found], dtype=np.float64), np.array([right for _, right in found], dtype=bool)


@dataclass(frozen=True, slots=True)
class Verdict:
    """earned: whether the pool may become the default; why: one line for each condition, met or not."""

    earned: bool
    why: tuple[str, ...]


def earned(rows: Sequence[Row], said_N: np.ndarray, right_N: np.ndarray, resamples: int = _RESAMPLES) -> Verdict:
    """The rule of a successor. rows: by models that saw nothing of their groups; said_N, right_N: of first accusations, calibrated."""
    unseen = [row for row in rows if row.recording.family not in TUNED_ON]
    tuned = [row for row in rows if row.recording.family in TUNED_ON]
    checks: list[tuple[bool, str]] = []
    if unseen:
        gain = measure_gain(unseen, resamples=resamples)
        checks.append((gain.f1.low > 0.0, f"unseen families: F1 {_interval(gain.f1)}, the low end must be above 0"))
        checks.append((gain.false_per_day.value <= 0.0, f"unseen families: false accusations a job-day {_interval(gain.false_per_day)}"))
        checks.append((gain.delay_s.value <= 0.0, f"unseen families: mean delay {_interval(gain.delay_s)} s (a miss is {LIMIT_S:.0f} s)"))
    else:
        checks.append((False, "no family that the default detector was not tuned on was judged"))
    if tuned:
        gain = measure_gain(tuned, resamples=resamples)
        checks.append((gain.f1.low > -0.03, f"families it was tuned on: F1 {_interval(gain.f1)}, the low end must be above -0.03"))
    else:
        checks.append((False, "no family that the default detector was tuned on was judged"))
    checks.append(_calibrated(said_N, right_N))
    return Verdict(all(met for met, _ in checks), tuple(f"{'met' if met else 'NOT met'}: {text}" for met, text in checks))


def _calibrated(said_N: np.ndarray, right_N: np.ndarray) -> tuple[bool, str]:
    if not len(said_N):
        return False, "calibration: no accusation"
    gap = float(said_N.mean() - right_N.mean())
    brier, constant = float(((said_N - right_N) ** 2).mean()), float(right_N.mean() * (1.0 - right_N.mean()))
    slope = reliability_slope(said_N, right_N)
    scores = f"said minus right {gap:+.3f}, Brier {brier:.3f} (constant {constant:.3f}), slope {slope:.2f} (0.7 to 1.3)"
    text = f"calibration: {len(said_N)} first accusations ({_FEWEST} needed), {scores}"
    return len(said_N) >= _FEWEST and abs(gap) <= 0.05 and brier < constant and 0.7 <= slope <= 1.3, text


def reliability_slope(said_N: np.ndarray, right_N: np.ndarray) -> float:
    """The slope of a logistic regression of right on the log odds that were said: 1 where what is said differs as much as what is right.

    NaN where all are right or all are wrong.
    """
    if right_N.all() or not right_N.any():
        return math.nan
    share_N = np.clip(said_N, 1e-6, 1.0 - 1e-6)
    design_N2, weights = np.stack([np.log(share_N / (1.0 - share_N)), np.ones(len(share_N))], axis=1), np.array([1.0, 0.0])
    for _ in range(50):
        q_N = 1.0 / (1.0 + np.exp(-np.clip(design_N2 @ weights, -30.0, 30.0)))
        hessian = design_N2.T @ (design_N2 * (q_N * (1.0 - q_N))[:, None]) + 1e-6 * np.eye(2)
        weights = weights + np.clip(np.linalg.solve(hessian, design_N2.T @ (right_N - q_N)), -1.0, 1.0)
    return float(weights[0])


def _interval(figure: Figure) -> str:
    return f"{figure.value:+.3f} [{figure.low:+.3f}, {figure.high:+.3f}]"
