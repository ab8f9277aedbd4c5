"""What a training reads out of a real Prometheus: the last minutes of a job that runs well, as samples with their own times."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from minder.ingest.sources.recording import read_recording
from minder.model.errors import IdentityError, SourceError
from minder.offline.training.data import gather_data
from minder.offline.training.recipe import TrainingRecipe
from minder.offline.training.usual import find_ranges, healthy_windows
from minder.simulate.demo.prometheus import LabPrometheus

pytestmark = pytest.mark.server("prometheus", "promtool")
MACHINES, MINUTES, EVERY_S = ("m0", "m1", "m2"), 5, 15


def recipe(url: str, machines: tuple[str, ...] = MACHINES) -> TrainingRecipe:
    rules = {"url": url, "machines": machines, "minutes": MINUTES, "interval_s": EVERY_S}
    return TrainingRecipe.model_validate({"name": "site", "data": {"prometheus": rules}})


@pytest.fixture
def site(tmp_path: Path) -> LabPrometheus:
    """Ten minutes of three machines, the newer five at 450 to 550 W and the older ones at 9,000 W."""
    now_s = int(time.time())
    lines = ["# TYPE minder_gpu_power_draw_watts gauge"]
    for number, machine in enumerate(MACHINES):
        for age_s in range(600, 0, -EVERY_S):
            watts = 9000.0 if age_s > 60 * MINUTES + EVERY_S else 450.0 + 50.0 * number + age_s % 7
            lines.append(f'minder_gpu_power_draw_watts{{machine="{machine}"}} {watts} {now_s - age_s}')
    (tmp_path / "series.om").write_text("\n".join([*lines, "# EOF", ""]))
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "series.om"), str(tmp_path / "server/data")]
    subprocess.run(made, check=True, capture_output=True)
    return LabPrometheus(tmp_path / "server", {}, "", 15.0)


def test_the_last_minutes_of_a_site_teach_what_is_usual(site: LabPrometheus, tmp_path: Path) -> None:
    with site:
        data = gather_data(recipe(site.url), tmp_path)
        with pytest.raises(IdentityError, match="no target maps to a machine of the job"):
            gather_data(recipe(site.url, ("elsewhere",)), tmp_path / "other")
    (pulled,) = data.usual
    recording = read_recording(pulled)
    assert (recording.job.machines, recording.interval_s) == (MACHINES, EVERY_S)
    assert 3 * 19 <= len(recording.frames.times_N) <= 3 * 21
    assert (data.train, data.held_back) == ((), ()) and len(data.sha256) == 64
    low, high = find_ranges(healthy_windows(data.healthy))["gpu_power_draw_watts"]
    assert 300.0 < low < 450.0 and 550.0 < high < 800.0, "what is older than was asked for is not in it"


def test_a_prometheus_that_is_not_there_is_reported(site: LabPrometheus, tmp_path: Path) -> None:
    with site:
        gone = site.url
    with pytest.raises(SourceError, match=gone):
        gather_data(recipe(gone), tmp_path)
