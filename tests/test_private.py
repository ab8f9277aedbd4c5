"""What minder makes is its owner's alone, whatever umask it was started with; a run directory that is shared on purpose stays usable."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.act.controller.reporting.status import write_status
from minder.act.controller.state import JobState
from minder.cli import main
from minder.edge.agent.dumps import _ask
from minder.edge.launcher.register import Register
from minder.edge.worker.pulse import _create
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.model.evidence import Verdict
from minder.model.private import make_meeting, make_private, open_private, write_private
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger, kinds
from minder.simulate.demo.named_prometheus import NamedPrometheus
from minder.simulate.demo.present import make_run_folder
from minder.simulate.demo.prometheus import LabPrometheus
from minder.simulate.lab.machine import LabMachine, MachinePlace
from minder.simulate.lab.record import LabRecord


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def _modes(folder: Path) -> set[str]:
    """Of everything in a folder: f0600, d0700."""
    found = [path for path in folder.rglob("*") if not path.is_symlink()]
    return {f"{'d' if path.is_dir() else 'f'}{stat.S_IMODE(path.stat().st_mode):04o}" for path in found}


def test_folders_and_files_are_for_their_owner(tmp_path: Path) -> None:
    write_private(make_private(tmp_path / "a" / "b" / "c") / "file", "x")
    with open_private(tmp_path / "a" / "log", "ab", buffering=0) as log:
        log.write(b"y")
    assert _modes(tmp_path) == {"d0700", "f0600"}


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    make_private(tmp_path / "open")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755
    (tmp_path / "open" / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        make_private(tmp_path / "open" / "file")


def test_state_of_a_job_is_private(tmp_path: Path) -> None:
    with Ledger(str(tmp_path / "state" / "ledger.db")) as ledger:
        ledger.append(kinds.NOTE, {"text": "x"}, job="j")
        write_status(tmp_path / "state" / "status.json", 0.0, JobState("j"), {}, {})
        assert _modes(tmp_path) == {"d0700", "f0600"}  # while it is open, with SQLite's own files beside it


def test_a_recording_is_private(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recording", RecordedJob("j", ("m1",), (), 1, Parallelism(data=1), 1.0, {}))
    recorder.append_samples([Sample(0.0, "m1", {"cpu_usage_ratio": 0.5})])
    recorder.close()
    assert _modes(tmp_path) == {"d0700", "f0600"} and (tmp_path / "recording" / "telemetry.parquet").exists()


def _meet(run_dir: Path) -> None:
    register = Register(run_dir / "jobs" / "j.json")
    register.write({"job": "j"})
    _create(run_dir / "heartbeats" / "j-0")
    assert _ask(run_dir / "dumps") == ""


def test_a_run_directory_of_ones_own_is_private(tmp_path: Path) -> None:
    _meet(tmp_path / "run")
    assert _modes(tmp_path) == {"d0700", "f0600"}


def test_a_shared_run_directory_stays_usable_for_workers_of_other_users(tmp_path: Path, umask: int) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run_dir.chmod(0o1777)
    _meet(run_dir)
    assert {stat.S_IMODE((run_dir / name).stat().st_mode) for name in ("jobs", "heartbeats", "dumps")} == {0o1777}
    readable = 0o600 if umask == 0o077 else 0o644  # who starts it with a umask of 077 wants no reader
    assert stat.S_IMODE((run_dir / "jobs" / "j.json").stat().st_mode) == readable
    assert stat.S_IMODE((run_dir / "heartbeats" / "j-0").stat().st_mode) == readable
    assert json.loads((run_dir / "jobs" / "j.json").read_text()) == {"job": "j"}
    assert make_meeting(run_dir, "jobs") == run_dir / "jobs"


def test_tokens_a_bundle_and_what_a_command_writes_are_private(tmp_path: Path, umask: int) -> None:
    ledger = str(tmp_path / "ledger.db")
    with Ledger(ledger) as opened:
        opened.open_incident(Verdict(10.0, "machine", "evict", ("m2",), "explicit", 0.99, 9.0), job="llm", time_s=10.0)
    assert main(["incidents", "bundle", "llm-1", "-o", str(tmp_path / "vendor.zip"), "--ledger", ledger]) == 0
    assert main(["report", "--ledger", ledger, "--out", str(tmp_path / "report.html")]) == 0
    assert main(["token", "machine", "m0", "--dir", str(tmp_path / "tokens")]) == 0
    assert _modes(tmp_path) == {"d0700", "f0600"}
    assert os.umask(umask) == umask, "a command that ends leaves the umask as it was"


def test_a_lab_and_the_demo_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = LabRecord("ab12", "processes", "1:1", str(tmp_path))
    assert record.create(tmp_path / "state")
    record.save(tmp_path / "state")
    place = MachinePlace("lab-ab12-m0", "m0", 0, "ab12", "127.0.0.1", "127.0.0.1", "lo", make_private(tmp_path / "machines" / "m0"))
    LabMachine(place, "1:1").spawn(["true"], log_path=place.directory / "agent.log").wait()
    make_run_folder(tmp_path / "demo-out", "hang", 0)
    NamedPrometheus("http://127.0.0.1:9", make_private(tmp_path / "prometheus"), {"m0": "127.0.0.1:1"}, "s3cret", 1.0).__exit__()
    monkeypatch.setattr(LabPrometheus, "start", lambda self: None)
    LabPrometheus(tmp_path / "lab-prometheus", {}, "s3cret", 1.0).__enter__()
    assert _modes(tmp_path) == {"d0700", "f0600"}, {path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077}
