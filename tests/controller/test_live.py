from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minder.act.controller.reporting.live import LiveWindows, _band
from minder.model.evidence import Scores
from minder.model.telemetry import Sample, Window

METRICS = ("gpu_power_draw_watts", "cpu_usage_ratio")


class OneWindow:
    """Windows as a job of so many machines has them; machine 1 draws little power."""

    def __init__(self, machines: int) -> None:
        self.machines = tuple(f"m{index}" for index in range(machines))

    def push(self, samples: Sequence[Sample]) -> None:
        pass

    def notes(self) -> Sequence[str]:
        return ("a note",)

    def pop(self, now_s: float) -> Window | None:
        values = np.full((2, len(self.machines), 2), 500.0)
        values[:, 1, 0] = 120.0
        values[:, :, 1] = np.nan
        present = np.ones(values.shape[:2], dtype=bool)
        return Window(np.array([now_s - 1.0, now_s]), self.machines, METRICS, values, present)


def look(path: Path, machines: int, share: float, ticks: int = 12) -> dict[str, object]:
    inner = OneWindow(machines)
    score_M = np.zeros(machines)
    score_M[1] = 4.0 * share
    scores = Scores(0.0, inner.machines, score_M, 4.0)
    live = LiveWindows(inner, path, lambda: scores)
    for tick in range(ticks):
        window = live.pop(100.0 + tick)
        assert window is not None and window.machines == inner.machines
    assert live.notes() == ("a note",)
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def test_who_stands_out_has_a_line_and_is_no_part_of_the_band(tmp_path: Path) -> None:
    for machines in (4, 200):
        found = look(tmp_path / "live.json", machines, 1.5)
        assert found["standouts"] == ["m1"] and found["machines"] == machines and len(found["times"]) == 3  # type: ignore[arg-type]
        (panel,) = found["metrics"].values()  # type: ignore[attr-defined]  # a metric without any data has none
        assert panel["lines"] == {"m1": [120.0] * 3} and panel["low"] == panel["high"] == [500.0] * 3


def test_whom_a_verdict_names_has_a_line_whatever_the_detector_says(tmp_path: Path) -> None:
    live = LiveWindows(OneWindow(4), tmp_path / "live.json", lambda: None)
    live.accused = lambda: ("gone", "m1")
    live.pop(100.0)
    found = json.loads((tmp_path / "live.json").read_text())
    assert found["standouts"] == ["m1"] and found["metrics"][METRICS[0]]["high"] == [500.0]


def test_nobody_stands_out_below_half_the_threshold(tmp_path: Path) -> None:
    assert look(tmp_path / "live.json", 4, 0.4)["standouts"] == []


def test_memory_and_file_are_bounded(tmp_path: Path) -> None:
    found = look(tmp_path / "live.json", 4, 1.0, ticks=900)
    assert len(found["times"]) == 120  # type: ignore[arg-type]


def test_a_disk_that_takes_nothing_does_not_stop_the_windows(tmp_path: Path) -> None:
    live = LiveWindows(OneWindow(3), tmp_path / "no" / "live.json", lambda: None)
    assert live.pop(100.0) is not None and live.pop(200.0) is not None


def test_the_band_of_few_peers_is_their_smallest_median_and_largest_number() -> None:
    generator = np.random.default_rng(3)
    for machines in (1, 2, 5, 8):
        values_TM = generator.normal(size=(40, machines))
        values_TM[generator.random(values_TM.shape) < 0.4] = np.nan
        values_TM[0] = np.nan
        for row, (low, middle, high) in zip(values_TM, _band(values_TM), strict=True):
            known = row[np.isfinite(row)]
            expected = (known.min(), np.median(known), known.max()) if len(known) else (np.nan,) * 3
            np.testing.assert_allclose((low, middle, high), expected)
