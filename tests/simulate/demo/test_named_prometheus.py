"""`minder demo --prometheus URL`: a real Prometheus that we did not start, and addresses where there is none."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.cli import main
from minder.ingest.sources.recording import read_recording
from minder.model.errors import BadInputError
from minder.simulate.demo import named_prometheus as module
from minder.simulate.demo.named_prometheus import NamedPrometheus
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.play import play

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("url", ["localhost:9090", "nowhere", "ftp://host"])
def test_what_is_no_address_starts_no_lab(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--prometheus", url, "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert "--prometheus" in captured.err and "is no address" in captured.err and len(captured.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_nobody_there_is_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(BadInputError, match=f"--prometheus {url} does not answer as a Prometheus"), prometheus_at(url, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def prometheus_at(url: str, folder: Path) -> NamedPrometheus:
    return NamedPrometheus(url, folder / "prometheus", {"lab-0000-m0": "127.0.0.1:9"}, "a-token-of-sixteen", 1.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Prometheus with the lines of the quickstart, which stand beside demo-out; its address."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus on the PATH")
    (lines,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", (ROOT / "docs" / "quickstart.md").read_text(), re.DOTALL)
    (tmp_path / "prometheus.yml").write_text(lines)
    url = f"http://127.0.0.1:{free_port()}"
    words = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={url[7:]}"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(["prometheus", *words], stdout=log, stderr=log) as process:
        end_s = time.monotonic() + 40.0
        while not answers(f"{url}/-/ready"):
            assert process.poll() is None and time.monotonic() < end_s, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield url
        process.kill()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.server
def test_one_that_does_not_scrape_the_lab_is_told_what_it_needs(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    with pytest.raises(BadInputError, match="scrapes 0 of the lab's 1 agents") as error, prometheus_at(server, tmp_path / "elsewhere"):
        pass
    told = tmp_path / "elsewhere" / "prometheus"
    assert str(told / "targets.json") in str(error.value) and str(told / "token") in str(error.value)
    assert json.loads((told / "targets.json").read_text()) == []
    assert (told / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.release
@pytest.mark.lab
@pytest.mark.server
@pytest.mark.timeout(420)
def test_a_fault_is_found_through_somebody_elses_prometheus(server: str, tmp_path: Path) -> None:
    options = DemoOptions("hang", tmp_path / "demo-out" / "run", telemetry=server)
    played = play(options, lambda stage, message: None, deadline_s=300.0, compare=False)
    assert played.outcome.wrong == () and played.outcome.evicted == (played.target,)
    recording = read_recording(tmp_path / "demo-out" / "run" / "recording")
    assert recording.frames is not None and len(recording.frames.times_N) > 100
    assert json.loads((tmp_path / "demo-out" / "prometheus" / "targets.json").read_text()) == []
