"""Jobs that are registered through the API: what is taken, what is refused, what stands in the ledger."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.model.errors import BadInputError, ConfigError
from minder.record.client import Client
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.timeline import describe
from minder.wire.machine_tokens import give_token
from minder.wire.tokens import read_token
from serve.app import build_app
from serve.settings import Limits, Settings
from serve.settings_file import ServiceFile
from serve.state import Service, open_service
from serve.watching import watchers
from serve.watching.allowed import allow_config, read_document, watched_config
from serve.watching.settings import JobsSettings
from tests.serve.browsing import token_of
from tests.serve.conftest import NOW_S, TestClient

As = Callable[..., dict[str, str]]
JOB: dict[str, Any] = {
    "name": "vision",
    "machines": [{"name": "n1", "agent": "http://127.0.0.1:9401"}, {"name": "n2", "agent": "http://127.0.0.1:9402", "rack": "r1"}],
}
TOML = """
name = "vision"
[[machines]]
name = "n1"
agent = "http://127.0.0.1:9401"
launcher = "http://127.0.0.1:9501"
[environment]
WANDB_API_KEY = "secret"
"""
SETTINGS = JobsSettings()


@pytest.fixture
def service(ledger: Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """One that registers jobs; what watches them has a test of its own (tests/scenarios/test_registered.py)."""

    async def nothing(self: object) -> None: ...

    monkeypatch.setattr(watchers.Watchers, "run", nothing)
    opened = open_service(Settings(ledger.location, file=ServiceFile(jobs=JobsSettings(most=2))), clock)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def refusing(past: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Ledger]]:
    """A client of an administrator, and the ledger, for tests of what is refused: that changes nothing."""
    path = shutil.copy(past, tmp_path_factory.mktemp("refusing") / "ledger.db")
    clock, limits = FakeClock(NOW_S), Limits(rate=1e6, burst=1e6, failure_rate=1e6, failure_burst=1e6)
    with contextlib.ExitStack() as stack:
        opened = open_service(Settings(str(path), limits=limits, file=ServiceFile(jobs=JobsSettings(most=2))), clock)
        stack.callback(opened.close)
        ledger = stack.enter_context(Ledger(path, clock=clock))
        http = stack.enter_context(TestClient(build_app(opened), raise_server_exceptions=False))
        http.headers["Authorization"] = f"Bearer {token_of(opened, 'admin')}"
        yield http, ledger


@pytest.fixture
def admin(as_: As) -> dict[str, str]:
    return as_("admin", name="ada")


def register(http: httpx.Client, headers: dict[str, str], job: Any = JOB, key: str = "k1", **params: str) -> httpx.Response:
    return http.post("/v1/jobs", json=job, headers={**headers, "Idempotency-Key": key}, params={"reason": "new run", **params})


def end(http: httpx.Client, headers: dict[str, str], name: str = "vision", key: str = "e1") -> httpx.Response:
    return http.delete(f"/v1/jobs/{name}", headers={**headers, "Idempotency-Key": key}, params={"reason": "the run is over"})


def test_a_job_is_registered_once_seen_by_all_and_ended_with_its_history(
    http: httpx.Client, ledger: Ledger, admin: dict[str, str], as_: As
) -> None:
    first, again = register(http, admin), register(http, admin)
    assert first.status_code == 201 and first.json()["detail"] == "vision is watched from now on, in dry run"
    assert again.json() == first.json() and again.headers["Idempotent-Replayed"] == "true"
    shown = http.get("/v1/jobs/vision", headers=as_()).json()
    assert shown["watched"] and shown["machines"] == ["n1", "n2"] and shown["phase"] == "starting"
    assert shown["status"] is None, "nobody watched it yet: nothing is known"
    assert end(http, admin).status_code == 201
    shown = http.get("/v1/jobs/vision", headers=as_()).json()
    assert not shown["watched"] and shown["phase"] == "finished"
    told = {event.kind: event for event in ledger.events(job="vision")}
    assert list(told) == [kinds.JOB_REGISTERED, kinds.JOB_WATCHED, kinds.JOB_UNWATCHED, kinds.JOB_ENDED]
    assert {event.payload["by"] for event in told.values()} == {"ada"}
    assert [describe(told[kind]) for kind in (kinds.JOB_WATCHED, kinds.JOB_UNWATCHED)] == [
        "the service is to watch the job: new run",
        "the service watches the job no longer: the run is over",
    ]
    assert register(http, admin, key="k2").status_code == 201, "an ended job's name is free"


def test_toml_is_taken_and_what_runs_a_job_is_left_out(http: httpx.Client, ledger: Ledger, admin: dict[str, str]) -> None:
    headers = {**admin, "Idempotency-Key": "k", "Content-Type": "application/toml"}
    assert http.post("/v1/jobs?reason=x", content=TOML, headers=headers).status_code == 201
    (event,) = ledger.events(kinds=[kinds.JOB_WATCHED])
    assert event.payload["config"] == {"name": "vision", "machines": [{"name": "n1", "agent": "http://127.0.0.1:9401"}]}


def test_only_an_admin_of_the_job_registers_it_with_a_reason_and_a_key(http: httpx.Client, admin: dict[str, str], as_: As) -> None:
    assert register(http, as_("operator")).status_code == 403
    assert register(http, as_("admin", jobs=("llm",))).status_code == 403
    assert register(http, admin, reason=" ").status_code == 422
    assert http.post("/v1/jobs?reason=x", json=JOB, headers=admin).status_code == 422
    assert end(http, admin, "llm").status_code == 404, "it was not registered here"


def test_a_name_that_is_taken_and_a_job_too_many_are_conflicts(http: httpx.Client, admin: dict[str, str]) -> None:
    taken = register(http, admin, {**JOB, "name": "llm"})
    assert taken.status_code == 409 and '"llm" is taken' in taken.json()["detail"]
    assert register(http, admin).status_code == 201
    assert register(http, admin, key="k2").status_code == 409
    assert register(http, admin, {**JOB, "name": "b"}, "k3").status_code == 201
    more = register(http, admin, {**JOB, "name": "c"}, "k4")
    assert more.status_code == 409 and "2 jobs are watched already" in more.json()["detail"]


def test_a_service_without_jobs_in_its_settings_says_how_to_have_them(http: httpx.Client, service: Service, admin: dict[str, str]) -> None:
    service.settings = replace(service.settings, file=ServiceFile())
    answer = register(http, admin)
    assert answer.status_code == 403 and "[jobs] table" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machines": []}, "at least one machine"),
        ({"machines": [{"name": "n1"}]}, "nothing would be seen"),
        ({"ranks_per_machine": 3, "parallelism": {"tensor": 4}}, "parallel"),
        ({"ranks_per_machine": 10**9}, "too large"),
        ({"parallelism": {"tensor": 0}}, "parallelism.tensor"),
        ({"colour": "red"}, "colour"),
        ({"policy": {"max_evictions": 1}}, "max_evictions"),
        ({"name": "../etc"}, "name"),
        ({"agent_token_file": "/etc/shadow"}, "agent_token_file"),
        ({"machine_token_dir": "/etc"}, "machine_token_dir"),
        ({"state_dir": "/tmp", "record_dir": "/tmp"}, "state_dir, record_dir"),
        ({"detector": {"model": "/etc/model"}}, "detector.model"),
        ({"telemetry": {"mapping": "/etc/x.toml"}}, "telemetry.mapping"),
        ({"telemetry": {"headers": {"Authorization": "x"}}}, "telemetry.headers"),
        ({"telemetry": {"ca_file": "/etc/shadow", "tenant": "x"}}, "telemetry.ca_file, telemetry.tenant"),
        ({"telemetry": {"username": "x", "password_file": "/etc/shadow"}}, "telemetry.password_file, telemetry.username"),
        ({"telemetry": {"interval_s": 1e-9}}, "telemetry.interval_s"),
        ({"scoring": {"engine": "ray", "ray_address": "10.0.0.1:6379"}}, "scoring"),
        ({"metrics": {"listen": "127.0.0.1:1"}}, "metrics"),
        ({"machines": [{"name": "n1", "agent": "http://10.0.0.1:9401"}]}, "10.0.0.1 is not among the hosts"),
        ({"machines": [{"name": "n1", "agent": "http://127.0.0.1@evil.example:9401"}]}, "plain address"),
        ({"machines": [{"name": "n1", "agent": "http://evil.example\\@127.0.0.1"}]}, "plain address"),
        ({"machines": [{"name": "n1\ud800", "agent": "http://127.0.0.1:1"}]}, ""),
        ({"machines": [{"name": "n1", "agent": "http://127.0.0.1:1", "local": {"run_dir": "/"}}]}, "machines.local"),
        ({"engine": {"kind": "slurm", "job": 7, "agent": "http://{node}:9401"}}, "engine.kind slurm may not be used"),
    ],
)
def test_what_does_not_hold_or_is_not_this_job_s_business_is_refused(
    refusing: tuple[httpx.Client, Ledger], change: dict[str, Any], said: str
) -> None:
    http, ledger = refusing
    body = json.dumps({**JOB, **change}).encode()
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = http.post("/v1/jobs?reason=x", content=body, headers=headers)
    assert answer.status_code == 422 and said in answer.json()["detail"]
    assert ledger.events(kinds=[kinds.JOB_WATCHED]) == []


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b"\xff", b"[1]", b'{"ranks_per_machine": NaN}', b"9" * 5000, b""])
def test_a_body_that_is_no_document_is_refused(refusing: tuple[httpx.Client, Ledger], body: bytes) -> None:
    http, _ = refusing
    for kind in ("application/json", "application/toml"):
        headers = {"Idempotency-Key": "k", "Content-Type": kind}
        assert http.post("/v1/jobs?reason=x", content=body, headers=headers).status_code == 422


def test_an_engine_that_the_service_allows_is_taken_but_not_to_send_the_token_elsewhere() -> None:
    engine = {"kind": "slurm", "job": 7, "agent": "http://{node}:9401"}
    allowed = JobsSettings(engines=("slurm",))
    assert allow_config({"name": "vision", "engine": engine}, allowed).engine is not None
    with pytest.raises(BadInputError, match="its host must be the node itself"):
        allow_config({"name": "vision", "engine": {**engine, "agent": "http://evil.example/{node}"}}, allowed)
    with pytest.raises(BadInputError, match=r"engine\.conf"):
        allow_config({"name": "vision", "engine": {**engine, "conf": "/tmp/slurm.conf"}}, allowed)


def test_a_document_of_another_shape_is_refused_in_one_line() -> None:
    with pytest.raises(BadInputError, match="the job is not TOML"):
        read_document(b"name = ", "application/toml")
    with pytest.raises(BadInputError, match="name"):
        allow_config({}, SETTINGS)


def test_the_client_registers_and_ends(http: httpx.Client, admin: dict[str, str]) -> None:
    client = Client("http://testserver", admin["Authorization"].removeprefix("Bearer "), http=http)
    assert client.register_job(TOML.encode(), "new run").events
    assert [item.name for item in client.jobs() if item.watched] == ["vision"]
    assert "history stays" in client.end_job("vision", "over").detail


@pytest.mark.parametrize("token", ["", " \n", "to ken", "tök"])
def test_a_token_that_cannot_be_one_is_refused_before_any_request(token: str) -> None:
    with pytest.raises(BadInputError, match="the token"):
        Client("http://127.0.0.1:1", token)


def test_a_watched_job_shows_each_machine_its_own_token_and_one_without_is_refused(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        give_token(tmp_path, name)
    settings = JobsSettings(machine_token_dir=str(tmp_path))
    found = watched_config(allow_config(JOB, settings), settings).endpoints()
    assert [item.agent.token for item in found if item.agent] == [read_token(tmp_path / name) for name in ("n1", "n2")]
    stranger = {**JOB, "machines": [{"name": "n3", "agent": "http://127.0.0.1:9401"}]}
    with pytest.raises(ConfigError, match="machine_token_dir: no token of n3"):
        watched_config(allow_config(stranger, settings), settings)
    with pytest.raises(ValueError, match="not both"):
        JobsSettings(machine_token_dir=str(tmp_path), agent_token_file="x")
