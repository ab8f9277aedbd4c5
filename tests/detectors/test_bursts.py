"""Jobs that train in bursts, as with optimiser states in host memory: most samples meet GPUs at rest, some meet one at work."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.model.telemetry import Window
from minder.offline.worlds.trace import trace_detector

_METRICS = (
    "gpu_duty_cycle_ratio", "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_power_draw_watts",
    "nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second",
)  # fmt: skip


def _bursts(seed: int, share: float, rows: int = 120, machines: int = 8) -> Window:
    """Scrapes every 15 s. share: of samples that meet a machine at work, or at the edge of it."""
    rng = np.random.default_rng(seed)
    met_TM, part_TM = rng.random((rows, machines)) < share, rng.random((rows, machines))
    values_TMK = np.zeros((rows, machines, len(_METRICS)))
    values_TMK[..., 0] = np.where(met_TM, np.clip(2.0 * part_TM, 0.0, 1.0), 0.0)
    for k, full in ((1, 0.83), (2, 0.6), (4, 45e9), (5, 5e9)):
        values_TMK[..., k] = np.where(met_TM, full * np.clip(1.5 * part_TM - 0.2, 0.0, 1.0), 0.0)
    values_TMK[..., 3] = 122.0 + 2.0 * rng.random((rows, machines)) + np.where(met_TM, 220.0 * part_TM, 0.0)
    names = tuple(f"m{m}" for m in range(machines))
    return Window(1.75e9 + 15.0 * np.arange(rows), names, _METRICS, values_TMK, np.ones(met_TM.shape, dtype=bool))


@pytest.mark.parametrize(("seed", "share"), [
    (6, 0.1), (4, 0.2), (0, 0.3),
    *(pytest.param(*more, marks=pytest.mark.lab) for more in ((34, 0.1), (14, 0.2), (19, 0.2), (23, 0.2))),
])  # fmt: skip
def test_who_is_met_in_a_burst_of_work_is_not_accused(seed: int, share: float) -> None:
    said = trace_detector(DefaultDetector(), _bursts(seed, share))
    assert [item for item in said if item.tier != "watch"] == []
