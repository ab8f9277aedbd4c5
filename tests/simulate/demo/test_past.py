"""A recording as exporters would have exposed it (the way through a real Prometheus is notebook 07's)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minder.ingest.sources.frames import Frames
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.recording import Recording
from minder.simulate.demo.past import write_openmetrics


def test_names_units_and_times_are_the_exporters(tmp_path: Path) -> None:
    metrics = ("gpu_power_draw_watts", "gpu_clock_hertz", "gpu_duty_cycle_ratio", "tcp_throughput_bytes_per_second")
    values_NK = np.array([[500.0, 1.98e9, 0.75, 1.0], [np.nan, 1.41e9, 0.5, 1.0]])
    frames = Frames(np.array([10.0, 20.0]), np.array([0, 0]), np.array([-1, -1]), values_NK, ("m0",), (), metrics)
    job = RecordedJob("job", ("m0",), interval_s=10.0)
    recording = Recording(tmp_path, job, job.topology(), frames, 10.0)
    write_openmetrics(recording, tmp_path / "past.om", 1000.0, load_mapping("dcgm"))
    text = (tmp_path / "past.om").read_text()
    told = {line.split("{")[0]: line.rsplit("} ", 1)[1] for line in text.splitlines() if not line.startswith("#")}
    assert told["DCGM_FI_DEV_POWER_USAGE"] == "500 990.000"  # its second value is missing: no data, not zero
    assert told["DCGM_FI_DEV_SM_CLOCK"] == "1410 1000.000"
    assert float(told["DCGM_FI_DEV_GPU_UTIL"].split()[0]) == pytest.approx(50.0)
    assert "tcp" not in text.lower() and text.endswith("# EOF\n")
