from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minder.model.telemetry import Window
from minder.offline.plots.incident import IncidentPicture, draw_incident

MACHINES = ("m0", "m1", "m2", "m3", "s0")
MOMENTS = (("fault injected", 1020.0), ("detected", 1023.0), ("evicted", 1023.4), ("first new step", 1026.0))
SUSPECT, REPLACEMENT, OTHER = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2), (0xCC, 0x79, 0xA7)


def window(rows: int = 40) -> Window:
    times_T = 1000.0 + np.arange(rows, dtype=float)
    steps_TM = np.tile(np.arange(rows, dtype=float)[:, None], (1, 5))
    steps_TM[20:, 2] = 20.0
    steps_TM[27:, 2] = np.nan
    steps_TM[:26, 4] = np.nan
    queue_TM = np.random.default_rng(0).random((rows, 5)) * 5e4
    values_TMK = np.stack([steps_TM, queue_TM], axis=-1)
    return Window(times_T, MACHINES, ("steps_total", "tcp_receive_queue_bytes"), values_TMK, np.isfinite(steps_TM))


def picture(**changes) -> IncidentPicture:  # type: ignore[no-untyped-def]
    settings = {
        "title": "hang in m2",
        "window": window(),
        "metrics": ("steps_total", "tcp_receive_queue_bytes"),
        "span_s": (1005.0, 1038.0),
        "suspects": ("m2",),
        "replacements": ("s0",),
        "peers": ("m0", "m1", "m3"),
        "moments": MOMENTS,
    }
    return IncidentPicture(**{**settings, **changes})


def pixels(path: Path) -> np.ndarray:
    import matplotlib.image

    return np.asarray(matplotlib.image.imread(path)[:, :, :3] * 255).round().astype(int)


def count(image: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((np.abs(image - np.array(colour)).max(axis=-1) < 8).sum())


def test_the_suspect_and_its_replacement_stand_out(tmp_path: Path) -> None:
    draw_incident(picture(), tmp_path / "incident.png")
    image = pixels(tmp_path / "incident.png")
    assert image.shape[1] == 1500
    assert count(image, SUSPECT) > 1000
    assert count(image, REPLACEMENT) > 500
    assert 0.5 < count(image, (255, 255, 255)) / (image.shape[0] * image.shape[1]) < 0.98


def test_who_is_accused_too_is_told_from_the_suspect(tmp_path: Path) -> None:
    draw_incident(picture(others=("m3",), peers=("m0", "m1")), tmp_path / "two.png")
    image = pixels(tmp_path / "two.png")
    assert count(image, SUSPECT) > 1000
    assert count(image, OTHER) > 300


def test_nobody_stands_out_where_nobody_is_suspected(tmp_path: Path) -> None:
    draw_incident(picture(suspects=(), replacements=(), moments=(), peers=MACHINES), tmp_path / "quiet.png")
    image = pixels(tmp_path / "quiet.png")
    assert count(image, SUSPECT) == 0
    assert count(image, (140, 140, 140)) + count(image, (85, 85, 85)) > 200, "the machines are drawn"


@pytest.mark.parametrize("rows", [1, 2])
def test_a_run_of_hardly_any_samples_can_be_drawn(tmp_path: Path, rows: int) -> None:
    draw_incident(picture(window=window(rows), span_s=(1000.0, 1001.0), moments=MOMENTS[:1]), tmp_path / "short.png")
    assert (tmp_path / "short.png").stat().st_size > 5000


def test_a_machine_or_metric_without_a_single_value_is_a_gap_and_no_error(tmp_path: Path) -> None:
    seen = window()
    seen.values_TMK[:, :, 1] = np.nan
    draw_incident(picture(window=seen, suspects=("m2", "m9")), tmp_path / "gaps.png")
    assert (tmp_path / "gaps.png").stat().st_size > 5000
