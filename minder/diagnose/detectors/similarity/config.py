"""What the published system fixes, and what it leaves open (Minder, NSDI'25; the sections are the paper's)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PUBLISHED_METRICS", "Distance", "SimilarityConfig", "Vectors"]

Vectors = Literal["embedding", "reconstruction", "raw"]
Distance = Literal["euclidean", "manhattan", "chebyshev"]

# The seven metrics that the published system uses, in the order that its decision tree gave (section 5).
PUBLISHED_METRICS = (
    "pfc_tx_packets_per_second",
    "cpu_usage_ratio",
    "gpu_duty_cycle_ratio",
    "gpu_power_draw_watts",
    "gpu_graphics_activity_ratio",
    "gpu_tensor_activity_ratio",
    "nvlink_bandwidth_bytes_per_second",
)


@dataclass(frozen=True, slots=True)
class SimilarityConfig:
    """Published: width_rows 8, stride 1, continuity_s 240, Euclidean distance, one candidate per window.

    Not published, and ours: the similarity threshold, `threshold_share` of the largest normal score that a single outlier can have among
    n machines, sqrt(n - 1), but at most `threshold_most`; `top_k` candidates per window; `least_spread`, the mean scaled distance
    below which all machines count as equal; `refit_s`, how often a scorer that is fitted to each window looks again.
    metrics: which, in order of priority; empty: those of the published seven that the site has, or all that it has if these are fewer
    than three.
    limits: (low, high) of a metric in its base unit, instead of the ones that were learned with the weights.
    """

    width_rows: int = 8
    continuity_s: float = 240.0
    threshold_share: float = 0.85
    threshold_most: float = 6.0
    top_k: int = 1
    least_machines: int = 3
    least_spread: float = 1e-4
    refit_s: float = 0.0
    distance: Distance = "euclidean"
    metrics: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def needed(self, machines: float) -> float:
        """The similarity threshold among so many machines.

        >>> round(SimilarityConfig(threshold_share=0.6, threshold_most=6.0).needed(5), 2)
        1.2
        """
        return float(min(self.threshold_most, self.threshold_share * max(machines - 1.0, 0.0) ** 0.5))
