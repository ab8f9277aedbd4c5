"""The picture of a job's workers, as pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minder.offline.plots.heatmap import draw_heatmap

ACCUSED = (213, 94, 0)


def pixels(path: Path) -> np.ndarray:
    import matplotlib.image

    return np.asarray(matplotlib.image.imread(path)[:, :, :3] * 255).round().astype(int)


def count(image: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((np.abs(image - np.array(colour)).max(axis=-1) < 8).sum())


def test_the_slow_worker_is_bright_and_framed_and_the_others_are_dark(tmp_path: Path) -> None:
    worker_PD = np.ones((4, 4))
    worker_PD[1, 2] = 2.0
    draw_heatmap(worker_PD, tmp_path / "one.png", "one slow worker", [(2, 1)])
    image = pixels(tmp_path / "one.png")
    dark, bright = count(image, (0, 34, 78)), count(image, (254, 232, 56))
    assert dark > 8 * bright > 0, "fifteen cells against one"
    assert count(image, ACCUSED) > 500


def test_a_healthy_job_stays_dark(tmp_path: Path) -> None:
    """Noise of one per cent must not look like a fault."""
    draw_heatmap(1.0 + 0.01 * np.random.default_rng(0).random((4, 8)), tmp_path / "quiet.png")
    image = pixels(tmp_path / "quiet.png")
    bar = image[:, int(image.shape[1] * 0.8) :]
    assert count(image, (254, 232, 56)) <= count(bar, (254, 232, 56)), "bright only in the colour bar"
    assert count(image, ACCUSED) == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (16, 1), (16, 256)])
@pytest.mark.lab
def test_jobs_of_any_shape_can_be_drawn(tmp_path: Path, shape: tuple[int, int]) -> None:
    worker_PD = np.full(shape, 1.02)
    worker_PD[-1, -1] = np.nan
    draw_heatmap(worker_PD, tmp_path / "any.png", "any shape")
    height, width, _ = pixels(tmp_path / "any.png").shape
    assert 300 < height < 2000 and 600 < width < 2400
