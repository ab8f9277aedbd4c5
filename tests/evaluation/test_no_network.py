"""Verdicts need no network: recordings are replayed and evaluated by processes that can reach nobody, not even this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.model.clock import format_time

Run = Callable[..., subprocess.CompletedProcess[str]]

# An audit hook hears of every socket of the process, whichever library asks for it (PEP 578), and what it raises reaches whoever asked.
CUT_OFF = """
import socket, sys

def refuse(event, args):
    asks = event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
    if asks or (event == "socket.__new__" and args[1] in (socket.AF_INET, socket.AF_INET6)):
        print("asked for the network:", event, args[1:], file=sys.stderr)
        raise PermissionError("there is no network here")

sys.addaudithook(refuse)
"""
MAIN = "import sys\nfrom minder.cli import main\nsys.exit(main(sys.argv[1:]))\n"
NAMESPACE = ("unshare", "--net", "--")  # not even its loopback is up


@pytest.fixture(params=["no socket", pytest.param("no link", marks=pytest.mark.root)])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a Python text that can reach nobody."""
    before, cut = ((), CUT_OFF) if request.param == "no socket" else (NAMESPACE, "")

    def start(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-c", cut + text, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    return start


@pytest.fixture
def recording(long_hang: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Path, str]:
    """A recording, its truth and the culprit."""
    folder, columns = long_hang
    truth = tmp_path / "truth.json"
    row = {"recording": folder.name, "fault": "hang", "machine": columns.culprit, "onset": format_time(columns.onset_s)}
    truth.write_text(json.dumps([row]))
    return folder, truth, columns.culprit


def test_the_cut_is_one(run: Run) -> None:
    """Without this the others would prove nothing."""
    done = run("import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=5)")
    assert done.returncode == 1
    assert "there is no network here" in done.stderr or "Network is unreachable" in done.stderr


@pytest.mark.lab
def test_a_recording_is_replayed_without_a_network(run: Run, recording: tuple[Path, Path, str]) -> None:
    done = run(MAIN, "replay", str(recording[0]))
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["machines"] for line in done.stdout.splitlines()] == [[recording[2]]]


@pytest.mark.parametrize("detector", [pytest.param("default", marks=pytest.mark.release), "minder"])
@pytest.mark.lab
def test_recordings_are_evaluated_without_a_network(run: Run, recording: tuple[Path, Path, str], detector: str) -> None:
    """The reference with the weights that ship."""
    arguments = ("evaluate", str(recording[0]), "--truth", str(recording[1]), "--detector", detector, "--format", "json")
    done = run(MAIN, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)["summary"]
    assert (summary["found"], summary["wrong"], summary["missed"]) == (1, 0, 0)
