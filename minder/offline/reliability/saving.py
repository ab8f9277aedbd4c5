"""How often a job should save: at each k-th step, by what a save costs and how often a failure takes the steps since (pure)."""

from __future__ import annotations

import math

from minder.offline.reliability.mix import IncidentRate, Published

__all__ = ["best_save_every", "save_every", "saving_loss"]

_DAY_S = 86_400.0
_MOST = 1000  # steps; where hardly anything fails


def save_every(published: Published, rate: IncidentRate, machines: int) -> int:
    """The site's own, or the best."""
    given = published.times["save_every"].seconds
    return best_save_every(published, rate, machines) if given is None else max(1, round(given))


def best_save_every(published: Published, rate: IncidentRate, machines: int) -> int:
    """The k that loses least: Young's formula (Communications of the ACM, 1974), k = sqrt(2 share / (failures a second x step)), of whose
    neighbours the better one is taken. A restart that a person orders comes after a save, and does not count. Where no failure is known of,
    each step is saved: that nothing fails is not known either."""
    per_step = rate.per_machine_day * machines / _DAY_S * published.assumed["step_s"]
    share = published.times["save_share"].seconds or 0.0
    if per_step == 0.0:
        return 1
    low = min(_MOST, max(1, math.floor(math.sqrt(2.0 * share / per_step))))
    return min((low, low + 1), key=lambda every: saving_loss(published, rate, machines, every))


def saving_loss(published: Published, rate: IncidentRate, machines: int, every: int) -> float:
    """Share of the time that saving at each k-th step costs: the saves, and half of the steps between two of them for each failure."""
    per_step = rate.per_machine_day * machines / _DAY_S * published.assumed["step_s"]
    return (published.times["save_share"].seconds or 0.0) / every + per_step * every / 2.0
