"""A real Prometheus that scrapes the lab's agents, where the binary is on the PATH."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from minder.model.errors import LabError
from minder.model.private import make_private, open_private, write_private

__all__ = ["LabPrometheus", "find_prometheus"]


def find_prometheus() -> str | None:
    return shutil.which("prometheus")


class LabPrometheus:
    """Runs on loopback with its own data folder; `targets` maps machine name to "address:port"; `environment` is added to ours.
    A context manager."""

    def __init__(
        self, folder: Path, targets: Mapping[str, str], token: str, interval_s: float, environment: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._targets = targets
        self._token = token
        self._interval_s = interval_s
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LabPrometheus:
        make_private(self._folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        write_private(self._folder / "prometheus.yml", json.dumps(self._config(), indent=1))  # JSON is YAML; it holds a token
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def start(self) -> None:
        binary = find_prometheus()
        if binary is None:
            raise LabError("prometheus is not on the PATH: install it, or leave --prometheus out to use the built-in scraper")
        command = [binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{self.port}"]
        with open_private(self._folder / "prometheus.log", "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=os.environ | self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end_s = time.monotonic() + 20.0
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise LabError(f"prometheus did not start: see {self._folder / 'prometheus.log'}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _config(self) -> dict[str, object]:
        interval = f"{max(1, round(self._interval_s))}s"
        groups = [{"targets": [target], "labels": {"machine": machine}} for machine, target in self._targets.items()]
        job = {
            "job_name": "minder-agents",
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "authorization": {"credentials": self._token},
            "static_configs": groups,
        }
        return {"global": {"scrape_interval": interval}, "scrape_configs": [job]}
