"""A site that was there before us: six machines behind a real Prometheus, with names and labels of its own taste.

GPU metrics are `acme_gpu_...` in percent and milliwatts, with the machine in the label `srv`; host metrics are node_exporter's under a
prefix, on another port, without that label; a rack's own exporter has every label of the rack and of no machine.
"""

from __future__ import annotations

import http.server
import math
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

MACHINES = [f"gpu-r{rack}-s{slot}" for rack in (1, 2) for slot in (1, 2, 3)]
HEAD = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
TARGET = '      - {{targets: ["127.0.0.1:{port}"], labels: {{{labels}}}}}\n'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class OddSite:
    """`slow`: a machine whose GPUs do half of their work from now on."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.slow: str | None = None
        self.folder, self._stack = folder, stack
        self._begun_s = time.time()
        self._exporters = self._serve()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def page(self, path: str) -> str:
        """/gpu/MACHINE or /host/MACHINE or /rack/N, as their exporters would answer now."""
        _, kind, name = path.split("/")
        passed_s = time.time() - self._begun_s
        if kind == "rack":
            return f'acme_pdu_power_watts{{rack="{name}"}} {9000 + 10 * math.sin(passed_s)}\n'
        seat = MACHINES.index(name)
        share = 0.5 if name == self.slow else 1.0
        lines = []
        if kind == "gpu":
            for card in range(2):
                wave = math.sin(passed_s / 2.0) + 0.1 * math.sin(7.0 * passed_s + seat + card)
                lines += [
                    f'acme_gpu_utilization_percent{{card="{card}"}} {share * (90 + 4 * wave):.3f}',
                    f'acme_gpu_power_milliwatts{{card="{card}"}} {share * (600_000 + 20_000 * wave):.0f}',
                    f'acme_gpu_power_limit_milliwatts{{card="{card}"}} 700000',
                    f'acme_gpu_temperature{{card="{card}"}} {60 + seat + wave:.2f}',
                ]
        else:
            lines = [
                f"acme_node_memory_MemAvailable_bytes {4e11 + 1e9 * seat:.0f}",
                "acme_node_memory_MemTotal_bytes 1e12",
                f'acme_net_bytes_total{{nic="eth0"}} {1e9 * passed_s * share:.0f}',
            ]
        return "\n".join(lines) + "\n"

    def start(self) -> None:
        text = HEAD
        for job, port in (("acme-gpus", 9400), ("acme-hosts", 9100)):
            text += f"  - job_name: {job}\n    static_configs:\n"
            for number, name in enumerate(MACHINES):
                labels = f'instance: "10.1.0.{number + 1}:{port}", __metrics_path__: "/{"gpu" if port == 9400 else "host"}/{name}"'
                labels += f', srv: {name}, dc: "fra"' if port == 9400 else ', dc: "fra"'
                text += TARGET.format(port=self._exporters, labels=labels)
        text += "  - job_name: racks\n    static_configs:\n"
        text += TARGET.format(port=self._exporters, labels='instance: "pdu:80", __metrics_path__: "/rack/1"')
        (self.folder / "prometheus.yml").write_text(text)
        command = [
            "prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/samples",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(self.folder / "log").open("wb"))
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline and not self._is_ready():
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        """Every target has been scraped."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?query=sum(up)", timeout=5.0) as answer:
                return b'"13"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def _serve(self) -> int:
        site = self

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.page(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.handle_error = lambda *unused: None  # type: ignore[method-assign]  # Prometheus hangs up when it is late
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)
        return server.server_port


@pytest.fixture
def odd_site(tmp_path: Path) -> Iterator[OddSite]:
    with ExitStack() as stack:
        folder = tmp_path / "odd"
        folder.mkdir()
        made = OddSite(folder, stack)
        made.start()
        yield made
