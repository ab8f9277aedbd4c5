"""A posterior over {no machine, machine 1, ..., machine n}, bin by bin: a Shiryaev recursion, normalised over all of them.

    p_m  <- p_m (1 - dt/`fades_s`) + p_0 (dt/`between_s`) / n        a fault may begin, or end
    p_m  <- p_m exp(`gamma` min(dt, 15)/10 (L_m - `bias`))             what the bin says; L: trees.Margin
    p    <- p / (p_0 + sum p_m)

`gamma` tempers: rows are correlated for a minute or two, and ten bins are not ten witnesses. Legend: M machines, C candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Accumulation", "Posterior", "spread_margins"]

_LONGEST_S = 15.0
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Accumulation:
    """gamma: how much of a bin's log ratio counts for each 10 s. bias: taken off it first.

    between_s: mean time between two faults of a job. fades_s: mean time for which a fault that is not attended to lasts.
    """

    gamma: float = 0.4
    bias: float = 0.0
    between_s: float = 7200.0
    fades_s: float = 900.0

    def at_rest(self, machines: int) -> float:
        """A machine's posterior where no bin says anything: as many faults begin as end."""
        odds = self.fades_s / self.between_s
        return odds / (1.0 + odds) / max(machines, 1)


class Posterior:
    """p_M of the machines, by name; what is left to 1 is that no machine is at fault."""

    def __init__(self, accumulation: Accumulation | None = None) -> None:
        self.accumulation = accumulation or Accumulation()
        self.machines: tuple[str, ...] = ()
        self.p_M = np.zeros(0)

    def follow(self, machines: Sequence[str]) -> None:
        """These machines from now on; what a machine that left had goes to "no machine"."""
        if tuple(machines) == self.machines:
            return
        old = dict(zip(self.machines, self.p_M.tolist(), strict=True))
        self.machines = tuple(machines)
        self.p_M = np.array([old.get(name, 0.0) for name in machines])

    def update(self, dt_s: float, margin_M: np.ndarray) -> np.ndarray:
        """The posterior after a bin of dt_s seconds whose log likelihood ratios are margin_M. Returns p_M."""
        rules, count = self.accumulation, max(len(self.p_M), 1)
        none = max(1.0 - float(self.p_M.sum()), _TINY)
        begins = min(dt_s / rules.between_s, 0.5)
        prior_M = self.p_M * (1.0 - min(dt_s / rules.fades_s, 0.5)) + none * begins / count
        none = max(1.0 - float(prior_M.sum()), _TINY)
        factor_M = np.exp(rules.gamma * min(dt_s, _LONGEST_S) / 10.0 * (margin_M - rules.bias))
        joint_M = prior_M * factor_M
        self.p_M = joint_M / (none + joint_M.sum())
        return self.p_M

    def state(self) -> dict[str, Any]:
        return dict(zip(self.machines, self.p_M.tolist(), strict=True))

    def load(self, state: Mapping[str, Any]) -> None:
        self.machines, self.p_M = tuple(state), np.array(list(state.values()), dtype=np.float64)


def spread_margins(machines: int, candidates_C: np.ndarray, margin_C: np.ndarray) -> np.ndarray:
    """margin_M of all machines: one that is too quiet to be a candidate is no more suspect than the least suspect candidate."""
    margin_M = np.full(machines, float(margin_C.min()) if len(margin_C) else 0.0)
    margin_M[candidates_C] = margin_C
    return margin_M
