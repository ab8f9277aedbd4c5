"""The client against answers that a service may give, and some that it should not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from minder.model.errors import BadInputError, WireError
from minder.record.api.problem import MEDIA_TYPE
from minder.record.client import Client
from minder.record.client.calls import Calls

Answer = Callable[[httpx.Request], httpx.Response]
RECORDED = {"events": [1], "detail": "done"}


def client_of(answer: Answer) -> tuple[Client, list[float]]:
    """A client whose service is a function, and the waits between its attempts."""
    client = Client("", "token", http=httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer)))
    waits: list[float] = []
    client.calls = Calls(client.calls.http, waits.append)
    return client, waits


def test_an_action_is_sent_again_with_the_same_key_until_it_is_answered() -> None:
    keys: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx.ReadTimeout("gone", request=request)
        return httpx.Response(201, json=RECORDED)

    client, _ = client_of(answer)
    assert client.pause("all", None, 60.0, "x").events == (1,)
    assert len(keys) == 3 and len(set(keys)) == 1
    client.pause("all", None, 60.0, "x")
    assert len(set(keys)) == 2


def test_a_service_that_is_busy_is_asked_again_when_it_says() -> None:
    statuses = iter([429, 503, 200])

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(next(statuses), json={"items": [], "next": None}, headers={"Retry-After": "7"})

    client, waits = client_of(answer)
    assert list(client.jobs()) == [] and waits == [7.0, 7.0]


def test_refusals_and_failures_are_one_line() -> None:
    problem = json.dumps({"title": "t", "status": 403, "detail": "this needs a token of role operator", "type": "about:blank"})
    answers = {
        "/v1/jobs/refused": httpx.Response(403, content=problem, headers={"content-type": MEDIA_TYPE}),
        "/v1/jobs/broken": httpx.Response(500, text="oops"),
        "/v1/jobs/odd": httpx.Response(200, text="<html>"),
    }
    client, _ = client_of(lambda request: answers[request.url.path])
    with pytest.raises(BadInputError, match="/v1/jobs/refused: this needs a token of role operator"):
        client.job("refused")
    with pytest.raises(WireError, match="HTTP 500"):
        client.job("broken")
    with pytest.raises(WireError, match="is it a minder service"):
        client.job("odd")

    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(WireError, match="does not answer: ConnectError"):
        client_of(silent)[0].whoami()


def test_lists_follow_their_pages_and_stop_at_the_limit() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("cursor", ""))
        item = {"scope": "job", "target": f"j{len(asked)}", "until": "t", "reason": "r"}
        return httpx.Response(200, json={"items": [item], "next": str(len(asked)) if len(asked) < 3 else None})

    client, _ = client_of(answer)
    assert [pause.target for pause in client.pauses()] == ["j1", "j2", "j3"] and asked == ["", "1", "2"]


def test_a_recording_goes_as_its_files_and_a_table_as_itself(tmp_path: Path) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        request.read()
        sent.append(request)
        return httpx.Response(200, json={"recording": "r", "rows": 0, "machines": 1, "verdicts": []})

    client, _ = client_of(answer)
    with pytest.raises(BadInputError, match=r"has no job\.toml"):
        client.score(tmp_path)
    with pytest.raises(BadInputError, match="No such file"):
        client.score(tmp_path / "nothing.parquet")
    (tmp_path / "job.toml").write_text('machines = ["m1"]')
    (tmp_path / "events.jsonl").write_text("{}\n")
    (tmp_path / "truth.json").write_text("secret")
    client.score(tmp_path, until="2026-01-01T00:00:00Z")
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    client.score(tmp_path / "t.parquet")
    assert b'name="job"' in sent[0].content and b'name="events"' in sent[0].content and b"secret" not in sent[0].content
    assert sent[0].url.params["until"] and sent[1].headers["content-type"] == "application/vnd.apache.parquet"
