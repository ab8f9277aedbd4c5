"""One more standby over HTTP: the job's tokens go to no host that the site has not allowed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from minder.record.incidents import Ledger, kinds
from serve.settings_file import ServiceFile
from serve.state import Service

As = Callable[..., dict[str, str]]
BODY = {"machine": "n9", "agent": "http://10.0.0.9:9401", "launcher": "http://10.0.0.9:9402", "reason": "s1 took over"}


@pytest.fixture
def send(http: httpx.Client, service: Service, as_: As) -> Callable[..., httpx.Response]:
    """send(role, job, **changes) -> the answer of a service that allows 10.0.0.0/24."""
    service.settings = dataclasses.replace(service.settings, file=ServiceFile(standby_hosts=("10.0.0.0/24", "node-*")))

    def call(role: str = "operator", job: str = "llm", key: str = "k1", **changes: Any) -> httpx.Response:
        headers = as_(role) | {"Idempotency-Key": key}
        return http.post(f"/v1/jobs/{job}/standbys", json=BODY | changes, headers=headers)

    return call


def test_an_order_stands_in_the_ledger_for_the_controller(send: Callable[..., httpx.Response], ledger: Ledger) -> None:
    answer = send(rack="r12", block="b1")
    assert answer.status_code == 201, answer.text
    (event,) = ledger.events(kinds=[kinds.STANDBY_ADDED])
    assert answer.json()["detail"].startswith(f"{event.operation_id}: n9 is to join llm") and event.job == "llm"
    order = {key: event.payload[key] for key in ("machine", "agent", "launcher", "rack", "switch", "block", "reason")}
    assert order == BODY | {"rack": "r12", "switch": None, "block": "b1"} and event.payload["by"].startswith("operator")


@pytest.mark.parametrize(("changes", "status", "said"), [
    ({"agent": "http://10.9.0.9:9401"}, 403, "agent: 10.9.0.9 is none of the hosts in standby_hosts"),
    ({"launcher": "http://evil.example.org:80"}, 403, "launcher: evil.example.org"),
    ({"agent": "http://user:x@10.0.0.9:1"}, 422, "agent"),
    ({"agent": "http://10.0.0.9:1/x"}, 422, "agent"),
    ({"agent": "http://[::1:9401"}, 422, "agent is no address"),
    ({"job": "nobody"}, 409, 'no job "nobody" runs'),
    ({"role": "viewer"}, 403, "operator"),
])  # fmt: skip
def test_what_may_not_be_is_refused_and_written_nowhere(
    send: Callable[..., httpx.Response], ledger: Ledger, changes: dict[str, str], status: int, said: str
) -> None:
    answer = send(**changes)
    assert answer.status_code == status and said in answer.json()["detail"], answer.text
    assert ledger.events(kinds=[kinds.STANDBY_ADDED]) == []


def test_without_the_setting_no_standby_may_be_added(http: httpx.Client, as_: As) -> None:
    answer = http.post("/v1/jobs/llm/standbys", json=BODY, headers=as_("admin") | {"Idempotency-Key": "k"})
    assert answer.status_code == 403 and "standby_hosts" in answer.json()["detail"]
