from __future__ import annotations

import io

import numpy as np

from minder.offline.plots.reliability import HourLine, PlanPanel, draw_hours, draw_losses, draw_plan

DETECT, RESTART, FIRST_LINE = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2), (0x00, 0x72, 0xB2)


def pixels(data: bytes) -> np.ndarray:
    import matplotlib.image

    return np.asarray(matplotlib.image.imread(io.BytesIO(data), format="png")[:, :, :3] * 255).round().astype(int)


def count(image: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((np.abs(image - np.array(colour)).max(axis=-1) < 8).sum())


def test_bars_are_as_long_as_the_time_that_was_lost() -> None:
    image = pixels(draw_losses({"stall": {"detect": 300.0, "restart": 900.0}, "explicit": {"restart": 60.0}}, "lost"))
    assert 2.0 < count(image, RESTART) / count(image, DETECT) < 4.0


def test_many_causes_stay_legible_and_strange_names_are_only_names() -> None:
    many = {f"cause {index} $\\frac{{": {"detect": float(index + 1)} for index in range(40)}
    assert pixels(draw_losses(many, "$\\frac{")).shape[0] < 1100


def test_each_job_has_a_line_until_there_are_too_many() -> None:
    times_E = 1.7e9 + np.arange(50) * 600.0
    lines = [HourLine(f"job-{index}$", times_E, np.linspace(1.0, 0.02 * index, 50)) for index in range(30)]
    image = pixels(draw_hours(lines, "ETTR"))
    assert count(image, FIRST_LINE) > 300
    assert 0.6 < count(image, (255, 255, 255)) / (image.shape[0] * image.shape[1]) < 0.98


def test_a_plan_has_a_panel_per_size() -> None:
    bars = (("everything", 0.99, 0.98, 0.995, {"detect": 0.01}), ("nothing", 0.0, 0.0, 0.0, {"detect": 0.4, "restart": 0.6}))
    one, two = (pixels(draw_plan([PlanPanel("9,600 GPUs", bars)] * number, "plan")) for number in (1, 2))
    assert two.shape[0] > 1.4 * one.shape[0] and count(two, RESTART) > 1.5 * count(one, RESTART)
