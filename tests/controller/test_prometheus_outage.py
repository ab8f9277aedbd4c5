"""A real Prometheus dies under a running controller and comes back: that is seen, nobody is accused, and telemetry goes on."""

from __future__ import annotations

import http.server
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import minder.app.build
from minder.act.controller import recover
from minder.act.controller.reporting.gauges import Gauges, Sight
from minder.act.controller.reporting.status import read_status
from minder.act.policy.config import PolicyConfig
from minder.config import JobConfig, MachineConfig, TelemetryConfig
from minder.model.clock import SystemClock
from minder.record.incidents import Ledger, kinds
from tests.fakes.paper_job import PaperJob

MACHINES = ("m0", "m1", "m2", "m3")
SILENT_S, PATIENCE_S = 4.0, 60.0


class Metrics(http.server.BaseHTTPRequestHandler):
    """What every machine's agent would say, by the path that Prometheus is told to ask."""

    def do_GET(self) -> None:
        body = b"minder_cpu_usage_ratio 0.3\nminder_gpu_power_draw_watts 540\nminder_gpu_duty_cycle_ratio 0.95\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def exporter() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


class Prometheus:
    """On loopback, a scrape every second; `start` it again after `kill`."""

    def __init__(self, folder: Path, port: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._folder, self.url = folder, f"http://127.0.0.1:{self.port}"
        one = "{{job_name: {0}, metrics_path: /{0}, static_configs: [{{targets: ['127.0.0.1:{1}'], labels: {{machine: {0}}}}}]}}"
        targets = ", ".join(one.format(name, port) for name in MACHINES)
        (folder / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{targets}]\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["prometheus", f"--config.file={self._folder}/prometheus.yml", f"--storage.tsdb.path={self._folder}/data"]
        with (self._folder / "log").open("a") as log:
            self.process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)
        until(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def prometheus(tmp_path: Path, exporter: int) -> Iterator[Prometheus]:
    assert shutil.which("prometheus")
    server = Prometheus(tmp_path, exporter)
    server.start()
    yield server
    server.kill()


def until(holds: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "waited too long"
        time.sleep(0.1)


@pytest.mark.server
def test_a_prometheus_that_dies_is_seen_accuses_nobody_and_is_read_on_when_it_is_back(
    tmp_path: Path, prometheus: Prometheus, fake_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock()
    job = PaperJob(clock, MACHINES, len(MACHINES), step_s=0.5)
    monkeypatch.setattr(recover, "RendezvousHost", fake_host)
    monkeypatch.setattr(minder.app.build, "Fleet", lambda *unused, **more: job)
    url = "http://127.0.0.1:9"
    config = JobConfig(
        name="llm",
        machines=tuple(MachineConfig(name=name, agent=url, launcher=url) for name in MACHINES),
        state_dir=str(tmp_path),
        telemetry=TelemetryConfig(url=prometheus.url),
    )
    ledger = Ledger(tmp_path / "ledger.db")
    app = minder.app.build.build(config, act=True, ledger=ledger)
    measures = app.controller._stages.measures
    history = lambda now_s: ledger.history("llm", now_s)  # noqa: E731
    gauges = Gauges(Sight(app.state, measures, job.views, job.refusals, history, PolicyConfig(), clock, silent_s=SILENT_S))

    def ticks_until(degraded: set[str]) -> bool:
        job.advance()
        app.controller._step_or_wait()
        (family,) = [family for family in gauges.collect() if family.name == "minder_controller_degraded"]
        return {sample.labels["what"] for sample in family.samples if sample.value} == degraded

    try:
        app.begin()
        until(lambda: ticks_until(set()) and measures.telemetry_s is not None)
        prometheus.kill()
        until(lambda: ticks_until({"telemetry"}))
        status = read_status(tmp_path / "status.json") or {}
        assert status["errors"]["telemetry"] >= 1 and status["phase"] == "running"
        told = ledger.events(kinds=[kinds.SOURCE_ERROR])
        assert told and all("Prometheus" in event.payload["error"] for event in told)
        stepped = app.controller._stages.tracker.steps.step
        prometheus.start()
        until(lambda: ticks_until(set()))
        assert app.controller._stages.tracker.steps.step > stepped
        assert ledger.events(kinds=[kinds.VERDICT, kinds.DECISION, kinds.INTENT]) == []
    finally:
        app.close()
