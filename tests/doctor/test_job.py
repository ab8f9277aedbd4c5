"""A job.toml, looked at against agents that answer as they should, as somebody else, in the past, or not at all."""

from __future__ import annotations

import http.server
import importlib.util
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder import __version__
from minder.config import JobConfig, MachineConfig
from minder.doctor.finding import Finding
from minder.doctor.job import look_at_job, look_at_tokens
from minder.wire.machine_tokens import give_token


@pytest.fixture
def agent() -> Iterator[Callable[..., str]]:
    """agent(machine, offset_s, version, status) -> the address of something that answers as such an agent."""
    servers = []

    def make(machine: str, offset_s: float = 0.0, version: str = __version__, status: int = 200) -> str:
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"machine": machine, "version": version, "started_s": 1.0, "now_s": time.time() + offset_s}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def looked(tmp_path: Path, agents: dict[str, str], **more: Any) -> dict[str, Finding]:
    machines = tuple(MachineConfig(name=name, agent=address) for name, address in agents.items())
    config = JobConfig(name="llm", machines=machines, state_dir=str(tmp_path / "state"), **more)
    return {item.check: item for item in look_at_job(config, {})}


@pytest.mark.parametrize(("spec", "status"), [(object(), "ok"), (None, "missing")], ids=["there", "not there"])
def test_a_job_with_launchers_needs_torch_where_its_controller_runs(
    tmp_path: Path, agent: Any, monkeypatch: pytest.MonkeyPatch, spec: Any, status: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: spec if name == "torch" else real(name, *rest))
    machines = (MachineConfig(name="m1", agent=agent("m1"), launcher="http://127.0.0.1:1"), MachineConfig(name="m2", agent=agent("m2")))
    config = JobConfig(name="llm", machines=machines, state_dir=str(tmp_path / "state"))
    assert {item.check: item.status for item in look_at_job(config, {})}["torch"] == status


def test_a_job_whose_parts_are_all_there(tmp_path: Path, agent: Any) -> None:
    found = looked(tmp_path, {"m1": agent("m1"), "m2": agent("m2")}, checkpoint_dir=str(tmp_path))
    assert {check: item.status for check, item in found.items() if check != "space for checkpoints"} == {
        "ledger": "ok", "space for state": "ok", "agents": "ok", "versions": "ok", "clocks": "ok",
    }  # fmt: skip


def test_what_is_wrong_is_named_with_the_machine_and_how_to_mend_it(tmp_path: Path, agent: Any) -> None:
    agents = {
        "m1": agent("m1"), "m2": "http://127.0.0.1:9", "m3": agent("m3", status=401), "m4": agent("m4", offset_s=-40.0),
        "m5": agent("m6"), "m6": agent("m6", version="0.0.1"),
    }  # fmt: skip
    found = looked(tmp_path, agents)
    assert found["agents"].status == "missing" and found["agents"].seen.startswith("4 of 6 answer")
    assert "m2" in found["agents"].seen and "m3" in found["agents"].seen and "401" in found["agents"].seen
    assert found["clocks"].status == "missing" and "m1" not in found["clocks"].seen
    assert re.search(r"m4 -(39|40)\.\d s", found["clocks"].seen)
    assert found["machine names"].seen == "the agent of m5 calls itself m6"
    assert found["versions"].status == "note" and "0.0.1 on 1" in found["versions"].seen
    assert all(item.mend for item in found.values() if item.status == "missing")


def test_of_agents_of_which_none_answers_neither_version_nor_clock_is_known(tmp_path: Path, agent: Any) -> None:
    other = agent("m1", status=404)
    found = looked(tmp_path, {"m1": other})
    assert found["agents"].status == "missing" and f"m1 at {other}: HTTP 404" in found["agents"].seen
    assert "address" in found["agents"].mend
    assert "versions" not in found and "clocks" not in found and found["versions, clocks"].status == "note"


def test_a_ledger_that_cannot_be_written_is_missing(tmp_path: Path, agent: Any) -> None:
    (tmp_path / "state/ledger.db").mkdir(parents=True)
    found = looked(tmp_path, {"m1": agent("m1")})
    assert found["ledger"].status == "missing" and "ledger.db" in found["ledger"].seen


def test_a_prometheus_that_does_not_answer_is_missing(tmp_path: Path, agent: Any) -> None:
    found = looked(tmp_path, {"m1": agent("m1")}, telemetry={"url": "http://127.0.0.1:9"})
    assert found["prometheus"].status == "missing" and "does not answer" in found["prometheus"].seen


def test_token_files_are_told_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("secret")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "good").write_text("secret")
    (tmp_path / "good").chmod(0o600)
    path = tmp_path / "job.toml"
    path.write_text('agent_token_file = "open"\nlauncher_token_file = "good"\n[metrics]\ntoken_file = "gone"\n')
    found = {item.check: item for item in look_at_tokens(path)}
    assert {check: item.status for check, item in found.items()} == {
        "agent_token_file": "missing", "launcher_token_file": "ok", "metrics.token_file": "missing",
    }  # fmt: skip
    assert found["agent_token_file"].mend.startswith("run `chmod 600 ")


def test_a_folder_of_tokens_is_one_finding_that_names_the_machine_without(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('machine_token_dir = "tokens"\n[[machines]]\nname = "m0"\n[[machines]]\nname = "m1"\n')
    for status in ("missing", "ok"):
        (found,) = look_at_tokens(path)
        assert (found.check, found.status) == ("machine_token_dir", status)
        assert status == "ok" or ("no token of m0" in found.seen and "minder token machine" in found.mend)
        for name in ("m0", "m1"):
            give_token(tmp_path / "tokens", name)
