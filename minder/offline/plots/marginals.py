"""How often a metric reads what, in a real fleet and in simulated jobs: quantiles side by side, how far apart, and a figure.

Legend: Q levels of quantiles, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["LEVELS", "Marginal", "busy_part", "draw_marginals", "farthest"]

LEVELS = np.linspace(0.0, 1.0, 1000)


@dataclass(frozen=True, slots=True)
class Marginal:
    """The quantiles of one metric at LEVELS, in `unit`."""

    metric: str
    unit: str
    values_Q: np.ndarray

    def at(self, level: float) -> float:
        return float(np.interp(level, LEVELS, self.values_Q))


def busy_part(values_Q: np.ndarray, idle: float) -> np.ndarray:
    """Quantiles of what is left when the lowest share `idle` of the samples is taken away: what busy devices read, of a metric that
    is higher on them than on idle ones.

    >>> busy_part(np.linspace(0.0, 100.0, 1000), 0.5)[[0, -1]].round().tolist()
    [50.0, 100.0]
    """
    if not 0.0 <= idle < 1.0:
        raise ValueError(f"idle is a share from 0 to below 1, not {idle}")
    return np.asarray(np.interp(idle + (1.0 - idle) * LEVELS, LEVELS, values_Q))


def farthest(one: Marginal, other: Marginal) -> float:
    """Kolmogorov and Smirnov's distance: by how much the two distribution functions differ at most. 0 alike, 1 without any overlap.

    >>> whole = Marginal("m", "1", LEVELS)
    >>> round(farthest(whole, Marginal("m", "1", LEVELS + 0.25)), 2)
    0.25
    """
    at = np.concatenate([one.values_Q, other.values_Q])
    below_one, below_other = (np.searchsorted(side.values_Q, at, side="right") / len(LEVELS) for side in (one, other))
    return float(np.abs(below_one - below_other).max())


def draw_marginals(sides: Mapping[str, Sequence[Marginal]], path: Path) -> None:
    """One panel per metric, one curve per side: the distribution functions. A side may lack a metric."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    metrics = list(dict.fromkeys(item.metric for found in sides.values() for item in found))
    rows = -(-len(metrics) // 3)
    figure, axes = pyplot.subplots(rows, 3, figsize=(11.0, 2.6 * rows), squeeze=False, sharey=True)
    for place, panel in enumerate(axes.flat):
        panel.set_visible(place < len(metrics))
        for number, (side, found) in enumerate(sides.items() if place < len(metrics) else ()):
            for item in found:
                if item.metric == metrics[place]:
                    style = "-" if side.startswith("simulated") else "--"
                    panel.plot(item.values_Q, 100.0 * LEVELS, linewidth=1.4, linestyle=style, color=f"C{number}", label=side)
                    panel.set_xlabel(f"{item.metric}, {item.unit}", fontsize=8)
        panel.tick_params(labelsize=7)
    for row in axes:
        row[0].set_ylabel("samples below, %", fontsize=8)
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
