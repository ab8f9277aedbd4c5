from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from minder.act.policy.config import PolicyConfig
from minder.config import JobConfig, MachineConfig
from minder.model.clock import FakeClock
from serve.pages.fleet import health_of
from serve.state import Service
from tests.serve.browsing import send_token, token_of

As = Callable[..., dict[str, str]]


@pytest.fixture
def told(service: Service, tmp_path: Path, clock: FakeClock) -> Service:
    """A service that was told of the job's job.toml, and sees its controller's status."""
    config = JobConfig(name="llm", machines=(MachineConfig(name="m1"),), policy={"max_restarts": 7})
    service.settings.jobs["llm"] = config
    service.settings.status_files["llm"] = tmp_path / "status.json"
    (tmp_path / "status.json").write_text(json.dumps({"job": "llm", "now_s": clock.now_s() - 30.0, "step": 41}))
    return service


def test_a_job_is_what_its_events_say_and_a_status_has_an_age(told: Service, http: httpx.Client, as_: As) -> None:
    headers = as_()
    (job,) = http.get("/v1/jobs", headers=headers).json()["items"]
    assert (job["name"], job["phase"], job["generation"], job["machines"], job["barred"]) == ("llm", "running", 2, ["m1", "s1"], ["m2"])
    assert job["open_incidents"] == ["llm-2"]
    found = http.get("/v1/jobs/llm", headers=headers).json()
    assert {name: found[name] for name in job} == job
    assert found["status"]["step"] == 41 and found["status_age_s"] == 30.0
    told.settings.status_files["llm"].write_text('{"job": "another"}')
    assert http.get("/v1/jobs/llm", headers=headers).json()["status"] is None


def test_the_policy_is_the_jobs_own_or_the_defaults(told: Service, http: httpx.Client, as_: As) -> None:
    headers = as_()
    ladder = PolicyConfig().ladder.model_dump(exclude_none=True)
    expected = json.loads(json.dumps({**dataclasses.asdict(PolicyConfig()), "ladder": ladder}))
    assert http.get("/v1/policy", headers=headers).json()["settings"] == expected
    tried = {"job": "llm", "policy": {"ladder": {**ladder, "network_alerts": "evict"}}}
    assert http.post("/v1/policy/dry-run", headers=headers, json=tried).status_code == 200, "what is shown can be tried"
    own = http.get("/v1/policy?job=llm", headers=headers).json()
    assert (own["source"], own["settings"]["max_restarts"]) == ("job.toml of llm", 7)


def test_whether_a_controller_acts_is_its_own_word_since_job_toml_does_not_say(told: Service, http: httpx.Client, as_: As) -> None:
    headers, path = as_(), told.settings.status_files["llm"]
    assert "dry_run" not in http.get("/v1/policy?job=llm", headers=headers).json()["settings"]
    status = json.loads(path.read_text())
    for dry_run in (True, False):
        path.write_text(json.dumps(status | {"dry_run": dry_run}))
        own = http.get("/v1/policy?job=llm", headers=headers).json()
        assert own["settings"]["dry_run"] is dry_run and "its controller's last word" in own["source"]
        health = health_of(told, "llm", "running")
        assert health.dry_run is dry_run


def test_the_page_says_that_no_step_is_read_and_what_to_do(told: Service, clock: FakeClock) -> None:
    path = told.settings.status_files["llm"]
    status = {"job": "llm", "now_s": clock.now_s(), "step": None, "no_steps": "no step has been read; give --step-pattern"}
    path.write_text(json.dumps(status))
    assert health_of(told, "llm", "running").no_steps == status["no_steps"]
    path.write_text(json.dumps(status | {"not_judged": {"m3": "gpu_sm_activity_ratio fell alone"}}))
    assert health_of(told, "llm", "running").troubles == ("telemetry of m3 is not believed: gpu_sm_activity_ratio fell alone",)
    path.write_text(json.dumps(status | {"now_s": clock.now_s() - 60.0}))
    assert health_of(told, "llm", "running").no_steps == "", "an old status says nothing of now"


MODE = {"likeliest": "stalled", "since_s": 1_700_000_000.0, "source": "step counter", "probabilities": {"stalled": 0.93, "stepping": 0.07}}


@pytest.mark.parametrize(("mode", "age_s", "said"), [
    (MODE, 0.0, "the job stands still since"),
    (MODE | {"source": "workers"}, 0.0, "by its workers, of which some have ended"),
    (MODE | {"likeliest": "idle_phase", "source": "phase event"}, 0.0, "the job is in a phase that it declared"),
    (MODE | {"likeliest": None}, 0.0, "nothing reports what the job is doing"),
    (MODE | {"likeliest": "dreaming"}, 0.0, "nothing reports what the job is doing"),  # of a later version
    (None, 0.0, "nothing reports what the job is doing"),
    (MODE, 60.0, "nothing reports what the job is doing"),  # an old status says nothing of now
])  # fmt: skip
def test_the_page_says_in_one_line_what_the_job_is_doing(
    mode: object, age_s: float, said: str, service: Service, http: httpx.Client, tmp_path: Path, clock: FakeClock
) -> None:
    service.settings.status_files["llm"] = path = tmp_path / "status.json"
    path.write_text(json.dumps({"job": "llm", "now_s": clock.now_s() - age_s, "phase": "running", "mode": mode}))
    assert send_token(http, token_of(service, "viewer")).status_code == 303
    page = html.unescape(http.get("/jobs/llm").text)
    assert said in page
    assert ("93 % likely, by its steps" in page) == ("the job stands still" in said)


@pytest.mark.parametrize(("work", "said"), [
    ({"unit": "tokens", "relative": 0.934, "rate": 1.0, "best": 1.1}, "0.93 of the best ten minutes of this code, in tokens"),
    ({"unit": "tokens", "relative": None, "rate": None, "best": None}, "unknown no ten minutes yet"),
    (None, "unknown steps carry neither samples nor tokens"),
])  # fmt: skip
def test_the_page_says_how_fast_the_job_works_or_that_it_is_unknown(
    work: object, said: str, service: Service, http: httpx.Client, tmp_path: Path, clock: FakeClock
) -> None:
    service.settings.status_files["llm"] = path = tmp_path / "status.json"
    path.write_text(json.dumps({"job": "llm", "now_s": clock.now_s(), "phase": "running", "work": work}))
    assert send_token(http, token_of(service, "viewer")).status_code == 303
    page = re.sub(r"<[^>]+>", "", html.unescape(http.get("/jobs/llm").text))
    assert said in page


def test_other_settings_are_tried_on_the_past_and_nothing_is_written(http: httpx.Client, as_: As, service: Service) -> None:
    headers = as_()
    last = service.events.last_id()

    def try_out(policy: dict[str, object]) -> httpx.Response:
        return http.post("/v1/policy/dry-run", json={"job": "llm", "policy": policy}, headers=headers)

    same = try_out({}).json()
    assert (same["verdicts"], same["evictions_then"], same["evictions_now"], same["changed"]) == (1, 1, 1, [])
    (changed,) = try_out({"max_evictions_per_job": 0}).json()["changed"]
    assert (changed["incident"], changed["then"], changed["now"], changed["now_reason"]) == ("llm-1", "evict", "page", "budget_job")
    for policy, said in (({"nonsense": 1}, "policy.nonsense is not a setting"), ({"breaker_share": 2}, "policy.breaker_share is 2")):
        answer = try_out(policy)
        assert answer.status_code == 422 and said in answer.json()["detail"]
    assert http.post("/v1/policy/dry-run", json={"job": "nobody"}, headers=headers).status_code == 404
    assert service.events.last_id() == last


def test_a_rule_that_fails_now_is_shown_on_the_jobs_page_and_in_its_status(
    service: Service, http: httpx.Client, tmp_path: Path, clock: FakeClock, as_: As
) -> None:
    service.settings.status_files["llm"] = tmp_path / "status.json"
    failing = {"failing": {"rule:stall": "KeyError: 'rank'"}, "errors": {"rule:stall": 12, "telemetry": 3}}
    (tmp_path / "status.json").write_text(json.dumps({"job": "llm", "now_s": clock.now_s(), "phase": "running", **failing}))
    assert http.get("/v1/jobs/llm", headers=as_("viewer")).json()["status"]["failing"] == failing["failing"]
    assert send_token(http, token_of(service, "viewer")).status_code == 303
    page = html.unescape(http.get("/jobs/llm").text)
    assert "rule stall fails now (KeyError: 'rank'); its silence means nothing" in page
    assert "rule stall failed 12 times" in page and "telemetry failed 3 times" in page
