"""A figure that shows measured and simulated series side by side, and the few numbers by which they are compared.

Legend: T seconds, M machines or devices.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Series", "describe", "draw_realism"]


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of peers over time, in the metric's unit."""

    metric: str
    time_T: np.ndarray
    values_TM: np.ndarray


def describe(values_TM: np.ndarray) -> dict[str, float]:
    """Level (mean over all), noise (standard deviation over time, relative), memory (correlation with the second before), alike (median
    correlation of peers), apart (standard deviation of the peers' means, relative). NaN where a series is constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean_M = np.nanmean(values_TM, axis=0)
        level = float(np.nanmean(mean_M))
        noise = float(np.nanmedian(np.nanstd(values_TM, axis=0) / mean_M))
        memory = float(np.nanmedian([_correlation(values_TM[1:, m], values_TM[:-1, m]) for m in range(values_TM.shape[1])]))
        pairs = [_correlation(values_TM[:, m], values_TM[:, n]) for m in range(values_TM.shape[1]) for n in range(m)]
        found = {
            "level": level,
            "noise": noise,
            "memory": memory,
            "alike": float(np.nanmedian(pairs)),
            "apart": float(np.std(mean_M) / level),
        }
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def _correlation(one_T: np.ndarray, other_T: np.ndarray) -> float:
    both = np.isfinite(one_T) & np.isfinite(other_T)
    if both.sum() < 3 or np.std(one_T[both]) == 0 or np.std(other_T[both]) == 0:
        return float("nan")
    return float(np.corrcoef(one_T[both], other_T[both])[0, 1])


def draw_realism(sides: Mapping[str, Sequence[Series]], path: Path) -> None:
    """One column per side, one row per metric, every peer a line; a row shares its vertical axis only within a side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    metrics = list(dict.fromkeys(item.metric for series in sides.values() for item in series))
    figure, axes = pyplot.subplots(len(metrics), len(sides), figsize=(4.2 * len(sides), 1.6 * len(metrics)), squeeze=False, sharex=True)
    for column, (side, series) in enumerate(sides.items()):
        by_name = {item.metric: item for item in series}
        axes[0, column].set_title(side)
        for row, metric in enumerate(metrics):
            panel = axes[row, column]
            if metric in by_name:
                item = by_name[metric]
                panel.plot(item.time_T, item.values_TM, linewidth=0.6)
            if column == 0:
                panel.set_ylabel(metric.removeprefix("gpu_").replace("_bytes_per_second", ", B/s").replace("_", " "), fontsize=7)
            panel.tick_params(labelsize=6)
        axes[-1, column].set_xlabel("seconds", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    pyplot.close(figure)
