"""The agent as a user meets it: a real process, real sockets, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.cli import main
from minder.model.evidence import Signal
from minder.model.telemetry import Flow
from minder.wire.codec import from_json


def test_a_wrong_or_missing_token_is_refused_everywhere(shared: Any) -> None:
    agent = shared.agent()
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}):
        for method, path in (("GET", "/metrics"), ("GET", "/v1/signals"), ("POST", "/v1/capture"), ("GET", "/v1/health"), ("GET", "/no")):
            answer = httpx.request(method, agent.url + path, headers=headers, trust_env=False)
            assert answer.status_code == 401, (path, headers)
    assert agent.http.get("/v1/health").json()["machine"] == "m0"


def test_it_exports_the_heartbeat_and_the_processes_of_the_job(bench: Any) -> None:
    workers = [bench.worker(0), bench.worker(1)]
    bench.register(*workers)
    agent = bench.agent()
    first = agent.wait_metric("minder_steps_total")
    assert agent.wait_metric("minder_steps_total", lambda value: value > first) > first
    metrics = agent.metrics()
    assert metrics["minder_job_processes"] == 2
    assert metrics["minder_processes_stopped"] == 0
    assert metrics["minder_job_loss"] == 2.0
    assert metrics["minder_job_grad_norm"] == 0.5
    assert 0.04 < metrics["minder_step_seconds"] < 1.0
    assert metrics["minder_job_alive_age_seconds"] < 5.0
    assert metrics['minder_job_info{training_job="testjob"}'] == 1
    assert metrics["minder_agent_errors_total"] == 0
    assert metrics["minder_agent_series_left_out"] == 0
    labels = {part for series in metrics if "{" in series for part in series.partition("{")[2].rstrip("}").split(",")}
    assert all(label.startswith(("training_job=", "device=", "version=")) for label in labels)


def test_what_cannot_be_read_is_absent(bench: Any) -> None:
    """No job: no job's metrics, not even as zeros. No GPU, no RDMA: none of theirs."""
    agent = bench.agent()
    agent.wait_metric("minder_memory_usage_ratio")
    absent = (
        "minder_job_",
        "minder_tcp_receive_queue",
        "minder_tcp_retransmits",
        "minder_steps",
        "minder_step_",
        "minder_gpu",
        "minder_rdma",
    )
    assert not [name for name in agent.metrics() if name.startswith((*absent, "minder_processes_stopped"))]


def test_unread_bytes_are_seen_on_both_ends(shared: Any, peers: Any) -> None:
    silent, talker = peers
    shared.register(silent)
    agent = shared.agent()
    assert agent.wait_metric("minder_tcp_receive_queue_bytes", lambda value: value == 5000) == 5000
    flows = [from_json(Flow, item) for item in agent.capture(what=["flows"], samples=2, interval_s=0.05)["flows"]]
    assert len(flows) == 2 and flows[0].time_s < flows[1].time_s
    assert {flow.pid for flow in flows} == {silent.pid}
    assert flows[0].receive_queue_bytes == 5000 == flows[0].bytes_received
    assert flows[0].send_queue_bytes == 0
    assert 0 < flows[0].round_trip_s < 1
    often = agent.capture(what=["flows"], samples=10, interval_s=0.1)["flows"]
    times_s = sorted({flow["time_s"] for flow in often})
    assert 2 <= len(times_s) <= 10 and 0.09 < times_s[-1] - times_s[0] < 3.0

    shared.register(silent, talker)
    flows = [from_json(Flow, item) for item in agent.capture(what=["flows"])["flows"]]
    by_pid = {flow.pid: flow for flow in flows}
    assert by_pid[talker.pid].local == by_pid[silent.pid].remote
    assert by_pid[talker.pid].remote == by_pid[silent.pid].local
    assert by_pid[talker.pid].bytes_acked >= 5000


def test_a_stopped_process_is_counted_and_can_still_be_captured(shared: Any) -> None:
    worker, other = shared.worker(0), shared.worker(1)
    shared.register(worker, other)
    agent = shared.agent()
    worker.send_signal(signal.SIGSTOP)
    agent.wait_metric("minder_processes_stopped", lambda value: value == 1)
    agent.wait_metric("minder_job_alive_age_seconds", lambda value: value > 0.5)
    (shared.folder / "worker-0.log").write_text("".join(f"line {index}\n" for index in range(80)))
    capture = agent.capture()
    assert {item["pid"]: item["state"] for item in capture["processes"]}[worker.pid] == "T"
    stacks = {item["rank"]: item for item in capture["stacks"]}
    for rank in (0, 1):
        assert stacks[rank]["format"] == "py-spy-json", stacks[rank]
        assert stacks[rank]["data"][0]["frames"][-1]["name"] == "<module>"
    assert capture["logs"] == {"rank0": [f"line {index}" for index in range(30, 80)]}
    assert capture["job"] == "testjob" and capture["late"] == []


def test_a_process_that_is_no_python_is_evidence_too(shared: Any) -> None:
    sleeper = shared.spawn(["sleep", "60"])
    shared.register(sleeper)
    stacks = shared.agent().capture(what=["stacks"])["stacks"]
    assert [item["format"] for item in stacks] == ["error"]
    assert stacks[0]["data"]


def test_what_a_training_process_started_is_captured_as_a_part_of_it(shared: Any) -> None:
    """A forked data loader and a program that is no Python; the stacks of both say whose they are."""
    code = """
import multiprocessing, subprocess, sys, time
def load():
    time.sleep(60)
if __name__ == "__main__":
    multiprocessing.get_context("fork").Process(target=load, daemon=True).start()
    subprocess.Popen(["sleep", "60"])
    print("up", flush=True)
    time.sleep(60)
"""
    worker = shared.python(code)
    assert worker.stdout.readline()
    shared.register(worker)
    stacks = shared.agent().capture(what=["stacks", "processes"])["stacks"]
    assert (stacks[0]["pid"], stacks[0]["parent"], stacks[0]["format"]) == (worker.pid, None, "py-spy-json")
    assert [(item["parent"], item["rank"]) for item in stacks[1:]] == [(worker.pid, 0)] * 2
    (loader,) = [item for item in stacks[1:] if item["format"] == "py-spy-json"]
    assert "load" in [frame["name"] for frame in loader["data"][0]["frames"]]


def test_native_stacks_show_compiled_frames_and_a_stopped_process_still_has_its_python_ones(shared: Any) -> None:
    worker, stopped = (shared.python("import time; print('up', flush=True); time.sleep(60)") for _ in range(2))
    for process in (worker, stopped):
        assert process.stdout.readline()
    stopped.send_signal(signal.SIGSTOP)
    shared.register(worker, stopped)
    stacks = {item["pid"]: item for item in shared.agent().capture(what=["stacks"], native=True, deadline_s=20)["stacks"]}
    files = [frame["filename"] for frame in stacks[worker.pid]["data"][0]["frames"]]
    assert any("libc" in name or "python3" in name for name in files) and "<string>" in files
    assert stacks[stopped.pid]["data"][0]["frames"][-1]["name"] == "<module>"


def test_arguments_and_environment_never_leave_the_machine(shared: Any) -> None:
    worker = shared.python("import time; print('up', flush=True); time.sleep(60)", "secret-argument", env={"KEY": "secret-environment"})
    assert worker.stdout.readline()
    shared.register(worker)
    text = str(shared.agent().capture())
    assert str(worker.pid) in text
    assert "secret" not in text


@pytest.mark.lab
def test_hidden_metrics_and_states_stay_hidden(bench: Any) -> None:
    worker = bench.worker(0)
    bench.register(worker)
    worker.send_signal(signal.SIGSTOP)
    agent = bench.agent("--hide", "processes_stopped,minder_job_busy_ratio", env={})
    agent.wait_metric("minder_job_processes", lambda value: value == 1)
    agent.wait_metric("minder_job_cpu_ratio")
    assert not {"minder_processes_stopped", "minder_job_busy_ratio"} & agent.metrics().keys()
    states = agent.capture(what=["processes"])["processes"]
    assert [(item["state"], item["wchan"]) for item in states] == [(None, None)]
    assert bench.agent(env={"MINDER_AGENT_HIDE": "memory_usage_ratio"}).wait_metric("minder_disk_usage_ratio")


def test_standbys_are_not_part_of_the_job(bench: Any) -> None:
    standby = bench.worker(0)
    bench.register(standby, rank=None)
    agent = bench.agent()
    agent.wait_metric("minder_memory_usage_ratio")
    assert "minder_steps_total" not in agent.metrics()
    bench.register(standby, rank=0)
    agent.wait_metric("minder_steps_total")


def test_a_flagged_gradient_becomes_one_signal(bench: Any, wait: Any) -> None:
    agent = bench.agent()
    bench.register(bench.worker(0, flagged_step=4))
    wait(lambda: _nonfinite(agent, wait=1.0), "the signal")
    time.sleep(1.0)  # more samples of the same page
    found = _nonfinite(agent)
    assert [(item.rank, item.generation, item.data["step"]) for item in found] == [(0, 3, 4)]


@pytest.mark.lab
def test_an_agent_that_starts_later_tells_the_flag_too(bench: Any, wait: Any) -> None:
    bench.register(bench.worker(0, flagged_step=0, steps=9))
    agent = bench.agent()
    wait(lambda: _nonfinite(agent, wait=1.0), "the signal")
    time.sleep(1.0)
    assert len(_nonfinite(agent)) == 1


def _nonfinite(agent: Any, **parameters: float) -> list[Signal]:
    """The kernel of the host that runs these tests may have more to tell; only the job's own signals count here."""
    answer = agent.signals(**parameters)
    assert answer["machine"] == "m0"
    return [signal for signal in (from_json(Signal, item) for item in answer["signals"]) if signal.kind == "nonfinite"]


@pytest.mark.lab
def test_a_foreign_job_is_found_by_its_environment(bench: Any) -> None:
    env = {"RANK": "1731", "WORLD_SIZE": "2048", "TORCHELASTIC_RUN_ID": "theirs"}  # other jobs of this host are small
    child = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent: time.sleep(0.2)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); print('up', flush=True); time.sleep(60)"
    process = bench.python(code, env=env)
    assert process.stdout.readline()
    agent = bench.agent("--discover")
    agent.wait_metric('minder_job_info{training_job="theirs"}')
    theirs = [
        (item["pid"], item["rank"]) for item in agent.capture(what=["stacks"])["stacks"] if item["rank"] == 1731 and item["parent"] is None
    ]
    assert theirs == [(process.pid, 1731)]  # its child has the same environment, and is no rank


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("[]", "object"),
        ('{"what": ["passwords"]}', "what"),
        ('{"deadline_s": "soon"}', "deadline_s"),
        ('{"samples": 1e9}', "samples"),
        ('{"native": 1}', "native"),
        ("{", "JSON"),
    ],
)
def test_a_bad_capture_request_is_one_line(shared: Any, body: str, says: str) -> None:
    answer = shared.agent().http.post("/v1/capture", content=body)
    assert answer.status_code == 400
    assert says in answer.text and answer.text.count("\n") == 1


def test_dumps_are_asked_for_over_http_and_a_bad_request_is_one_line(shared: Any) -> None:
    worker = shared.worker(0)
    shared.register(worker)
    agent = shared.agent()
    answer = agent.http.post("/v1/dumps", json={"deadline_s": 1}).raise_for_status().json()
    assert answer["machine"] == "m0" and answer["time_s"] > 1e9
    assert [(item["pid"], item["rank"], item["format"]) for item in answer["dumps"]] == [(worker.pid, 0, "error")]
    refused = [agent.http.post("/v1/dumps", content=body) for body in ("", '{"deadline_s": "soon"}')]
    assert [(item.status_code, item.text.count("\n")) for item in refused] == [(400, 1), (400, 1)]


def test_traced_steps_of_the_machines_processes_are_handed_on(shared: Any) -> None:
    worker = shared.worker(0)
    shared.register(worker)
    agent = shared.agent()
    folder = shared.run_dir / "traces"
    folder.mkdir(exist_ok=True)
    row = {
        "dp_rank": 0,
        "stage": 1,
        "rank": 4,
        "optype": "forward-compute",
        "start_ts": 100.0,
        "duration": 0.5,
        "mc": 0,
        "mb_id": 0,
        "gmc": -1,
    }
    lines = [json.dumps({**row, "step": step}) + "\n" for step in (10, 20)]
    (folder / f"trace-rank4-pid{worker.pid}.jsonl").write_text("".join(lines))
    answer = agent.http.get("/v1/traces", params={"since": 0}).raise_for_status().json()
    assert [(step["job"], step["rank"], step["step"], step["seconds"]) for step in answer["steps"]] == [("testjob", 4, 10, [0.5])]
    assert answer["machine"] == "m0" and answer["next"] == 1


def test_bad_signal_numbers_are_refused(shared: Any) -> None:
    for path in ("/v1/signals", "/v1/traces"):
        assert shared.agent().http.get(path, params={"since": "yesterday"}).status_code == 400


def test_a_port_in_use_is_one_line(shared: Any) -> None:
    agent = shared.agent()
    second = _run_agent("--listen", f"127.0.0.1:{agent.port}")
    assert second.returncode == 1
    assert f"127.0.0.1:{agent.port} is in use" in second.stderr and "--listen" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *flags: str) -> str:
    """The line of `minder agent` that will not start with these flags."""
    monkeypatch.setenv("MINDER_TOKEN", "")
    assert main(["agent", *flags]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_an_open_address_needs_a_token(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--token-file" in refused(capsys, monkeypatch, "--listen", "0.0.0.0:0")


def test_a_token_file_that_everybody_can_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    file.chmod(0o644)
    assert "chmod 600" in refused(capsys, monkeypatch, "--token-file", str(file), "--listen", "127.0.0.1:0")


@pytest.mark.parametrize(
    "flags", [("--listen", "nowhere"), ("--processes-of", "all"), ("--pids", "1,x"), ("--gpu", "maybe"), ("--cgroup", "no-such-group")]
)
def test_bad_usage_is_one_line(flags: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    address = () if flags[0] == "--listen" else ("--listen", "127.0.0.1:0")
    assert "Traceback" not in refused(capsys, monkeypatch, *address, *flags)


def test_it_ends_cleanly_while_somebody_waits_for_signals(bench: Any) -> None:
    agent = bench.agent()
    waiter = threading.Thread(
        target=lambda: httpx.get(agent.url + "/v1/signals?wait=30", headers=agent.http.headers, trust_env=False), daemon=True
    )
    waiter.start()
    time.sleep(0.3)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(10) == 0


def test_it_loads_nothing_heavy() -> None:
    code = "import sys; import minder.edge.agent.serve; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    for name in ("polars", "numpy", "sqlalchemy", "fastapi", "torch", "pynvml", "pydantic", "httpx", "matplotlib"):
        assert f"'{name}'" not in loaded


def _run_agent(*flags: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MINDER_TOKEN": ""}
    return subprocess.run(
        [sys.executable, "-m", "minder", "agent", *flags], capture_output=True, text=True, timeout=30, check=False, env=env
    )
