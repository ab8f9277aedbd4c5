"""From posteriors to names: what an accusation is worth, and which ones are heard."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Calibration", "Decision", "Heard", "prior_log_odds"]

_MOST_LEVEL = 8.0
_ENDS_S = 120.0  # an accusation that has not been repeated for so long has ended


@dataclass(frozen=True, slots=True)
class Decision:
    """speak_p: the learned part accuses a machine whose posterior is above it. least: an accusation, its own or the default detector's, is
    heard from this share on (`Calibration.share`). By expected cost it is c / (1 + c), where a false accusation costs c missed faults.
    speak_s: for how long its own must have been worth that much."""

    speak_p: float = 0.5
    least: float = 0.7
    speak_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """P(an accusation is right) = 1 / (1 + exp(-x)), a logarithmic opinion pool: x = intercept + level * (level of the machine's bins)
    + default * (the default detector accuses it) + sure * (and would evict it) + learned * (its posterior is above `speak_p`).

    prior: the share of recordings with a fault that it was fitted under.
    """

    intercept: float = -1.5
    level: float = 0.5
    default: float = 1.0
    sure: float = 1.0
    learned: float = 0.5
    prior: float = 0.5

    def share(self, level: float, learned: bool, default: bool, sure: bool = False, prior: float | None = None) -> float:
        """The share of such accusations that is right, under `prior` instead of the one it was fitted under.

        >>> surest = Calibration().share(5.0, True, True)
        >>> Calibration().share(5.0, True, True, prior=0.01) < surest < 1.0
        True
        """
        x = self.intercept + self.level * bounded(level) + self.learned * learned + self.default * default + self.sure * sure
        moved = 0.0 if prior is None else prior_log_odds(prior) - prior_log_odds(self.prior)
        return 1.0 / (1.0 + math.exp(-min(max(x + moved, -30.0), 30.0)))


def bounded(level: float) -> float:
    """A level beyond which nothing more is learned from it."""
    return min(max(level, -_MOST_LEVEL), _MOST_LEVEL)


def prior_log_odds(prior: float) -> float:
    return math.log(prior) - math.log(1.0 - prior)


class Heard:
    """Accusations that have been worth enough for long enough. Once heard, an accusation is heard until it ends."""

    def __init__(self, least: float, speak_s: float = 0.0) -> None:
        self._least, self._speak_s = least, speak_s
        self._since: dict[str, tuple[float, float]] = {}  # machine to when its accusation became worth enough, and was last
        self._heard: dict[str, float] = {}  # machine to when it was last heard

    def stood_s(self, now_s: float, machine: str, share: float) -> float | None:
        """For how long an accusation of this moment has been worth enough; None where it is not heard yet."""
        heard = now_s - self._heard.get(machine, -math.inf) <= _ENDS_S
        if share < self._least and not heard:
            self._since.pop(machine, None)
            return None
        first_s, last_s = self._since.get(machine, (now_s, now_s))
        if now_s - last_s > _ENDS_S:
            first_s = now_s  # another accusation
        self._since[machine] = (first_s, now_s)
        if not heard and now_s - first_s < self._speak_s:
            return None
        self._heard[machine] = now_s
        return now_s - first_s

    def forget(self, now_s: float) -> None:
        """What has ended."""
        self._since = {name: times for name, times in self._since.items() if now_s - times[1] <= _ENDS_S}
        self._heard = {name: at_s for name, at_s in self._heard.items() if now_s - at_s <= _ENDS_S}

    def state(self) -> dict[str, Any]:
        return {"since": {name: list(times) for name, times in self._since.items()}, "heard": dict(self._heard)}

    def load(self, state: Mapping[str, Any]) -> None:
        self._since = {name: (float(first), float(last)) for name, (first, last) in state["since"].items()}
        self._heard = {name: float(at) for name, at in state["heard"].items()}
