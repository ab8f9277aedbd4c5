"""The live unit check: a percentage where a ratio is due must not reach a detector."""

from __future__ import annotations

from minder.model.metrics import Metric, find_metric

__all__ = ["UnitCheck"]

_ROUNDING = 1e-6  # a ratio of 1 in 32 bits may read as a little more
_SHARE = 0.01  # more of a metric's values outside its range, and the metric is dropped
_ENOUGH = 100  # values, before a share means anything
_SURE = 5  # so many values outside without one inside need no share


class UnitCheck:
    """Counts each metric's values outside its catalogue range; a value outside is a gap, too many drop the metric for good."""

    def __init__(self) -> None:
        self._seen: dict[str, list[int]] = {}  # metric -> [all, outside]
        self._dropped: set[str] = set()
        self._notes: list[str] = []

    def accepts(self, name: str, value: float) -> bool:
        """False for a value outside the range, and for every value of a dropped metric."""
        metric = find_metric(name)
        if metric is None:
            return True
        counts = self._seen.get(name)
        if counts is None:
            counts = self._seen[name] = [0, 0]
        counts[0] += 1
        if not (metric.low <= value <= metric.high or _nearly(metric, value)):
            counts[1] += 1
            self._judge(name, counts, value)
            return False
        return name not in self._dropped

    def take_notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    def _judge(self, name: str, counts: list[int], value: float) -> None:
        total, outside = counts
        wrong = outside > _SHARE * total if total >= _ENOUGH else outside == total and outside >= _SURE
        if name in self._dropped or not wrong:
            return
        self._dropped.add(name)
        metric = find_metric(name)
        assert metric is not None
        self._notes.append(
            f"metric {name} dropped: {outside} of {total} values lie outside {metric.low:g}..{metric.high:g} {metric.unit}, "
            f"the last was {value:g}: mend the mapping's unit"
        )


def _nearly(metric: Metric, value: float) -> bool:
    """Outside by no more than rounding."""
    below, above = _ROUNDING * max(1.0, abs(metric.low)), _ROUNDING * max(1.0, abs(metric.high))
    return metric.low - below <= value <= metric.high + above
