"""Signals come in: whose word is taken about which machine, once, in bounded numbers; and what the rules make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from minder.act.controller.reading.hearing import Inbox
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.signals import ReportRule, SignalRule
from minder.edge.signals.xid import load_xid_rules
from minder.model.evidence import Verdict
from minder.model.observation import JobView, Observation
from minder.record.incidents import Ledger, kinds
from serve.settings import Limits
from tests.fakes.followed import Followed

As = Callable[..., dict[str, str]]
NOW_S = 1_700_000_000.0
XID = {"id": "x1", "kind": "xid", "machine": "m2", "code": 79, "message": "GPU has fallen off the bus", "device": "gpu3"}


@pytest.fixture
def limits() -> Limits:
    return Limits(machine_burst=5.0, machine_rate=0.001, signal_burst=8.0, signal_rate=0.001)


def send(http: httpx.Client, headers: dict[str, str], *signals: dict[str, Any], **more: Any) -> httpx.Response:
    return http.post("/v1/signals", headers=headers, json={"signals": list(signals), **more})


def verdicts_of(ledger: Ledger, job: str = "llm", machines: tuple[str, ...] = ("m1", "m2", "m3", "m4")) -> list[Verdict]:
    """What the real rules conclude from what the ledger holds, over a minute."""
    inbox, judge = Inbox(ledger, job), Judge([Followed(lambda tracker: SignalRule(load_xid_rules(), tracker, workers=False)), ReportRule()])
    ranks = dict(enumerate(machines))
    view = JobView(job, 1, "running", machines, (), (), ranks, 0.0, NOW_S - 500.0)
    found = []
    for second in range(60):
        now_s = NOW_S + second
        found += judge.judge(Observation(now_s, signals=inbox.take(now_s), job=view))[0]
    return found


def test_a_machines_own_word_becomes_a_verdict_about_it(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    headers = as_("agent", machine="m2")
    answer = send(http, headers, XID)
    assert answer.status_code == 202 and answer.json()["accepted"] == 1
    assert send(http, headers, XID).json()["repeated"] == 1
    (event,) = ledger.events(kinds=[kinds.SIGNAL])
    assert (event.job, event.payload["signal"]["time_s"], event.payload["role"]) == ("llm", NOW_S, "agent")
    (verdict,) = verdicts_of(ledger)
    assert (verdict.machines, verdict.tier, verdict.evidence[0].device) == (("m2",), "evict", "gpu3")


@pytest.mark.parametrize("role", ["agent", "launcher"])
def test_a_machine_accuses_no_other(http: httpx.Client, ledger: Ledger, as_: As, role: str) -> None:
    """Not by itself, not beside its own, not through another system's format, not by words."""
    headers = as_(role, machine="m1")
    alert = {"alerts": [{"status": "firing", "labels": {"alertname": "Xid", "machine": "m2", "severity": "critical"}}]}
    event = {"nodeName": "m2", "checkName": "SysLogsXIDError", "errorCode": ["79"], "isFatal": True}
    tries = [
        send(http, headers, XID),
        send(http, headers, XID | {"machine": "m1"}, XID),
        http.post("/v1/signals/alertmanager", headers=headers, json=alert),
        http.post("/v1/signals/nvsentinel", headers=headers, json=event),
        http.post("/v1/signals/gpud?machine=m2", headers=headers, json=[{"component": "xid", "events": [{"message": "XID 79"}]}]),
    ]
    assert [answer.status_code for answer in tries] == [403] * 5
    assert all("speaks for m1" in answer.json()["detail"] for answer in tries)
    report = {"id": "r", "kind": "report", "machine": "m1", "name": "m2 is broken", "severity": "fatal", "message": "m2 m2 m2"}
    assert send(http, headers, report).status_code == 202
    assert verdicts_of(ledger) == []


@pytest.mark.parametrize("kind", ["exit", "phase", "membership", "exception", "nonfinite", "waiting", "step", "log"])
def test_signals_that_steer_the_controller_are_not_taken(http: httpx.Client, as_: As, kind: str) -> None:
    assert send(http, as_("agent", machine="m2"), XID | {"kind": kind}).status_code == 422


def test_a_flood_about_one_machine_leaves_room_for_the_others(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    headers = as_("source")
    answer = send(http, headers, *({**XID, "id": f"x{number}"} for number in range(300)))
    assert answer.json() | {"unknown": []} == {"accepted": 5, "repeated": 0, "dropped": 295, "ignored": 0, "unknown": []}
    assert send(http, headers, XID | {"machine": "m1"}).json()["accepted"] == 1
    answers = [send(http, headers, XID) for _ in range(8)]
    assert answers[-1].status_code == 429 and int(answers[-1].headers["Retry-After"]) > 1
    assert send(http, as_("source", name="other"), XID | {"machine": "s1"}).json()["accepted"] == 1
    assert len(ledger.events(kinds=[kinds.SIGNAL])) == 7


def test_a_flood_by_the_machine_itself_silences_nobody_else_about_it(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    own = as_("agent", machine="m2")
    flood = ({"id": f"r{number}", "kind": "report", "machine": "m2", "name": "all is well"} for number in range(100))
    assert send(http, own, *flood).json()["dropped"] == 95
    assert send(http, as_("source"), XID).json()["accepted"] == 1
    assert [verdict.machines for verdict in verdicts_of(ledger)] == [("m2",)]


def test_a_job_that_is_named_has_the_machine_or_nothing_is_written(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    """Else made-up names would each have a bucket of their own, and the ledger no bound."""
    before = ledger.events()
    named = [{**XID, "id": f"x{number}", "machine": f"made-up-{number}"} for number in range(300)]
    answer = send(http, as_("source"), *named, job="llm").json()
    assert (answer["accepted"], len(answer["unknown"])) == (0, 20)
    for job in ("llm", "no-such-job"):
        assert send(http, as_("agent", machine="m9"), XID | {"machine": "m9"}, job=job).json()["unknown"] == ["m9"]
    assert send(http, as_("agent", machine="m2"), XID, job="no-such-job").json()["unknown"] == ["m2"]
    assert [event for event in ledger.events() if event.kind != kinds.TOKEN] == [event for event in before if event.kind != kinds.TOKEN]
    assert send(http, as_("agent", machine="m2"), XID, job="llm").json()["accepted"] == 1


def test_who_may_send_and_about_which_jobs(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["v1", "m2"]}, job="vision")
    assert send(http, as_("viewer"), XID).status_code == 403
    assert send(http, as_("source", jobs=("vision",)), XID, XID | {"machine": "m1"}).json() == {
        "accepted": 1, "repeated": 0, "dropped": 0, "ignored": 0, "unknown": ["m1"],
    }  # fmt: skip
    assert [event.job for event in ledger.events(kinds=[kinds.SIGNAL])] == ["vision"]
    assert send(http, as_("source", jobs=("vision",)), XID, job="llm").status_code == 403
    assert send(http, as_("source"), XID).json()["accepted"] == 1  # new to llm, known to vision
    ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="vision")
    assert send(http, as_("source"), XID | {"machine": "v1"}).json()["unknown"] == ["v1"]


@pytest.mark.parametrize(
    ("told", "kept"), [("2030-01-01T00:00:00Z", 0.0), ("1999-01-01T00:00:00Z", -3600.0), ("2023-11-14T22:13:10Z", -10.0)]
)
def test_nobody_reports_the_future_or_the_distant_past(http: httpx.Client, ledger: Ledger, as_: As, told: str, kept: float) -> None:
    assert send(http, as_("source"), XID | {"time": told}).status_code == 202
    assert ledger.events(kinds=[kinds.SIGNAL])[0].payload["signal"]["time_s"] == NOW_S + kept
    assert send(http, as_("source"), XID | {"time": "yesterday", "id": "y"}).status_code == 422


def test_alertmanagers_webhook_is_evidence(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    """As version 4 sends it; an alert of our own does not come back as evidence for itself."""
    common = {"status": "firing", "startsAt": "2023-11-14T22:13:00.123456789Z", "endsAt": "0001-01-01T00:00:00Z"}
    alerts = [
        common
        | {"labels": {"alertname": "HostDown", "instance": "m2:9100", "severity": "critical"}, "annotations": {"summary": "no scrape"}},
        common | {"labels": {"alertname": "MinderVerdict", "machine": "m2", "severity": "critical"}},
        common | {"labels": {"alertname": "Backup", "instance": "elsewhere:9100"}},
    ]
    body = {"version": "4", "groupKey": "{}", "status": "firing", "receiver": "minder", "externalURL": "http://am", "alerts": alerts}
    headers = as_("source")
    assert http.post("/v1/signals/alertmanager", headers=headers, json=body).json() == {
        "accepted": 1, "repeated": 0, "dropped": 0, "ignored": 2, "unknown": [],
    }  # fmt: skip
    assert http.post("/v1/signals/alertmanager", headers=headers, json=body).json()["repeated"] == 1
    (event,) = ledger.events(kinds=[kinds.SIGNAL])
    signal = event.payload["signal"]
    assert (signal["kind"], signal["data"]) == ("report", {"state": "begin", "name": "alertmanager/HostDown", "severity": "fatal"})
    assert verdicts_of(ledger) == []  # an alarm of others opens nothing by itself


@pytest.mark.parametrize("wrapped", ["bare", "list", "cloudevent"])
def test_nvsentinels_events_are_judged_by_our_own_list(http: httpx.Client, ledger: Ledger, as_: As, wrapped: str) -> None:
    event = {
        "version": 1, "agent": "syslog-health-monitor", "componentClass": "GPU", "checkName": "SysLogsXIDError", "isFatal": True,
        "message": "fell off the bus", "errorCode": ["79"], "entitiesImpacted": [{"entityType": "GPU", "entityValue": "3"}],
        "generatedTimestamp": {"seconds": "1699999990"}, "nodeName": "m2.cluster.example", "recommendedAction": 24,
    }  # fmt: skip
    body: dict[str, Any] = {"bare": event, "list": {"version": 1, "events": [event]}}.get(wrapped, {"specversion": "1.0", "data": event})
    assert http.post("/v1/signals/nvsentinel", headers=as_("source"), json=body).json()["accepted"] == 2
    (verdict,) = verdicts_of(ledger)
    assert (verdict.machines, verdict.tier, verdict.since_s) == (("m2",), "evict", NOW_S - 10.0)
    noise = event | {"errorCode": ["45"], "message": "preemptive"}  # the rule that evicted a fleet elsewhere
    http.post("/v1/signals/nvsentinel", headers=as_("source"), json=noise | {"nodeName": "m1"})
    assert [item.machines for item in verdicts_of(ledger)] == [("m2",)]


def test_gpuds_states_and_events(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    body = [
        {"component": "accelerator-nvidia-error-xid", "events": [
            {"time": "2023-11-14T22:13:10Z", "name": "error_xid", "type": "Fatal", "message": "XID 79 detected on PCI:0000:3b:00"}]},
        {"component": "disk", "states": [{"time": "2023-11-14T22:13:10Z", "health": "Unhealthy", "reason": "mount is gone"}]},
    ]  # fmt: skip
    assert http.post("/v1/signals/gpud?machine=m2", headers=as_("agent", machine="m2"), json=body).json()["accepted"] == 2
    sent = [event.payload["signal"] for event in ledger.events(kinds=[kinds.SIGNAL])]
    assert [(item["kind"], item["data"].get("code"), item["data"].get("name")) for item in sent] == [
        ("xid", 79, None),
        ("report", None, "gpud/disk"),
    ]
    (verdict,) = verdicts_of(ledger)
    assert {item.source for item in verdict.evidence} == {"xid", "report"} and verdict.confidence > 0.95


def test_what_is_said_of_half_the_machines_accuses_nobody(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2", "m3", "m4"]}, job="llm")
    reports = [{"id": f"r{name}", "kind": "report", "machine": name, "name": "power", "severity": "fatal"} for name in ("m1", "m2")]
    assert send(http, as_("source"), *reports).json()["accepted"] == 2
    rule, inbox = ReportRule(), Inbox(ledger, "llm")
    view = JobView("llm", 1, "running", ("m1", "m2", "m3", "m4"), (), (), {}, 0.0, 0.0)
    assert rule.observe(Observation(NOW_S, signals=inbox.take(NOW_S), job=view)).suspects == ()
    send(http, as_("source"), reports[0] | {"id": "end", "state": "end"})
    (left,) = rule.observe(Observation(NOW_S + 1, signals=inbox.take(NOW_S + 1), job=view)).suspects
    assert (left.machines, left.tier) == (("m2",), "watch")
    assert inbox.take(NOW_S + 2) == []
    assert rule.observe(Observation(NOW_S + 700, job=view)).suspects == ()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([XID], 'body: signals stand in a list, also a single one: send {"signals": [{"id": '),
        (XID, 'body: signals stand in a list, also a single one: send {"signals": [{"id": '),
        ({"signals": [XID | {"state": "down"}]}, 'body.signals.0: a signal of kind "xid" has no state: leave it out'),
        ({"signals": [{"id": "l", "kind": "link", "machine": "m1"}]}, 'body.signals.0: a signal of kind "link" has state "up" or "down"'),
        ({"signals": [{"id": "r", "kind": "report", "machine": "m1"}]}, 'body.signals.0: a signal of kind "report" needs name'),
    ],
)
def test_what_is_wrong_with_a_signal_is_said_with_how_to_mend_it(http: httpx.Client, as_: As, body: Any, said: str) -> None:
    answer = http.post("/v1/signals", headers=as_("source"), json=body)
    assert answer.status_code == 422 and answer.json()["detail"].startswith(said)
