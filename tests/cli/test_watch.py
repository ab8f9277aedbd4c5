"""`minder watch`: what it refuses, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minder.cli import main
from minder.model.evidence import Evidence, Verdict

JOB = 'name = "llm"\n[[machines]]\nname = "m0"\nagent = "http://127.0.0.1:9"\n'


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give either --job"),
        (["--job", "job.toml", "--pids", "1"], "give either --job"),
        (["--job", "nowhere.toml"], "nowhere.toml"),
        (["--job", "job.toml", "--format", "xml"], '--format is "xml": use jsonl or table'),
        (["--job", "job.toml", "--log", "x"], "minder agent --log"),
        (["--job", "job.toml", "--act"], "--act needs an [engine] in job.toml"),
        (["--pids", "1", "--act"], "--act goes with --job"),
        (["--pids", "12,x"], '--pids is "12,x"'),
        (["--pids", "4194999"], "no process 4194999 on this machine"),
        (["--pids", "1", "--log-pattern", "step (.*"], "no regular expression"),
        (["--pids", "1", "--log-pattern", "step"], "no group named step"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "job.toml").write_text(JOB)
    assert main(["watch", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and told in captured.err and len(captured.err.strip().splitlines()) == 1


class FakeApp:
    """Tells its verdicts when it runs."""

    def __init__(self, *told: Verdict) -> None:
        import threading

        self.told = told
        self.config = SimpleNamespace(name="llm")
        self.state = SimpleNamespace(generation=1, generation_start_s=0.0, phase="running")
        self.controller = SimpleNamespace(on_verdict=None, on_say=None)
        self.wake = threading.Event()

    def begin(self) -> None: ...

    def run(self, stopping: Any) -> None:
        for verdict in self.told:
            self.controller.on_verdict(verdict)

    def close(self) -> None: ...


def test_one_line_per_episode(capsys: pytest.CaptureFixture[str], restore_signals: None) -> None:
    from minder.cli.watch import _watch

    page = Verdict(1500.0, "machine", "page", ("m1",), "stall", 0.6, 1400.0)
    evict = Verdict(1600.0, "machine", "evict", ("m1",), "stall", 0.9, 1400.0)
    over = Verdict(1700.0, "recovered", "watch", ("m1",), "stall", 0.9, 1400.0)
    _watch(FakeApp(page, evict, over, evict), "jsonl", None, ends_with_job=False)  # type: ignore[arg-type]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["kind"], line["tier"], line["recording"]) for line in lines] == [
        ("machine", "page", "llm"),
        ("recovered", "watch", "llm"),
        ("machine", "evict", "llm"),
    ]


def test_for_people_a_verdict_is_a_sentence_said_once(capsys: pytest.CaptureFixture[str], restore_signals: None) -> None:
    from minder.cli.watch import _watch

    evidence = (Evidence("telemetry", "m1", "", "gpu_power_draw_watts", None, 131.2, 548.0, 1400.0),)
    app = FakeApp(
        Verdict(1600.0, "machine", "evict", ("m1",), "stall", 0.9, 1400.0, evidence=evidence),
        Verdict(1700.0, "recovered", "watch", ("m1",), "stall", 0.9, 1400.0),
        Verdict(1800.0, "job", "page", (), "stall", 0.7, 1750.0),
    )
    _watch(app, "table", None, ends_with_job=False)  # type: ignore[arg-type]
    said = capsys.readouterr()
    evict, over, job = said.out.splitlines()
    assert "m1 should be evicted: stall since 00:23:20 UTC, confidence 0.90" in evict
    assert "because gpu_power_draw_watts 131.2 (expected 548)" in evict
    assert "m1 is as its peers again" in over and "no machine is to blame" in job
    assert said.err == "" and not app.controller.says_verdicts


@pytest.mark.parametrize(("terminal", "usual"), [(True, "table"), (False, "jsonl")])
def test_people_get_sentences_and_programs_get_lines(terminal: bool, usual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.cli.watch import _usual_format

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: terminal))
    assert _usual_format() == usual


def test_it_ends_when_the_job_is_over_unless_it_is_to_stay(restore_signals: None) -> None:
    from minder.cli.watch import _watch

    class Waits(FakeApp):
        attachment = SimpleNamespace(over=True)

        def run(self, stopping: Any) -> None:
            self.ended = stopping.wait(1.0)

    app = Waits()
    _watch(app, "jsonl", None, ends_with_job=True)  # type: ignore[arg-type]
    assert app.ended


@pytest.fixture
def restore_signals() -> Any:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.lab
def test_pids_of_this_machine_are_watched_until_they_are_gone(tmp_path: Path) -> None:
    """Its own agent and nothing else is started, and everything ends with the processes."""
    code = "import sys, time\nfor step in range(1, 60):\n print(f'iteration {step}/ 60 | lm loss: 2.0 |', flush=True)\n time.sleep(0.2)"
    log = tmp_path / "log"
    with log.open("wb") as output:
        job = subprocess.Popen([sys.executable, "-c", code], stdout=output)
    environment = {**os.environ, "MINDER_STATE_DIR": str(tmp_path / "state")}
    words = ["watch", "--pids", str(job.pid), "--log", str(log), "--format", "table"]
    watcher = subprocess.run([sys.executable, "-m", "minder", *words], env=environment, capture_output=True, text=True, timeout=120)
    assert job.wait() == 0
    assert (watcher.returncode, watcher.stdout) == (0, ""), watcher.stderr
    for phrase in ("attached to watched: 1 machine", "steps from its ranks", "no process of the job is left", "the job watched is over"):
        assert phrase in watcher.stderr
    status = json.loads((tmp_path / "state/jobs/watched/watch/status.json").read_text())
    assert status["step"] >= 50  # steps of its last second went with it
