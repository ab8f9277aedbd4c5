"""A posterior over {no machine, machine 1, ..., machine n, several at once}, bin by bin: a Shiryaev recursion.

    odds_m <- (odds_m (1 - dt/`fades_s`) + (dt/`between_s`)/n) / (1 + (dt/`fades_s`) sum odds)     a fault may begin, or end
    odds_m <- odds_m exp(`gamma` min(dt, 15)/10 (L_m - `bias`))       what the bin says; L: trees.Margin
    p_m    <- sum over the sets that m is in, of their weight times the odds of their members, over the sum of all

`gamma` tempers: rows are correlated for a minute or two, and ten bins are not ten witnesses. Sets (`sets.py`) are why two machines of a
pair do not take the mass from each other. Legend: M machines, C candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.diagnose.detectors.learned.sets import share_of_sets

__all__ = ["Accumulation", "Posterior", "spread_margins"]

_LONGEST_S = 15.0
_MOST = 1e6
_LEVEL_S = 40.0
_QUIET = -4.0  # log likelihood ratio of a machine that is too quiet to be looked at: four in five healthy ones have less


@dataclass(frozen=True, slots=True)
class Accumulation:
    """gamma: how much of a bin's log ratio counts for each 10 s. bias: taken off it first.

    between_s: mean time between two faults of a job. fades_s: mean time for which a fault that is not attended to lasts.
    several: of a hundred faults of one machine, how many of two, and how many of three or more, there are (each).
    """

    gamma: float = 0.4
    bias: float = 0.0
    between_s: float = 7200.0
    fades_s: float = 900.0
    several: float = 10.0

    @property
    def odds(self) -> float:
        """Of a fault against none, without data."""
        return self.fades_s / self.between_s


class Posterior:
    """p_M of the machines, by name; of machines that are at fault one by one, what is left to 1 is that none is.

    odds_M: against no machine. level_M: mean log likelihood ratio of a bin over about 40 s. The odds of a long and weak deviation grow
    like those of a short and strong one; the level is what distinguishes them.
    """

    def __init__(self, accumulation: Accumulation | None = None) -> None:
        self.accumulation = accumulation or Accumulation()
        self.machines: tuple[str, ...] = ()
        self.p_M = np.zeros(0)
        self.odds_M = np.zeros(0)
        self.level_M = np.zeros(0)
        self._place: dict[str, int] = {}

    def follow(self, machines: Sequence[str]) -> None:
        """These machines from now on; what a machine that left had goes to "no machine"."""
        if machines is self.machines or tuple(machines) == self.machines:
            return
        old = dict(zip(self.machines, zip(self.odds_M.tolist(), self.level_M.tolist(), strict=True), strict=True))
        self.machines = tuple(machines)
        self._place = {name: m for m, name in enumerate(self.machines)}
        self.odds_M = np.array([old.get(name, (0.0, _QUIET))[0] for name in machines])
        self.level_M = np.array([old.get(name, (0.0, _QUIET))[1] for name in machines])
        self.p_M = share_of_sets(self.odds_M, self.accumulation.odds, self.accumulation.several)

    def update(self, dt_s: float, margin_M: np.ndarray) -> np.ndarray:
        """The posterior after a bin of dt_s seconds whose log likelihood ratios are margin_M. Returns p_M."""
        rules, count = self.accumulation, max(len(self.odds_M), 1)
        self.level_M = self.level_M + (1.0 - np.exp(-dt_s / _LEVEL_S)) * (margin_M - self.level_M)
        begins, ends = min(dt_s / rules.between_s, 0.5), min(dt_s / rules.fades_s, 0.5)
        prior_M = (self.odds_M * (1.0 - ends) + begins / count) / (1.0 + ends * float(self.odds_M.sum()))
        self.odds_M = np.minimum(prior_M * np.exp(rules.gamma * min(dt_s, _LONGEST_S) / 10.0 * (margin_M - rules.bias)), _MOST)
        self.p_M = share_of_sets(self.odds_M, rules.odds, rules.several)
        return self.p_M

    def of(self, machine: str) -> float | None:
        """The posterior of one machine; None where it is not known."""
        place = self._place.get(machine)
        return None if place is None else float(self.p_M[place])

    def level(self, machine: str) -> float | None:
        """Its level; None where the machine is not known."""
        place = self._place.get(machine)
        return None if place is None else float(self.level_M[place])

    def state(self) -> dict[str, Any]:
        return {"machines": list(self.machines), "odds": self.odds_M.tolist(), "level": self.level_M.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.machines, self.odds_M, self.level_M = (), np.zeros(0), np.zeros(0)
        self.follow(tuple(state["machines"]))
        self.odds_M, self.level_M = (np.array(state[name], dtype=np.float64) for name in ("odds", "level"))
        self.p_M = share_of_sets(self.odds_M, self.accumulation.odds, self.accumulation.several)


def spread_margins(machines: int, candidates_C: np.ndarray, margin_C: np.ndarray) -> np.ndarray:
    """margin_M of all machines: one that is too quiet to be a candidate is no more suspect than the least suspect candidate."""
    margin_M = np.full(machines, min(float(margin_C.min()), _QUIET) if len(margin_C) else 0.0)
    margin_M[candidates_C] = margin_C
    return margin_M
