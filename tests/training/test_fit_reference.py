from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from minder.diagnose.detectors.similarity.weights import Weights

if importlib.util.find_spec("torch") is None:  # not loaded: every worker collects this file, one of them runs it
    pytest.skip("needs the extra torch", allow_module_level=True)


def healthy_windows(count: int = 400) -> np.ndarray:
    """(2, N, 8, 1): a level that differs from window to window, with a little noise; the second metric is the first one's mirror."""
    rng = np.random.default_rng(0)
    windows_NW = rng.uniform(0.2, 0.8, (count, 1)) + rng.normal(0, 0.01, (count, 8))
    return np.stack([windows_NW, 1.0 - windows_NW])[..., None].astype(np.float32)


@pytest.mark.lab
def test_training_learns_to_reconstruct_and_says_how_well() -> None:
    from minder.diagnose.detectors.similarity import network
    from minder.offline.training.fit_reference import FitConfig, fit_reference

    windows_LNWF = healthy_windows()
    fit = fit_reference(windows_LNWF, FitConfig(steps=120, batch=64, seed=3))
    variance = float(windows_LNWF.var())
    assert (fit.error_L < 0.5 * variance).all()
    assert fit.curve[-1][1] < fit.curve[0][1]
    rows_LFSM = np.ascontiguousarray(windows_LNWF[:, :50, :, 0].transpose(0, 2, 1)[:, None])
    smooth_LTMW = network.reconstruct(fit.arrays, rows_LFSM, 8)
    found = float(((smooth_LTMW[:, 0] - windows_LNWF[:, :50, :, 0]) ** 2).mean())
    assert found == pytest.approx(float(fit.error_L.mean()), rel=0.3)


@pytest.mark.lab
def test_the_same_seed_gives_the_same_weights_and_they_fit_the_detector() -> None:
    from minder.offline.training.fit_reference import FitConfig, fit_reference

    first, second = (fit_reference(healthy_windows(100), FitConfig(steps=3, batch=16, seed=5)) for _ in range(2))
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[name])
    Weights((("a",), ("b",)), ("a", "b"), {"a": (0.0, 1.0), "b": (0.0, 1.0)}, first.arrays)


def test_limits_are_the_metrics_own() -> None:
    from minder.offline.training.fit_reference import find_limits

    values_NK = np.stack([np.linspace(0, 0.5, 1001), np.append(np.linspace(0, 400.0, 1000), np.nan)], axis=1)
    limits = find_limits(values_NK, ("gpu_duty_cycle_ratio", "gpu_power_draw_watts"), frozenset({"gpu_duty_cycle_ratio"}))
    assert limits["gpu_duty_cycle_ratio"] == (0.0, 1.0)
    assert limits["gpu_power_draw_watts"][1] == pytest.approx(500.0, rel=0.01)
