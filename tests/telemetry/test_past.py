"""A window of the past of one machine against its peers: out of a Prometheus with one query, or out of a recording."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.ingest.sources.identity import Join, MachineMap
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.past import PastWindow, read_prometheus, read_recorded
from minder.ingest.sources.prometheus import PrometheusOptions
from minder.ingest.sources.recorder import Recorder
from minder.model.errors import RecordingError, SourceError
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism

BEGIN_S = 1_700_000_000.0
MACHINES = ("m0", "m1", "m2")
WINDOW = PastWindow("m1", MACHINES, BEGIN_S, BEGIN_S + 600.0)


def answer(request: Any) -> tuple[int, bytes]:
    query = urllib.parse.parse_qs(urllib.parse.urlparse(request.path).query)["query"][0]
    if "minder_controller_score_ratio" in query:
        result = [{"metric": {"machine": "m1"}, "values": [[BEGIN_S + 30, "0.2"], [BEGIN_S + 60, "1.4"]]}]
    else:
        values = {"m0": 0.9, "m1": 0.1, "m2": 0.8}
        result = [
            {
                "metric": {"__name__": "minder_cpu_usage_ratio", "machine": name, "instance": f"{name}:9400"},
                "values": [[BEGIN_S + second, str(value)] for second in (30, 60, 570)],
            }
            for name, value in values.items()
        ]
    return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_a_prometheus_is_asked_for_the_window_alone_and_silence_stays_a_gap(site: Any) -> None:
    site.answer = answer
    found, scores = read_prometheus(PrometheusOptions(site.url, 15.0, 'job="llm"'), MachineMap(), load_mapping("minder"), WINDOW)
    panel = found.metrics["cpu_usage_ratio"]
    at = [index for index, value in enumerate(panel.line) if value is not None]
    assert [found.times[index] - BEGIN_S for index in at] == [45.0, 75.0, 585.0] and found.peers == 2
    assert (panel.line[at[0]], panel.low[at[0]], panel.middle[at[0]], panel.high[at[0]]) == (0.1, 0.8, 0.85, 0.9)
    assert scores == [(BEGIN_S + 30, 0.2), (BEGIN_S + 60, 1.4)]
    queries = [urllib.parse.parse_qs(urllib.parse.urlparse(path).query)["query"][0] for path, _ in site.requests]
    assert queries[0].startswith("last_over_time({__name__=~") and queries[0].endswith(f"[29999ms])[600s:30s] @ {BEGIN_S + 600:.3f}")
    assert 'job="llm", machine=~"(?:m1|m0|m2)' in queries[0] and 'machine="m1"' in queries[1]


def test_a_large_job_is_asked_for_some_peers_and_refused_where_no_label_picks_them(site: Any) -> None:
    many = tuple(f"n{number:04d}" for number in range(1500))
    window = PastWindow("n0007", many, BEGIN_S, BEGIN_S + 86_400.0)
    assert len(window.group) == 32 and window.group[0] == "n0007" and window.bucket_s(1.0) == 360.0
    joined = MachineMap(joins=(Join("node_uname_info", (("instance", "instance"),), "nodename"),))
    with pytest.raises(SourceError, match="name the machine by a label"):
        read_prometheus(PrometheusOptions(site.url), joined, load_mapping("minder"), window)


@pytest.mark.server
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs prometheus and promtool")
def test_a_real_prometheus_answers_for_an_hour_of_the_past(tmp_path: Path) -> None:
    """Out of blocks that were written for it: a gauge with a gap, a counter, and the controller's score."""
    begin_s = int(time.time()) // 7200 * 7200 - 4 * 7200
    lines = [
        "# TYPE minder_gpu_power_draw_watts gauge",
        *_series("minder_gpu_power_draw_watts", begin_s, lambda name, at: 100.0 if name == "m1" else 500.0),
    ]
    lines += ["# TYPE minder_tcp_retransmits counter", *_series("minder_tcp_retransmits_total", begin_s, lambda name, at: 10.0 * at)]
    lines += ["# TYPE minder_controller_score_ratio gauge", *_series("minder_controller_score_ratio", begin_s, lambda name, at: 1.5)]
    (tmp_path / "metrics").write_text("\n".join([*lines, "# EOF", ""]))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", "metrics", "data"], cwd=tmp_path, check=True, capture_output=True
    )
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen(["prometheus", *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    window = PastWindow("m1", MACHINES, float(begin_s), begin_s + 3600.0)
    try:
        for _ in range(100):
            try:
                found, scores = read_prometheus(
                    PrometheusOptions(f"http://127.0.0.1:{port}", 15.0), MachineMap(), load_mapping("minder"), window
                )
                break
            except SourceError:
                time.sleep(0.1)
    finally:
        process.terminate()
        process.wait()
    panel, gap = found.metrics["gpu_power_draw_watts"], found.metrics["gpu_power_draw_watts"].line[42:58]
    assert {value for value in panel.line if value is not None} == {100.0} and {value for value in panel.middle if value is not None} == {
        500.0
    }
    assert set(gap) == {None} and panel.line[20] == 100.0 == panel.line[100], "ten minutes of silence stay silent"
    rates = [value for value in found.metrics["tcp_retransmits_per_second"].line if value is not None]
    assert max(rates) == pytest.approx(10.0, rel=0.1) and sum(value < 9.0 for value in rates) <= 2, "less only beside the silence"
    assert len(scores) > 90 and {value for _, value in scores} == {1.5}


def _series(name: str, begin_s: int, value: Callable[[str, int], float]) -> list[str]:
    """An hour, a sample every 15 s, nothing from minute 20 to minute 30."""
    times = [second for second in range(15, 3600, 15) if not 1200 <= second < 1800]
    return [
        f'{name}{{machine="{machine}",instance="{machine}:9400"}} {value(machine, at)} {begin_s + at}'
        for machine in MACHINES
        for at in times
    ]


@pytest.mark.parametrize("closed", [True, False])
def test_a_recording_is_read_also_while_it_is_written(tmp_path: Path, closed: bool) -> None:
    job = RecordedJob("llm", MACHINES, (), 1, Parallelism(data=3), 1.0, {})
    recorder = Recorder(tmp_path / "r", job, part_rows=3)
    for second in (-5.0, 0.5, 1.5):
        power = {"m0": 500.0, "m1": 100.0, "m2": 520.0}
        recorder.append_samples([Sample(BEGIN_S + second, name, {"gpu_power_draw_watts": value}) for name, value in power.items()])
    if closed:
        recorder.close()
    found = read_recorded(tmp_path / "r", 1.0, PastWindow("m1", MACHINES, BEGIN_S, BEGIN_S + 10.0))
    panel = found.metrics["gpu_power_draw_watts"]
    assert panel.line == (100.0, *(None,) * 4) and panel.middle[0] == 510.0
    assert not read_recorded(tmp_path / "r", 1.0, PastWindow("m1", MACHINES, BEGIN_S + 100.0, BEGIN_S + 200.0)).metrics
    with pytest.raises(RecordingError, match="holds no telemetry"):
        read_recorded(tmp_path / "none", 1.0, WINDOW)
    recorder.close()
