from __future__ import annotations

import io
from itertools import pairwise

import numpy as np

from minder.offline.plots.detectors import Compared, _apart, _name_all, draw_detectors

NAN = (float("nan"),) * 3


def pixels(png: bytes) -> np.ndarray:
    import matplotlib.image

    return np.asarray(matplotlib.image.imread(io.BytesIO(png), format="png"))


def share_of(picture: np.ndarray, color: tuple[int, int, int]) -> float:
    return float((np.abs(picture[:, :, :3] * 255 - np.array(color)).max(axis=2) < 3).mean())


def test_every_detector_is_in_the_picture_and_better_is_higher() -> None:
    compared = [
        Compared("default", "default", (0.9, 0.8, 0.95), (20.0, 15.0, 30.0)),
        Compared("minder", "reference", (0.5, 0.4, 0.6), (250.0, 240.0, 260.0)),
    ]
    picture = pixels(draw_detectors(compared, "twelve recordings"))
    orange = np.argwhere(np.abs(picture[:, :400, :3] * 255 - np.array((0xD5, 0x5E, 0))).max(axis=2) < 3)
    assert len(orange) > 50
    assert orange[:, 0].mean() < picture.shape[0] / 3
    assert share_of(picture, (0x00, 0x72, 0xB2)) > 0


def test_a_detector_that_found_nothing_does_not_break_the_picture() -> None:
    assert pixels(draw_detectors([Compared("ecod", "classical", (float("nan"), 0.0, 0.0), NAN)], "one")).shape[2] == 4


def test_names_of_detectors_that_are_alike_stand_a_line_apart_in_their_order() -> None:
    heights = _apart([1.0, 0.9, 0.89, 0.89, 0.5, 0.01, 0.0])
    assert all(upper - lower >= 0.0429 for upper, lower in pairwise(heights))
    assert heights[0] == 1.0 and heights[4] == 0.5 and heights[-1] > 0.0


def test_two_quick_detectors_of_the_same_f1_can_both_be_read() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    axis = figure.subplots()
    axis.set_xscale("log")
    axis.set_xlim(4.0, 520.0)
    delays = {"one": (52.0, 40.0, 60.0), "another": (53.0, 40.0, 60.0)}
    _name_all(axis, [Compared(name, "default", (1.0, 1.0, 1.0), delay_s) for name, delay_s in delays.items()])
    figure.draw_without_rendering()
    one, another = (text.get_window_extent() for text in axis.texts)
    assert not one.overlaps(another)


def test_the_legend_names_the_families_that_are_there() -> None:
    one = [Compared("default", "default", (0.9, 0.8, 0.95), (20.0, 15.0, 30.0))]
    assert share_of(pixels(draw_detectors(one, "one")), (0x00, 0x72, 0xB2)) == 0
