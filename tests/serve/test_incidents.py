from __future__ import annotations

import sqlite3
from collections.abc import Callable

import httpx
import pytest

from minder.model.clock import FakeClock, format_time
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.report import incident_report

As = Callable[..., dict[str, str]]


def accuse(ledger: Ledger, job: str, machine: str, time_s: float) -> str:
    return ledger.open_incident(Verdict(time_s, "machine", "page", (machine,), "slowdown", 0.7, time_s - 5.0), job=job, time_s=time_s)


def test_a_list_is_newest_first_and_says_what_was_done(http: httpx.Client, as_: As) -> None:
    items = http.get("/v1/incidents", headers=as_()).json()["items"]
    assert [(item["id"], item["state"], item["action"], item["machines"], item["evicted"]) for item in items] == [
        ("llm-2", "open", None, ["m1"], []),
        ("llm-1", "closed", "evict", ["m2"], ["m2"]),
    ]


def test_filters(http: httpx.Client, ledger: Ledger, clock: FakeClock, as_: As) -> None:
    accuse(ledger, "vision", "v1", clock.now_s() - 5000.0)
    headers = as_()

    def listed(query: str) -> list[str]:
        return [item["id"] for item in http.get(f"/v1/incidents?{query}", headers=headers).json()["items"]]

    assert listed("job=vision") == ["vision-1"] and listed("job=nobody") == []
    assert listed("state=closed") == ["llm-1"] and listed("state=open") == ["vision-1", "llm-2"]
    assert listed(f"since={format_time(clock.now_s() - 60.0)}") == ["llm-2"]


def test_pages_stay_the_same_while_new_incidents_open(http: httpx.Client, ledger: Ledger, clock: FakeClock, as_: As) -> None:
    for number in range(7):
        accuse(ledger, "vision", f"v{number}", clock.now_s())
    headers, seen, cursor = as_(), [], ""
    while True:
        page = http.get(f"/v1/incidents?limit=2{cursor}", headers=headers).json()
        seen += [item["id"] for item in page["items"]]
        accuse(ledger, "other", f"o{len(seen)}", clock.now_s())
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == [*(f"vision-{number}" for number in range(7, 0, -1)), "llm-2", "llm-1"]


def test_an_answer_is_not_sent_again_until_it_changes(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    headers = as_()
    for path in ("/v1/incidents", "/v1/incidents/llm-2"):
        first = http.get(path, headers=headers)
        again = http.get(path, headers=headers | {"If-None-Match": f'"other", {first.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        ledger.append(kinds.CLOSED, {"by": "bob"}, job="llm", incident="llm-2")
        changed = http.get(path, headers=headers | {"If-None-Match": first.headers["etag"]})
        assert changed.status_code == 200 or path.endswith("llm-2")


def test_one_incident_has_evidence_decisions_and_the_way_back(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    found = http.get("/v1/incidents/llm-1", headers=as_()).json()
    assert found["evidence"][0]["metric"] == "cpu_usage_ratio" and found["against"][0]["message"] == "its agent answers"
    assert found["decisions"][0]["price"] == {"acting_gpu_s": 100.0, "waiting_gpu_s": 2000.0}
    assert found["undo"] == ['minder machine return m2 --note "undoes llm-1"'] and found["results"][0]["outcome"] == "done"
    assert found["durations"]["downtime_s"] == pytest.approx(16.0) and found["captured"] == ["stacks of m2"]
    assert found["report"] == incident_report(ledger.incident("llm-1"))


def test_captures_come_by_themselves(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    ledger.append(kinds.EVIDENCE, {"machine": "m1", "what": "flows", "data": {"rows": 3}}, job="llm", incident="llm-1")
    headers = as_()
    page = http.get("/v1/incidents/llm-1/captures?limit=1", headers=headers).json()
    assert [(item["what"], item["data"]) for item in page["items"]] == [("stacks", ["in all_reduce"])]
    rest = http.get(f"/v1/incidents/llm-1/captures?limit=1&cursor={page['next']}", headers=headers).json()
    assert [item["data"] for item in rest["items"]] == [{"rows": 3}] and rest["next"] is None


BAD = [
    ("incidents/llm-99", 404, 'no incident "llm-99"'),
    ("incidents/..%2f..%2fetc", 404, "no such path"),
    ("incidents/%00", 422, "path.incident"),
    ("incidents?since=yesterday", 422, "since is no time"),
    ("incidents?limit=0", 422, "query.limit"),
    ("incidents?limit=99999999999999999999999", 422, "query.limit"),
    ("incidents?cursor=-1", 422, "cursor is not one"),
    ("incidents?cursor=%C2%B2", 422, "cursor is not one"),
    ("incidents?state=gone", 422, "query.state"),
    ("incidents?job=%00", 422, "query.job"),
    ("machines/nobody", 404, "nothing is known"),
    ("jobs/nobody", 404, 'no job "nobody"'),
    ("nothing", 404, "no such path"),
]


def test_bad_requests_are_one_clear_line(http: httpx.Client, as_: As) -> None:
    headers = as_()
    for path, status, said in BAD:
        answer = http.get(f"/v1/{path}", headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path
        assert said in answer.json()["detail"] and "\n" not in answer.json()["detail"] and answer.json()["status"] == status, path


def test_an_unreadable_ledger_is_told_and_never_looks_healthy(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    headers = as_()
    with sqlite3.connect(ledger.location) as database:
        database.execute("DROP TABLE events")
    for path in ("/v1/ready", "/v1/incidents"):
        answer = http.get(path, headers=headers)
        assert answer.status_code == 503 and "cannot be read" in answer.json()["detail"]
    assert http.get("/v1/health").status_code == 200
