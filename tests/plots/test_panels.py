from __future__ import annotations

import numpy as np

from minder.model.telemetry import Window
from minder.offline.plots.panels import choose_metrics, departure

MACHINES = ("m0", "m1", "m2", "m3")


def window(**series: np.ndarray) -> Window:
    values_TMK = np.stack(list(series.values()), axis=-1)
    return Window(np.arange(len(values_TMK), dtype=float), MACHINES, tuple(series), values_TMK, np.ones(values_TMK.shape[:2], dtype=bool))


def flat(value: float = 1.0) -> np.ndarray:
    return np.full((30, 4), value)


def apart(size: float) -> np.ndarray:
    """m2 leaves the others at row 20."""
    values_TM = flat(10.0) + np.linspace(0.0, 1.0, 4)
    values_TM[20:, 2] += size
    return values_TM


def test_what_the_verdict_names_comes_first_and_steps_are_always_there() -> None:
    seen = window(
        steps_total=flat(), job_cpu_ratio=flat(), tcp_send_queue_bytes=apart(50.0), job_busy_ratio=flat(), tcp_retransmits_per_second=flat()
    )
    chosen = choose_metrics(seen, ("m2",), ("tcp_retransmits_per_second",), 20.0, 29.0)
    assert chosen == ("tcp_retransmits_per_second", "steps_total", "job_cpu_ratio", "tcp_send_queue_bytes")


def test_a_metric_without_data_or_unknown_to_the_recording_is_no_panel() -> None:
    seen = window(steps_total=flat(), job_cpu_ratio=np.full((30, 4), np.nan))
    assert choose_metrics(seen, ("m2",), ("gpu_power_draw_watts", "job_cpu_ratio"), 20.0, 29.0) == ("steps_total",)


def test_noise_from_before_the_fault_is_no_departure() -> None:
    noisy = flat(10.0)
    noisy[:, 2] += 5.0
    assert departure(window(steps_total=noisy), "steps_total", ("m2",), 20.0, 29.0) == 0.0
    assert departure(window(steps_total=apart(50.0)), "steps_total", ("m2",), 20.0, 29.0) > 0.8
    assert departure(window(steps_total=apart(50.0)), "steps_total", (), 20.0, 29.0) == 0.0
    assert departure(window(steps_total=apart(50.0)), "steps_total", MACHINES, 20.0, 29.0) == 0.0
