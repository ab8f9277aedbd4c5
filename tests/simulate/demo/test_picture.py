from __future__ import annotations

from pathlib import Path

import pytest

from minder.model.errors import MinderError
from minder.simulate.demo.picture import draw_picture


def test_a_recorded_run_becomes_a_picture(make_report, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import matplotlib.image

    report = make_report()
    draw_picture(report.recording, tmp_path / "incident.png", "hang in m2", report.incidents, report.milestones)
    image = matplotlib.image.imread(tmp_path / "incident.png")[:, :, :3]
    assert image.shape[1] == 1500
    assert 0.02 < (image.min(axis=-1) < 0.9).mean() < 0.5, "neither blank nor full"


def test_a_quiet_run_is_drawn_whole(make_report, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    draw_picture(make_report().recording, tmp_path / "quiet.png", "none: nothing happened", (), ())
    assert (tmp_path / "quiet.png").stat().st_size > 20_000


def test_without_telemetry_there_is_no_picture_but_a_reason(told, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (told.folder / "recording" / "telemetry.parquet").unlink()
    with pytest.raises(MinderError, match="no telemetry"):
        draw_picture(told.folder / "recording", tmp_path / "none.png", "hang", (), ())
    with pytest.raises(MinderError):
        draw_picture(tmp_path / "nowhere", tmp_path / "none.png", "hang", (), ())
