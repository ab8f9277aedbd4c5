"""Measured beside simulated: the numbers by which they are compared, and the figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minder.offline.plots.realism import Series, describe, draw_realism


def test_describe_tells_level_noise_memory_likeness_and_spread() -> None:
    rng = np.random.default_rng(0)
    wave_T = np.sin(np.arange(400) / 20.0)
    values_TM = 100.0 * np.array([0.9, 1.0, 1.1]) * (1.0 + 0.1 * wave_T[:, None]) + rng.normal(0.0, 0.5, (400, 3))
    found = describe(values_TM)
    assert found["level"] == pytest.approx(100.0, rel=0.02)
    assert found["noise"] == pytest.approx(0.1 / np.sqrt(2.0), rel=0.1)
    assert found["memory"] > 0.95 and found["alike"] > 0.95
    assert found["apart"] == pytest.approx(np.std([0.9, 1.0, 1.1]), rel=0.05)


def test_describe_of_a_constant_knows_no_correlation() -> None:
    found = describe(np.ones((50, 2)))
    assert found["level"] == 1.0 and found["noise"] == 0.0 and np.isnan(found["alike"])


def test_a_side_may_lack_a_metric(tmp_path: Path) -> None:
    time_T = np.arange(10.0)
    one, other = (Series(name, time_T, np.ones((10, 2))) for name in ("gpu_power_draw_watts", "gpu_temperature_celsius"))
    draw_realism({"real": [one], "simulated": [one, other]}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
