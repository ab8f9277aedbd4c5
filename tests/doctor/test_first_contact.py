"""docs/first-contact.md, followed to the letter on a Prometheus with names and labels of somebody else's taste."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from minder.config import load_config

PAGE = (Path(__file__).resolve().parents[2] / "docs/first-contact.md").read_text(encoding="utf-8")


def typed(text: str) -> list[list[str]]:
    """The commands of the page's indented blocks, in order."""
    return [shlex.split(re.sub(r"\s+#.*", "", line)) for line in text.splitlines() if re.match(r"    (minder|curl) ", line)]


def scores_of(port: int) -> dict[str, float]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10.0) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found = re.findall(r'^minder_controller_score_ratio\{machine="([^"]+)".*\} (\S+)$', text, re.MULTILINE)
    return {machine: float(value) for machine, value in found}


@pytest.mark.server("prometheus")
def test_from_a_foreign_prometheus_to_the_first_score(odd_site: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    commands = typed(PAGE)
    assert [words[:2] for words in commands] == [["minder", "doctor"], ["minder", "doctor"], ["minder", "watch"], ["curl", "-s"]]
    assert commands[3][2] == "http://127.0.0.1:9403/metrics"
    environment = {**os.environ, "MINDER_STATE_DIR": str(tmp_path / "state")}
    here = [word.replace("http://prometheus.example:9090", odd_site.url) for word in commands[0][1:]]

    begun = time.monotonic()
    for words in (here, commands[1][1:]):
        done = subprocess.run(
            [sys.executable, "-m", "minder", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == (0 if words is here else done.returncode), done.stdout + done.stderr
        assert "missing  telemetry" not in done.stdout and "missing  metrics" not in done.stdout, done.stdout
    config = load_config(tmp_path / "job.toml")
    assert [machine.name for machine in config.machines] == [f"gpu-r{rack}-s{slot}" for rack in (1, 2) for slot in (1, 2, 3)]
    assert config.telemetry.machine_label == "srv" and [join.series for join in config.telemetry.join] == ["up"]  # for the hosts
    mapping = (tmp_path / "job.mapping.toml").read_text()
    assert "acme_gpu_power_milliwatts" in mapping and "limit" not in mapping and "pdu" not in mapping

    command = [sys.executable, "-m", "minder", *commands[2][1:]]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watch:
        request.addfinalizer(watch.kill)
        assert config.metrics.address is not None
        while not (scores := scores_of(config.metrics.address[1])):
            assert watch.poll() is None and time.monotonic() - begun < 180.0
            time.sleep(0.3)
        seconds = time.monotonic() - begun
        lines = len([line for line in (tmp_path / "job.toml").read_text().splitlines() if line.strip()])
        print(f"first score after {seconds:.0f} s, {len(commands)} commands, {lines} drafted lines")
        assert set(scores) == {machine.name for machine in config.machines} and max(scores.values()) < 1.0
        time.sleep(45.0)  # the half minute of the page: what is odd from the start is a machine's own way
        odd_site.slow = "gpu-r2-s2"  # what all of it is for
        assert watch.stdout is not None
        verdict = json.loads(watch.stdout.readline())
        watch.kill()
    assert verdict["machines"] == ["gpu-r2-s2"] and verdict["cause"] == "slowdown"
