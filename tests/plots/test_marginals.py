"""Real and simulated quantiles side by side: the busy part, the distance, the figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minder.offline.plots.marginals import LEVELS, Marginal, busy_part, draw_marginals, farthest


def marginal(values: np.ndarray, metric: str = "power") -> Marginal:
    return Marginal(metric, "W", np.quantile(values, LEVELS))


def test_the_busy_part_is_what_the_busy_read() -> None:
    rng = np.random.default_rng(0)
    idle, busy = rng.normal(60.0, 3.0, 60_000), rng.normal(350.0, 30.0, 40_000)
    found = Marginal("power", "W", busy_part(np.quantile(np.concatenate([idle, busy]), LEVELS), 0.6))
    for level in (0.1, 0.5, 0.9):
        assert found.at(level) == pytest.approx(float(np.quantile(busy, level)), rel=0.01)


@pytest.mark.parametrize("idle", [-0.1, 1.0])
def test_a_share_that_leaves_nothing_is_refused(idle: float) -> None:
    with pytest.raises(ValueError, match="share"):
        busy_part(LEVELS, idle)


def test_the_distance_is_kolmogorovs_and_smirnovs() -> None:
    from scipy import stats

    rng = np.random.default_rng(1)
    one, other = rng.normal(0.0, 1.0, 20_000), rng.normal(0.4, 1.5, 20_000)
    assert farthest(marginal(one), marginal(other)) == pytest.approx(stats.ks_2samp(one, other).statistic, abs=0.01)
    assert farthest(marginal(one), marginal(one)) == 0.0
    assert farthest(marginal(one), marginal(one + 100.0)) == pytest.approx(1.0)


def test_a_side_may_lack_a_metric(tmp_path: Path) -> None:
    power, heat = marginal(LEVELS), marginal(LEVELS, "temperature")
    draw_marginals({"real": [power], "simulated, plain": [power, heat]}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
