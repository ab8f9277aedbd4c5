"""A ledger that a newer version wrote: every reader passes over what it does not know, and shows the word as it is."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from minder.act.controller.state import fold_job
from minder.cli import main
from minder.model.decision import ActionResult, Decision
from minder.model.errors import WireError
from minder.model.evidence import Signal, Verdict
from minder.record.client import Client
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.history import fold_history
from minder.wire.codec import from_json, to_json
from serve.state import Service
from tests.serve.browsing import send_token, token_of
from tests.serve.conftest import NOW_S, As, verdict_of

WORDS = ("replay_steps", "phase_of_the_moon", "cosmic_rays", "isolate")
INCIDENT = "llm-3"


@pytest.fixture
def future(ledger: Ledger) -> Ledger:
    """A third incident of the past's job, by words that this version has never heard."""
    verdict = to_json(verdict_of("m3", NOW_S - 40.0)) | {"kind": "cluster", "cause": "cosmic_rays", "tier": "isolate", "halo": {"x": 1}}
    row = from_json(Verdict, verdict)
    assert ledger.open_incident(row, job="llm", time_s=NOW_S - 40.0) == INCIDENT
    decision = Decision("replay-1", NOW_S - 39.0, "none", ("m3",), "act", "runs the steps again", row)
    words = to_json(decision) | {"action": "replay_steps", "reason": "phase_of_the_moon"}
    at = {"job": "llm", "incident": INCIDENT}
    ledger.append(kinds.DECISION, words, operation_id="replay-1", time_s=NOW_S - 39.0, **at)
    ledger.intend("replay-1", {"action": "replay_steps", "machines": ["m3"], "decision": words}, time_s=NOW_S - 38.0, **at)
    ledger.append("moon_rose", {"detail": "over m3", "machine": "m3"}, time_s=NOW_S - 37.0, **at)
    ledger.append(kinds.DEGRADED, {"what": ["a", "list"], "detail": {"a": "mapping"}}, time_s=NOW_S - 36.0, **at)
    ledger.append(kinds.MAINTENANCE, {"id": 7, "machines": 3}, time_s=NOW_S - 35.0, **at)
    result = to_json(ActionResult("replay-1", NOW_S - 34.0, "done")) | {"outcome": "half_done"}
    ledger.complete("replay-1", from_json(ActionResult, result), time_s=NOW_S - 34.0)
    return ledger


def test_the_command_line_shows_every_word(future: Ledger, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    at = ["--ledger", future.location]
    assert main(["incidents", "show", INCIDENT, *at]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in WORDS)
    assert "moon rose: m3; over m3" in shown
    assert main(["incidents", "list", "--since", "3000d", *at]) == 0
    assert "replay_steps (phase_of_the_moon)" in capsys.readouterr().out
    assert main(["report", "--out", str(tmp_path / "report.html"), "--since", "3000d", *at]) == 0
    assert "replay_steps (phase_of_the_moon)" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_api_and_its_client_show_every_word(future: Ledger, http: httpx.Client, as_: As) -> None:
    answer = http.get(f"/v1/incidents/{INCIDENT}", headers=as_("viewer"))
    assert answer.status_code == 200, answer.text
    assert all(word in answer.text for word in WORDS)
    events = http.get("/v1/events?limit=200", headers=as_("viewer"))
    assert events.status_code == 200 and "moon_rose" in events.text

    def replay(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=answer.content, headers={"content-type": "application/json"})

    client = Client("", "token", http=httpx.Client(base_url="http://service", transport=httpx.MockTransport(replay)))
    read = client.incident(INCIDENT)
    assert read.verdict is not None and (read.verdict.cause, read.verdict.tier, read.verdict.kind) == ("cosmic_rays", "isolate", "cluster")
    assert [(item.action, item.reason) for item in read.decisions] == [("replay_steps", "phase_of_the_moon")]
    assert read.results[0].outcome == "half_done"


def test_every_page_is_shown(future: Ledger, http: httpx.Client, service: Service) -> None:
    assert send_token(http, token_of(service, "viewer")).status_code == 303
    for path in ("/", "/incidents", f"/incidents/{INCIDENT}", "/machines/m3", "/jobs/llm", "/audit?kind=all", "/policy?job=llm"):
        page = http.get(path)
        assert page.status_code == 200, (path, page.text[:1500])
        if path == f"/incidents/{INCIDENT}":
            assert all(word in page.text or word.replace("_", " ") in page.text for word in WORDS)
            assert "moon rose" in page.text


def test_a_controller_that_starts_anew_reads_the_past(future: Ledger) -> None:
    events = future.events(job="llm")
    assert fold_job("llm", events).generation == 2
    history = fold_history(events, "llm", NOW_S)
    (unknown,) = [item for item in history.actions if item.action not in ("evict", "restart")]
    assert (unknown.action, unknown.finished, unknown.machines) == ("replay_steps", True, ("m3",))
    assert history.restarts == 0 and sum(item.action == "evict" for item in history.actions) == 1, "no budget is used up by it"
    assert history == future.history("llm", NOW_S)
    assert "m3" in future.suspects(NOW_S - 100.0), "who was accused by any tier is suspect"
    (opened,) = [item for item in future.open_incidents("llm") if item.id == INCIDENT]
    assert opened.state == "recovering", "something was done about it, whatever that is"


def test_words_are_open_and_everything_else_is_as_strict_as_before() -> None:
    signal = {"time_s": 1.0, "kind": "gravity_wave", "machine": "m1"}
    assert from_json(Signal, signal).kind == "gravity_wave"
    assert json.loads(json.dumps(to_json(from_json(Signal, signal))))["kind"] == "gravity_wave", "it is handed on unchanged"
    for wrong in (7, None, ["xid"], {"kind": "xid"}, True):
        with pytest.raises(WireError, match=r"Signal\.kind"):
            from_json(Signal, signal | {"kind": wrong})


def test_what_a_caller_asks_for_must_be_understood(http: httpx.Client, as_: As) -> None:
    """A request with an unknown word is refused, not passed over."""
    body = {"scope": "galaxy", "target": "m1", "seconds": 60, "reason": "x"}
    answer = http.post("/v1/pauses", json=body, headers={**as_("operator"), "Idempotency-Key": "k1"})
    assert answer.status_code == 422 and "scope" in answer.text
