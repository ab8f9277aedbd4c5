"""Every page, with a past and without one, for whom it is meant; and what its forms do."""

from __future__ import annotations

import importlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import serve.pages
from minder.model.clock import FakeClock
from minder.model.decision import Decision
from minder.model.pairs import PairEdge, PairGraph, PairNode
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.pairs import pairs_payload
from minder.record.incidents.replays import ReplayedGroup, replay_payload
from minder.record.incidents.updates import order_update, update_payload
from minder.wire.codec import to_json
from serve.app import build_app
from serve.pages.render import _TEMPLATES
from serve.settings import Settings
from serve.state import Service, open_service
from tests.serve.browsing import field, send_token, token_of
from tests.serve.conftest import NOW_S, TestClient, verdict_of

PAGES = ["/", "/parts/fleet", "/incidents", "/incidents?state=open", "/incidents?job=llm&since=2020-01-01", "/machines",
         "/machines?barred=true", "/pauses", "/standbys", "/policy", "/policy?job=llm", "/models", "/track-record", "/audit",
         "/audit?kind=all"]  # fmt: skip
OF_THE_PAST = ["/incidents/llm-1", "/incidents/llm-1/now", "/incidents/llm-1/report.txt", "/incidents/llm-1/bundle", "/incidents/llm-2",
               "/machines/m2", "/machines/m1", "/jobs/llm", "/jobs/llm/now?by=rack", "/jobs/llm/telemetry"]  # fmt: skip
Enter = Callable[..., httpx.Client]


@pytest.fixture
def enter(http: httpx.Client, service: Service) -> Enter:
    """enter("operator") -> the client, signed in."""

    def sign_in(role: str = "viewer", **fields: object) -> httpx.Client:
        assert send_token(http, token_of(service, role, **fields)).status_code == 303
        return http

    return sign_in


def send(http: httpx.Client, page: str, path: str, **fields: str) -> httpx.Response:
    """What a browser sends for the form with this action on that page."""
    text = http.get(page).text
    form = re.search(rf'<form[^>]*method="post" action="{re.escape(path)}".*?</form>', text, re.DOTALL)
    assert form is not None, f"{page} has no form for {path}"
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form.group()))
    return http.post(path, data=hidden | fields)


@pytest.fixture(scope="module")
def stranger(standing: Service) -> Iterator[httpx.Client]:
    """A visitor without a session."""
    with TestClient(build_app(standing), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def reader(standing: Service) -> Iterator[httpx.Client]:
    """A viewer, signed in once for the tests that only read."""
    with TestClient(build_app(standing), raise_server_exceptions=False) as client:
        assert send_token(client, token_of(standing)).status_code == 303
        yield client


@pytest.mark.parametrize("path", PAGES + OF_THE_PAST)
def test_every_page_is_shown(reader: httpx.Client, path: str) -> None:
    answer = reader.get(path)
    assert answer.status_code == 200, answer.text[:2000]
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", answer.text), "the content policy forbids these"


@pytest.mark.parametrize("path", [*PAGES, "/incidents/llm-1", "/machines/m2"])
def test_nobody_sees_a_page_without_a_session(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(path, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in")
    assert "llm" not in answer.text


@pytest.fixture
def empty(tmp_path: Path, clock: FakeClock) -> Iterator[Service]:
    opened = open_service(Settings(str(tmp_path / "empty.db")), clock)
    yield opened
    opened.close()


def test_an_empty_ledger_is_no_data_and_not_health(empty: Service) -> None:
    with TestClient(build_app(empty)) as http:
        assert send_token(http, token_of(empty)).status_code == 303
        for path in PAGES:
            answer = http.get(path)
            assert answer.status_code == 200, path
        assert "no data" in http.get("/").text and "no sign of health" in http.get("/").text


def test_a_job_with_an_open_incident_is_not_green(reader: httpx.Client) -> None:
    for path in ("/", "/jobs/llm"):
        assert '<span class="badge warn">running, incident open</span>' in reader.get(path).text


def test_the_models_page_shows_what_is_registered(
    enter: Enter, http: httpx.Client, service: Service, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minder.record.api.standbys import ModelVersion
    from serve.models import Registered

    judged = {"outcome": "not promoted", "opponent": "models:/minder-detector/3", "why": "precision falls", "time": "2026-11-22T03:00:00Z"}
    old = ModelVersion(version=3, champion=True, training={"data": "six hours"})
    new = ModelVersion(version=4, champion=False, training={}, judged=judged)
    monkeypatch.setattr(service.models, "read", lambda: Registered("available", "", (new, old)))
    assert http.get("/models/versions", follow_redirects=False).status_code == 303
    enter()
    detector = SimpleNamespace(uri="default", shadow="models:/minder/4", drift=True)
    service.settings.jobs["llm"] = SimpleNamespace(detector=detector)  # type: ignore[assignment]
    assert "not lately" in http.get("/models").text and "none lately" in http.get("/models").text
    ledger.append(kinds.SHADOW, {"detector": "models:/minder/4", "verdict": {}}, job="llm")
    ledger.append(kinds.DRIFT, {"metric": "gpu_temperature_celsius"}, job="llm")
    assert "gpu_temperature_celsius, " in http.get("/models").text and "not lately" not in http.get("/models").text
    assert 'hx-get="/models/versions"' in http.get("/models").text  # the page does not wait for the registry
    for path in ("/models/versions", "/models?versions=true"):
        text = http.get(path).text
        assert text.index("Version 3") < text.index("Version 4") and "six hours" in text and "challenger" in text
        assert "alias was moved by hand" in text and "not promoted" in text and "precision falls" in text and "2026-11-22" in text
    monkeypatch.setattr(service.models, "read", lambda: Registered("unreachable", "the registry does not answer (OSError)"))
    text = http.get("/models/versions").text
    assert "no answer" in text and "OSError" in text and "Version" not in text


def test_the_first_screen_answers(enter: Enter, ledger: Ledger) -> None:
    page = enter().get("/incidents/llm-1").text
    for said in ("m2 stands still", "Which machine", "rack", "serial", "cpu_usage_ratio is 0.01, expected 0.93",
                 "(telemetry, since 21:58:22 UTC)", "its agent answers",
                 "workers ended", "machine return m2", "What happens next", "What it costs", "over; it cost",
                 "incidents bundle llm-1 -o llm-1.zip", "every stage passed: evict", "first new step: 41"):  # fmt: skip
        assert said in page, said
    second = enter().get("/incidents/llm-2").text
    assert "decides at the controller" in second and "4.0 GPU-minutes each minute" in second


def test_a_name_is_text_wherever_it_stands(enter: Enter, ledger: Ledger, clock: FakeClock) -> None:
    evil = "<script>alert(1)</script>"
    name = ledger.open_incident(verdict_of(evil, clock.now_s()), job="llm", time_s=clock.now_s())
    ledger.append(kinds.NOTE, {"text": evil, "by": evil}, job="llm", incident=name)
    ledger.append(kinds.EVIDENCE, {"machine": evil, "what": evil, "data": {evil: [evil]}}, job="llm", incident=name)
    ledger.append(kinds.DEGRADED, {"what": evil, "detail": '"><img src=x onerror=alert(1)>'}, job="llm")
    ledger.append(kinds.BARRED, {"machine": evil, "reason": evil}, job="llm", incident=name)
    ledger.append(kinds.PAUSE, {"scope": "rack", "target": evil, "until_s": clock.now_s() + 60, "reason": evil})
    http = enter("operator")
    for path in ("/", "/incidents", f"/incidents/{name}", "/machines", "/audit?kind=all", "/pauses"):
        text = http.get(path).text
        assert "&lt;script&gt;alert(1)" in text, path
        assert evil not in text and "<img" not in text, path


def test_a_token_for_one_job_shows_that_job_only(enter: Enter, ledger: Ledger) -> None:
    from tests.serve.conftest import write_past

    write_past(ledger, "other")
    http = enter("operator", jobs=("other",))
    for path in ("/", "/incidents", "/machines", "/standbys", "/policy", "/audit?kind=all", "/models"):
        text = http.get(path).text
        assert "llm" not in text, path
    assert http.get("/incidents/llm-1").status_code == http.get("/incidents/llm-1/bundle").status_code == 403
    assert http.get("/policy?job=llm").status_code == 403
    assert http.get("/incidents/other-1").status_code == 200


def test_a_viewer_has_no_forms_and_may_send_none(enter: Enter, ledger: Ledger) -> None:
    http = enter("viewer")
    page = http.get("/incidents/llm-1").text
    assert "acting needs role operator" in page and 'action="/incidents/llm-1/outcome"' not in page
    before = ledger.events()
    csrf = field(page, "csrf")
    for path, fields in {
        "/incidents/llm-1/note": {"text": "seen"},
        "/incidents/llm-1/outcome": {"machine": "m2", "outcome": "confirmed", "note": "bad"},
        "/machines/m2/return": {"reason": "repaired"},
        "/pauses": {"scope": "job", "target": "llm", "for": "1h", "reason": "firmware"},
    }.items():
        answer = http.post(path, data={"csrf": csrf, "key": "a", **fields})
        assert answer.status_code == 403 and "role operator" in answer.text, path
    assert ledger.events() == before


def test_what_a_form_does_is_in_the_ledger_with_who_and_why(enter: Enter, ledger: Ledger) -> None:
    http = enter("operator")
    answer = send(http, "/incidents/llm-1", "/incidents/llm-1/outcome", machine="m2", outcome="confirmed", note="HBM of GPU 3")
    assert answer.status_code == 200 and "m2 was found: confirmed: HBM of GPU 3" in answer.text
    answer = send(http, "/machines/m2", "/machines/m2/return", reason="retest passed", job="")
    assert "m2 is given back" in answer.text
    answer = send(http, "/pauses", "/pauses", scope="job", target="llm", reason="firmware", **{"for": "2h"})
    assert "actions paused (job llm)" in answer.text and "firmware" in http.get("/").text
    answer = send(http, "/pauses", "/pauses/end", scope="job", target="llm", reason="done")
    assert "pause lifted" in answer.text
    answer = send(http, "/incidents/llm-1", "/incidents/llm-1/note", text="vendor case 17")
    written = [event for event in ledger.events() if event.payload.get("token")]
    assert [event.kind for event in written[-5:]] == ["outcome", "unbarred", "pause", "unpause", "note"]
    assert all(event.payload["by"].startswith("operator") for event in written[-5:])
    assert "vendor case 17" in http.get("/audit").text


def test_a_form_that_is_sent_twice_is_done_once(enter: Enter, ledger: Ledger) -> None:
    http = enter("operator")
    page = http.get("/incidents/llm-1").text
    fields = {"csrf": field(page, "csrf"), "key": field(page, "key"), "back": "/incidents/llm-1", "text": "once"}
    assert [http.post("/incidents/llm-1/note", data=fields).status_code for _ in range(2)] == [200, 200]
    assert len(ledger.events(kinds=[kinds.NOTE])) == 1
    assert http.post("/incidents/llm-1/note", data=fields | {"text": "twice"}).status_code == 422


def test_a_form_without_its_secret_does_nothing(enter: Enter, ledger: Ledger, service: Service) -> None:
    """Every form that there is, whoever adds one; another site's page can send one, and reads no secret."""
    http = enter("operator")
    token = token_of(service)
    before = ledger.events()
    rooms = [importlib.import_module(f"serve.pages.{path.stem}") for path in Path(serve.pages.__path__[0]).glob("*.py")]
    routers = {id(room.router): room.router for room in rooms if hasattr(room, "router")}
    forms = [route.path for router in routers.values() for route in router.routes if "POST" in route.methods]
    assert {"/incidents/{incident}/answer", "/machines/{name}/retest", "/pauses/end", "/sign-out", "/sign-in"} < set(forms)
    for path in forms:
        there = path.format(incident="llm-2", name="m2")
        for csrf in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
            answer = http.post(
                there, data={"text": "x", "reason": "x", "key": "k", "answer": "approved", "token": token} | csrf, follow_redirects=False
            )
            assert answer.status_code == 403, path
            assert "minder-session" not in answer.headers.get("set-cookie", ""), path
    assert ledger.events() == before


def test_orders_and_tests_of_people_stand_in_the_audit_trail_and_machines_reports_do_not(enter: Enter, ledger: Ledger) -> None:
    from minder.record.incidents.orders import order_payload

    signature = {"by": "alice", "token": "0123456789ab"}
    ledger.append(kinds.SIGNAL, order_payload("m1", "alice", "fan 3 is dead", NOW_S) | signature, job="llm")
    ledger.append(kinds.RETEST_ASKED, {"machine": "m2", "reason": "before it goes back"} | signature, job="llm", operation_id="retest-1")
    told = {"kind": "report", "machine": "m2", "message": 'says "kind":"order" of itself', "data": {"name": "gpud/disk"}}
    for number in range(300):
        ledger.append(kinds.SIGNAL, {"signal": told, "id": f"r{number}", "by": "agent-m2", "role": "agent"}, job="llm")
    http = enter()
    page = http.get("/audit").text
    assert "alice orders the eviction of m1: fan 3 is dead" in page and "m2 is to be tested: before it goes back" in page
    assert "gpud/disk" not in page
    assert "agent-m2 reports of m2: gpud/disk" in http.get("/audit?kind=all").text and "gpud/disk" in http.get("/audit?kind=signal").text


def test_a_maintenance_window_is_seen_before_somebody_asks_why_nothing_happens(enter: Enter, ledger: Ledger, clock: FakeClock) -> None:
    window = {"machines": [], "racks": ["r12"], "jobs": [], "reason": "switch firmware", "by": "ann"}
    for name, from_s in (("window-a", NOW_S - 60.0), ("window-b", NOW_S + 3600.0)):
        ledger.append(kinds.MAINTENANCE, {**window, "id": name, "from_s": from_s, "until_s": from_s + 7200.0})
    decision = Decision("evict-m1", NOW_S - 40.0, "page", ("m1",), "paused", "maintenance of rack r12 (window-a) for another 7100 s: x",
                        verdict_of("m1", NOW_S - 50.0))  # fmt: skip
    ledger.append(kinds.DECISION, decision, job="llm", incident="llm-2", operation_id="evict-m1")
    http = enter("operator")
    assert http.get("/").text.count("switch firmware") == 1  # the one that holds
    page = http.get("/pauses").text
    assert page.count("switch firmware") == 2 and "holds now" in page and "planned" in page and "minder maintenance end window-a" in page
    page = http.get("/incidents/llm-2").text
    assert "Nothing during the maintenance window-a: switch firmware" in page and "2023-11-15 00:12:20 UTC" in page
    clock.sleep(7200.0)
    assert "switch firmware" in http.get("/").text and "holds now" in http.get("/pauses").text  # the other one


def test_what_is_left_to_a_person_stands_on_the_first_screen(enter: Enter, ledger: Ledger) -> None:
    """The machine is shared and stays; the job's dead workers are started again. Whoever reads the page must go on from there."""
    jobs = ("llm", "ads")
    verdict = verdict_of("m1", NOW_S - 50.0)
    page = Decision("page-1", NOW_S - 40.0, "page", ("m1",), "shared_machine", "ads would die too", verdict, jobs_affected=jobs)
    restart = Decision("restart-1", NOW_S - 39.0, "restart", (), "act", "restart in place", verdict, jobs_affected=jobs)
    for decision in (page, restart):
        ledger.append(kinds.DECISION, decision, job="llm", incident="llm-2", operation_id=decision.operation_id)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", enter().get("/incidents/llm-2").text))
    assert "left to a person m1: ads would die too (shared_machine) jobs affected: llm, ads" in text
    assert "restart in place Jobs affected: llm, ads" in text


def test_what_was_typed_is_not_lost_where_it_does_not_hold(enter: Enter) -> None:
    answer = send(enter("operator"), "/pauses", "/pauses", scope="job", target="llm", reason="a long story", **{"for": "soon"})
    assert answer.status_code == 422 and "a long story" in answer.text and "no length of time" in answer.text


def test_no_link_makes_a_page_say_what_was_not_done(enter: Enter, ledger: Ledger) -> None:
    event = ledger.append(kinds.NOTE, {"text": "all is well", "by": "mallory"}, job="llm")
    for value in (str(event.id), "9" * 30, "x", "-1"):
        assert "Done and written down" not in enter("operator").get(f"/pauses?did={value}").text


def test_other_settings_are_tried_on_the_past_and_nothing_is_written(enter: Enter, ledger: Ledger) -> None:
    http = enter("viewer")
    before = ledger.events()
    answer = send(http, "/policy?job=llm", "/policy", **{"policy.max_evictions_per_job": "0"})
    assert answer.status_code == 200 and "0</strong> would be evictions" in answer.text and "budget job" in answer.text
    answer = send(http, "/policy?job=llm", "/policy", **{"policy.max_evictions_per_job": "many"})
    assert answer.status_code == 422 and "max_evictions_per_job" in answer.text
    assert ledger.events() == before


def test_an_accused_machine_stands_out_among_its_jobs_machines(reader: httpx.Client) -> None:
    shown = reader.get("/jobs/llm").text
    assert 'title="m1: accused in llm-2"' in shown and "s1: accused" not in shown


def test_a_jobs_page_says_which_code_runs_what_waits_and_what_failed_first(enter: Enter, ledger: Ledger) -> None:
    pages = enter()
    assert "<dt>code</dt>" not in pages.get("/jobs/llm").text
    order = order_update(ledger, "llm", update_payload("", (0, 0), {"X": "1"}, None, False, "lower rate"), "ann")
    begun = {"generation": 9, "update": 1, "update_operation": order.operation_id, "rank_machine": {"0": "m1"}}
    ledger.append(kinds.GENERATION_STARTED, begun, job="llm", operation_id="restart-1")
    ledger.append(kinds.NOTE, {"text": "first failure after update 1", "update": 1}, job="llm", incident="llm-2")
    order_update(ledger, "llm", update_payload("", (0, 0), {"X": "2"}, None, False, ""), "bob")
    shown = re.sub(r"<[^>]+>", "", pages.get("/jobs/llm").text)
    assert "update 1 by ann (lower rate)" in shown and "first failure after update 1: llm-2" in shown
    assert "update 2 by bob: with the next restart" in shown


def test_telemetry_around_the_fault_is_drawn_and_goes_to_the_vendor(enter: Enter, ledger: Ledger) -> None:
    pages = enter()
    assert "<svg" not in pages.get("/incidents/llm-1").text
    for line in (131.0, 120.0):  # written at the verdict, and once more with what came after it
        panel = {"low": [530.0, 530.0], "middle": [540.0, 540.0], "high": [550.0, 550.0], "line": [541.0, line]}
        data = {"fault_s": NOW_S - 898.0, "verdict_s": NOW_S - 890.0, "peers": 1, "times": [NOW_S - 900.0, NOW_S - 880.0]}
        payload = {"machine": "m2", "what": "telemetry", "data": data | {"metrics": {"gpu_power_draw_watts": panel}}}
        ledger.append(kinds.EVIDENCE, payload, job="llm", incident="llm-1")
    shown = pages.get("/incidents/llm-1").text
    assert shown.count("<svg") == 1 and 'class="x-band"' in shown and shown.count("m2 had 541 W before and 120 W after") == 2
    assert "style=" not in shown and "telemetry of m2, <time" not in shown  # it was not captured before the end of anything
    with zipfile.ZipFile(io.BytesIO(pages.get("/incidents/llm-1/bundle").content)) as archive:
        names = archive.namelist()
        assert "pictures/m2-telemetry.svg" in names and sum("m2-telemetry-" in name for name in names) == 1
        assert b"<svg" in archive.read("pictures/m2-telemetry.svg")


def test_the_bundle_holds_the_accused_machine_and_nobody_else(enter: Enter, ledger: Ledger) -> None:
    secret = "password=hunter2 at 10.1.2.3 by root@site.example in /" + "home/ann/llm run m1 of llm"
    data = {"kernel": [f"NVRM: Xid 79 {secret}"], "logs": {"rank0": ["loss 2.1"]}, "stacks": [{"data": "secret_model.py"}]}
    ledger.append(kinds.EVIDENCE, {"machine": "m2", "what": "evidence", "data": data}, job="llm", incident="llm-1")
    ledger.append(kinds.EVIDENCE, {"machine": "m1", "what": "evidence", "data": data}, job="llm", incident="llm-1")
    answer = enter().get("/incidents/llm-1/bundle")
    assert answer.headers["content-disposition"] == 'attachment; filename="llm-1.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    everything = "\n".join([*texts, *texts.values()])
    assert "Xid 79" in everything and "m2: cpu_usage_ratio is 0.01" in everything
    for hidden in ("hunter2", "10.1.2.3", "site.example", "ann/", "loss 2.1", "secret_model", "m1"):
        assert hidden not in everything, hidden
    assert not re.search(r"\bllm\b", everything)
    assert set(json.loads(texts["machines.json"])) == {"m2"}


def test_a_polled_part_is_sent_again_only_when_it_changed(enter: Enter, ledger: Ledger, clock: FakeClock) -> None:
    http = enter()
    tag = http.get("/parts/fleet").headers["etag"]
    clock.sleep(3.0)
    assert http.get("/parts/fleet", headers={"if-none-match": tag}).status_code == 304
    ledger.append(kinds.DEGRADED, {"what": "judge", "detail": "failed"}, job="llm")
    assert http.get("/parts/fleet", headers={"if-none-match": tag}).status_code == 200


def test_older_incidents_are_on_further_pages(enter: Enter, ledger: Ledger, clock: FakeClock) -> None:
    from tests.serve.conftest import verdict_of

    for index in range(60):
        ledger.open_incident(verdict_of(f"x{index}", clock.now_s()), job="many", time_s=clock.now_s())
    http = enter()
    page = http.get("/incidents?job=many").text
    following = re.search(r'href="(/incidents\?[^"]*cursor[^"]*)"', page)
    assert following is not None and "many-60" in page and ">many-10<" not in page
    older = http.get(following.group(1).replace("&amp;", "&")).text
    assert ">many-10<" in older and ">many-60<" not in older


def test_an_eviction_that_waits_is_answered_on_its_page_once(enter: Enter, ledger: Ledger, clock: FakeClock) -> None:
    from minder.model.decision import Decision
    from minder.wire.codec import to_json
    from tests.serve.conftest import verdict_of

    verdict = verdict_of("m1", clock.now_s())
    decision = Decision("evict-llm-9", clock.now_s(), "evict", ("m1",), "awaiting_approval", "an operator is asked", verdict)
    asked = {"decision": to_json(decision), "until_s": clock.now_s() + 600, "on_timeout": "page", "generation": 2, "incidents": ["llm-2"]}
    ledger.append_once(kinds.APPROVAL_ASKED, asked, job="llm", incident="llm-2", operation_id="evict-llm-9")
    http = enter("operator")
    assert "Waiting for an operator" in http.get("/").text
    page = http.get("/incidents/llm-2").text
    assert "May m1 be evicted?" in page and "a person is paged and nothing is done" in page
    answer = send(http, "/incidents/llm-2", "/incidents/llm-2/answer", reason="replaced it last week too", answer="approved")
    assert answer.status_code == 200 and "May m1 be evicted?" not in answer.text and "replaced it last week too" in answer.text
    (settled,) = ledger.events(kinds=[kinds.APPROVAL_SETTLED])
    assert settled.payload["answer"] == "approved" and settled.payload["by"].startswith("operator")
    fields = {"csrf": field(answer.text, "csrf"), "key": "again", "decision": "evict-llm-9", "answer": "rejected", "reason": "no"}
    assert http.post("/incidents/llm-2/answer", data=fields).status_code == 409


def test_an_incident_begins_with_now_in_the_morning_and_undo(enter: Enter, ledger: Ledger) -> None:
    http = enter("operator")
    page = http.get("/incidents/llm-1").text
    assert page.index("<dt>Now</dt>") < page.index("<dt>In the morning</dt>") < page.index("<dt>Undo</dt>") < page.index("Which machine")
    assert "m2 is out; s1 took over" in page and "sure and bad" not in page
    assert "minder --server http://testserver machine return m2 --note" in page and "It lets m2 work again" in page
    answer = send(http, "/incidents/llm-1", "/machines/m2/return", reason="flown home")
    assert answer.status_code == 200 and "m2 is given back" in answer.text and "Give m2 back" not in answer.text
    assert [event.payload["machine"] for event in ledger.events(kinds=[kinds.UNBARRED])] == ["m2"]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["node-0001", "node-0002"], "0001"),
        (["gpu-r1-s1", "gpu-r1-s2"], "s1"),
        (["m1", "m2"], "m1"),  # no word is shared whole
        (["node-1", "node-1b"], "1"),
        (["node-1"], "node-1"),
        (["a-", "a-1"], "a-"),
        ([], None),
    ],
)
def test_a_cell_shows_what_differs_between_machines(names: list[str], short: str | None) -> None:
    from serve.pages.job import _shared_length

    shared = _shared_length(names)
    assert [name[shared:] for name in names][:1] == ([] if short is None else [short])
    assert all(name[shared:] for name in names)


@pytest.mark.parametrize(("heard", "shown"), [(True, "running"), (False, "running when last heard")])
def test_a_job_whose_controller_is_silent_is_not_green(heard: bool, shown: str) -> None:
    module: Any = _TEMPLATES.globals["m"]
    badge = str(module.phase("running", False, heard))
    assert shown in badge and ("good" in badge) is heard


def test_a_verdict_on_the_job_asks_for_no_eviction() -> None:
    module: Any = _TEMPLATES.globals["m"]
    assert "evict (high confidence)" in module.tier("evict", ["m1"]) and "restart" in module.tier("evict", [])


def test_an_incident_of_no_machine_is_a_sentence_on_the_first_screen(enter: Enter, ledger: Ledger) -> None:
    verdict = replace(verdict_of("m2", NOW_S), kind="job", machines=(), tier="page", cause="explicit")
    name = ledger.open_incident(verdict, job="llm", time_s=NOW_S)
    decision = Decision("none-1", NOW_S, "none", (), "awaiting_approval", "x", verdict, stages=("tier: pass", "pause: pass"))
    ledger.append(kinds.DECISION, to_json(decision), job="llm", incident=name, time_s=NOW_S)
    http = enter()
    first = http.get("/").text
    assert re.search(r'class="headline">The job reports a fault</p>', first) and "Decided: nothing is done (awaiting approval)" in first
    page = http.get(f"/incidents/{name}").text
    assert "The job reports a fault." in page and "<summary>2 stages of the policy</summary>" in page


@pytest.mark.parametrize("path", ["/incidents/none-1", "/jobs/none"])
def test_what_is_not_there_is_said_without_the_words_of_the_api(enter: Enter, path: str) -> None:
    answer = enter().get(path)
    assert answer.status_code == 404 and "none" in answer.text and "/v1/" not in answer.text


def test_every_machine_of_a_job_has_a_page(enter: Enter, ledger: Ledger, service: Service, tmp_path: Path) -> None:
    """No verdict ever accused s1 and m7: a link of the job's page is no dead end."""
    registered = {"machines": ["m7"], "standbys": ["s7"], "domains": {"m7": {"rack": "r12", "switch": "leaf-3"}}, "serials": {"m7": "XC-9"}}
    ledger.append(kinds.JOB_REGISTERED, registered, job="big")
    ledger.append(kinds.GENERATION_STARTED, {"generation": 1, "rank_machine": {"0": "m7", "1": "m7"}}, job="big")
    signal = {"signal": {"kind": "xid", "machine": "m7", "message": "row remap", "data": {"code": 63}}, "by": "dcgm"}
    ledger.append(kinds.SIGNAL, signal, job="big")
    status = tmp_path / "big.json"
    status.write_text(json.dumps({"job": "big", "now_s": NOW_S, "machines": [{"name": "m7", "role": "training", "score": 0.42}]}))
    service.settings.status_files["big"] = status
    http = enter()
    page = http.get("/machines/m7").text
    for said in ("r12", "leaf-3", "XC-9", "training, ranks 0, 1", "0.42 times the threshold", "Xid 63", "against its peers"):
        assert said in page, said
    assert "standby" in http.get("/machines/s1").text or http.get("/machines/s1").status_code == 200
    assert http.get("/machines/s7").status_code == 200 and http.get("/machines/m99").status_code == 404
    assert http.get("/machines?name=m7", follow_redirects=False).headers["location"] == "/machines/m7"


def test_a_token_for_another_job_knows_no_machine_of_this_one(enter: Enter) -> None:
    assert enter(jobs=("other",)).get("/machines/s1").status_code == 404


def test_what_probes_found_stands_on_the_machines_page_newest_first(enter: Enter, ledger: Ledger) -> None:
    from minder.model.probes import MeasurementVerdict, ProbeJudgement
    from minder.record.incidents.probes import probes_payload

    number = MeasurementVerdict("gemm_gflops", "gpu3", 40.0, "GFLOP/s", "slow", "7 other GPUs of the machine", 60.0, 54.0)
    for verdict, reason, machine in (
        ("pass", "as 5 equal machines", "m2"),
        ("slow", "gemm_gflops of gpu3 is 40", "m2"),
        ("fail", "none of it", "m1"),
    ):
        found = ProbeJudgement(machine, "gemm", verdict, reason, (number,))  # type: ignore[arg-type]
        ledger.append(kinds.PROBES, probes_payload(machine, [], [found], by="alice", why="test"), job="llm")
    http = enter()
    page = http.get("/machines/m2").text
    assert page.index("gemm_gflops of gpu3 is 40") < page.index("as 5 equal machines") and "none of it" not in page


def test_pair_tests_are_drawn_on_the_incident_and_on_each_machine(enter: Enter, ledger: Ledger) -> None:
    nodes = (PairNode("m1", "good", "it passed"), PairNode("m2", "slow", "in what it sends, <b>it took over 2 times</b>"))
    graph = PairGraph(nodes, (PairEdge(("m1", "m2"), 1, "slow", 5.0, 1e7, 1e-4, detail="slow from m2 to m1 only"),), 1.0)
    ledger.append(kinds.PAIRS, pairs_payload(graph, by="anna", why="diagnose", note="a hang"), job="llm", incident="llm-1")
    reader = enter()
    for path in ("/incidents/llm-1", "/machines/m2"):
        page = reader.get(path).text
        assert 'aria-label="2 machines in 1 test; m2 is slow"' in page and "slow from m2 to m1 only" in page, path
        assert "<b>it took" not in page and "&lt;b&gt;it took" in page
    assert "Pair tests" not in reader.get("/machines/s1").text


def test_a_replay_stands_on_the_incident_with_the_groups_and_the_machine_where_they_cross(enter: Enter, ledger: Ledger) -> None:
    rows = [(1, "horizontal", "h0", ("m0", "m1"), "passed"), (1, "horizontal", "h1", ("m2", "m3"), "failed")]
    rows += [(2, "vertical", "v0", ("m0", "m2"), "failed"), (2, "vertical", "v1", ("m1", "m3"), "passed")]
    for phase, kind, name, machines, outcome in rows:
        group = ReplayedGroup(name, machines, (2, 2), outcome, "<b>two runs differ</b>", 2, 1)
        ledger.append(kinds.REPLAY, replay_payload(phase, kind, group), job="llm", incident="llm-1", operation_id="replay-1")
    page = enter().get("/incidents/llm-1").text
    part = page[page.index("Replay on groups of machines") :]
    assert "Failing groups cross in" in part and re.search(r"<strong><a[^>]*/machines/m2", part) and "vertical v0" in part
    assert "<b>two runs" not in part and "&lt;b&gt;two runs differ" in part
