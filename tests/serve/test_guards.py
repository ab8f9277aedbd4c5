from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from serve.buckets import Buckets
from serve.guards import UPLOAD_PATHS, BodyBounds
from serve.metrics import Metrics
from serve.settings import Limits

As = Callable[..., dict[str, str]]


def test_a_bucket_refuses_after_the_burst_and_fills_again() -> None:
    now_s = 100.0
    buckets = Buckets(rate=2.0, burst=3.0, clock=lambda: now_s)
    assert [buckets.take("a") for _ in range(3)] == [0.0] * 3
    assert buckets.take("a") == pytest.approx(0.5) and buckets.take("b") == 0.0
    now_s = 100.5
    assert buckets.take("a") == 0.0 and buckets.take("a") > 0.0


def test_a_bucket_remembers_a_bounded_number_of_callers() -> None:
    buckets = Buckets(rate=1.0, burst=1.0, clock=lambda: 0.0)
    for number in range(20_000):
        buckets.take(str(number))
    assert len(buckets._left) == 10_000


def test_an_action_has_a_small_body(http: httpx.Client, as_: As) -> None:
    headers = as_("operator") | {"Idempotency-Key": "a", "Content-Type": "application/json"}
    for body in (b'"' + b"x" * 70_000 + b'"', (b"x" * 10_000 for _ in range(8))):
        answer = http.post("/v1/pauses", content=body, headers=headers)
        assert answer.status_code == 413 and "65536 bytes" in answer.json()["detail"]


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def run() -> list[Any]:
        sent: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            from starlette.exceptions import HTTPException

            with pytest.raises(HTTPException) as caught:
                await receive()
            sent.append(caught.value.status_code)

        async def receive() -> Any:
            await asyncio.sleep(3600.0)

        async def send(message: Any) -> None:
            sent.append(message)

        await BodyBounds(app, Limits(body_s=0.01))({"type": "http", "path": "/v1/pauses", "headers": []}, receive, send)
        return sent

    assert asyncio.run(run()) == [408]


def test_metrics_count_by_route_and_never_by_what_a_caller_typed(http: httpx.Client, as_: As) -> None:
    headers = as_("operator")
    http.get("/v1/incidents/llm-1", headers=headers)
    http.get("/v1/made-up-by-a-caller", headers=headers)
    http.post("/v1/pauses", json={"scope": "all", "seconds": 5, "reason": "x"}, headers=headers | {"Idempotency-Key": "a"})
    text = http.get("/v1/metrics", headers=headers).text
    assert 'minder_service_requests_total{method="GET",route="/v1/incidents/{incident}",status="200"} 1.0' in text
    assert 'minder_service_actions_total{route="/v1/pauses"} 1.0' in text and "made-up" not in text and "llm-1" not in text
    assert Metrics().registry is not Metrics().registry


def test_the_contract_names_every_route_its_problems_and_its_scheme(http: httpx.Client) -> None:
    document = http.get("/v1/openapi.json").json()
    assert all(path.startswith("/v1/") for path in document["paths"])
    operations = {(path, method): item for path, methods in document["paths"].items() for method, item in methods.items()}
    assert all("application/problem+json" in item["responses"]["422"]["content"] for item in operations.values())
    open_ones = {path for (path, _), item in operations.items() if not item.get("security")}
    assert open_ones == {"/v1/health", "/v1/ready"}
    no_actions = (*UPLOAD_PATHS, "/v1/policy/dry-run")  # signals are taken once by their own ids
    actions = [
        item
        for (path, method), item in operations.items()
        if method in ("post", "delete") and path not in no_actions and not any(word in path for word in ("/signals", "/sessions", "/code"))
    ]
    assert len(actions) == 18
    for item in actions:
        assert any(parameter["name"].lower() == "idempotency-key" and parameter["required"] for parameter in item["parameters"])
    assert set(document["components"]["schemas"]) >= {"Problem", "IncidentDetail", "ScoreResult"} and json.dumps(document)


@pytest.mark.parametrize(("path", "said"), [
    ("incidents?sate=open", 'no query parameter "sate" here: did you mean state?'),
    ("incidents/llm-1?verbose=1", 'no query parameter "verbose" here: it takes none'),
    ("machines?bared=true&limit=2", "did you mean barred?"),
])  # fmt: skip
def test_a_query_parameter_that_is_none_is_refused(http: httpx.Client, as_: As, path: str, said: str) -> None:
    found = http.get(f"/v1/{path}", headers=as_())
    assert found.status_code == 422 and said in found.json()["detail"]
    for fine in ("incidents?state=open&job=llm&limit=3", "pauses?limit=200", "standbys?job=llm&limit=200", "maintenance?limit=200"):
        assert http.get(f"/v1/{fine}", headers=as_()).status_code == 200, fine


def test_no_redirect_is_built_from_a_host_that_the_caller_names(http: httpx.Client, as_: As) -> None:
    answer = http.get("/v1/incidents/", headers=as_() | {"Host": "evil.example"}, follow_redirects=False)
    assert answer.status_code == 404 and "location" not in answer.headers
