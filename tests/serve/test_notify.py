"""Verdicts go out: what is told to whom, and that nothing is lost while a receiver or the service is down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from minder.model.clock import FakeClock
from minder.model.errors import BadInputError
from minder.model.evidence import Evidence, Verdict
from minder.record.api.notices import Notice, check_signature, sign
from minder.record.incidents import Ledger, kinds
from minder.record.store.events import EventStore
from serve.notify.alerts import alerts_of
from serve.notify.chat import chat_message
from serve.notify.outbox import Outbox
from serve.notify.redact import redact
from serve.notify.send import Sender
from serve.notify.targets import Target

SECRET = "0123456789abcdef0123456789abcdef"
NOW_S = 1_700_000_000.0


class Receiver:
    """A real receiver on loopback: `answers` says what it does with each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status: Callable[[], int] = lambda: 200
        receiver = self

        class Post(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                status = receiver.status()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{receiver.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Post)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def notices(self) -> list[Notice]:
        return [Notice.model_validate_json(body) for _, _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.close()


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def webhook(receiver: Receiver, secret: str) -> Target:
    return Target(name="on-call", kind="webhook", url=f"{receiver.url}/hook", secret_file=secret)


@pytest.fixture
def store(ledger: Ledger) -> Iterator[EventStore]:
    opened = EventStore(ledger.location)
    yield opened
    opened.close()


def outbox_of(target: Target, store: EventStore, clock: FakeClock, **more: Any) -> Outbox:
    return Outbox(target, Sender(target), store, clock, "https://minder.example.org", **more)


def settle(outbox: Outbox, clock: FakeClock, until_s: float | None = None) -> None:
    """Step until nothing is due, or until a time, waiting as it says."""
    while True:
        wait_s = outbox.step()
        if until_s is None and wait_s == 1.0 and not outbox.failures:
            return
        clock.sleep(wait_s)
        if until_s is not None and clock.now_s() >= until_s:
            return


def verdict(machine: str, time_s: float, tier: Any = "page", **fields: Any) -> Verdict:
    evidence = (Evidence("kernel", machine, "mount failed: password=hunter2 <!channel>"),)
    return Verdict(time_s, fields.pop("kind", "machine"), tier, (machine,), "stall", 0.9, time_s - 5.0, evidence, **fields)


def test_a_verdict_goes_out_once_signed_and_in_words(
    ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver, webhook: Target
) -> None:
    outbox = outbox_of(webhook, store, clock)
    settle(outbox, clock)
    assert receiver.requests == []  # the past before this receiver was known is not told
    ledger.open_incident(verdict("m7", NOW_S), job="llm")
    settle(outbox, clock)
    (path, headers, body), (notice,) = receiver.requests[0], receiver.notices
    check_signature(SECRET, headers["Minder-Signature"], body, clock.now_s())
    with pytest.raises(BadInputError, match="does not fit"):
        check_signature(SECRET, headers["Minder-Signature"], body + b" ", clock.now_s())
    assert path == "/hook" and headers["Minder-Notice-Id"] == notice.id
    assert (notice.kind, notice.job, notice.machines, notice.tier) == ("verdict", "llm", ("m7",), "page")
    assert notice.link == f"https://minder.example.org/incidents/{notice.incident}"
    assert "hunter2" not in body.decode() and "password=[redacted]" in notice.evidence[0]
    settle(outbox_of(webhook, store, clock), clock)
    assert len(receiver.requests) == 1
    (told,) = [event for event in ledger.events(kinds=[kinds.NOTIFIED]) if event.incident]
    assert told.incident == notice.incident and told.payload["outcome"] == "delivered"


def test_ten_minutes_without_the_receiver_and_a_restart_lose_nothing(
    ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver, webhook: Target
) -> None:
    first = outbox_of(webhook, store, clock)
    settle(first, clock)
    receiver.status = lambda: 503
    opened = [ledger.open_incident(verdict(f"m{number}", clock.now_s()), job="llm") for number in range(5, 9)]
    settle(first, clock, clock.now_s() + 300.0)
    ledger.open_incident(verdict("m5", clock.now_s(), kind="recovered", tier="watch"), job="llm")
    attempts = len(receiver.requests)
    assert 5 <= attempts <= 20 and "HTTP 503" in first.last_error and first.waiting_since_s is not None
    second = outbox_of(webhook, store, clock)  # as after kill -9: nothing of the first is left but the ledger
    settle(second, clock, clock.now_s() + 300.0)
    receiver.status = lambda: 200
    settle(second, clock, clock.now_s() + 61.0)
    settle(second, clock)
    taken = receiver.notices[-5:]
    assert [notice.incident for notice in taken] == [*opened, opened[0]]
    assert [notice.kind for notice in taken] == ["verdict"] * 4 + ["closed"]
    assert len({notice.id for notice in receiver.notices}) == 5
    degraded = [event.payload for event in ledger.events(kinds=[kinds.DEGRADED]) if event.payload["what"] == "notify"]
    assert len(degraded) == 2 and "on-call gets no notices" in degraded[0]["detail"]


def test_what_a_receiver_refuses_for_its_content_does_not_hold_up_the_rest(
    ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver, webhook: Target
) -> None:
    outbox = outbox_of(webhook, store, clock)
    settle(outbox, clock)
    bad = ledger.open_incident(verdict("m5", NOW_S), job="llm")
    ledger.open_incident(verdict("m6", NOW_S), job="llm")
    receiver.status = lambda: 422 if receiver.notices[-1].incident == bad else 200
    settle(outbox, clock, clock.now_s() + 60.0)
    assert [notice.machines for notice in receiver.notices] == [("m5",)] * 5 + [("m6",)]
    outcomes = [event.payload["outcome"] for event in ledger.events(kinds=[kinds.NOTIFIED])]
    assert outcomes == ["begun", "refused", "delivered"]


def test_no_redirect_is_followed(ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver, webhook: Target) -> None:
    outbox = outbox_of(webhook, store, clock)
    settle(outbox, clock)
    receiver.status = lambda: 302
    ledger.open_incident(verdict("m5", NOW_S), job="llm")
    settle(outbox, clock, clock.now_s() + 5.0)
    assert {path for path, _, _ in receiver.requests} == {"/hook"} and "not followed" in outbox.last_error


def test_tiers_jobs_and_kinds_choose(ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver, secret: str) -> None:
    target = Target(
        name="a", kind="webhook", url=receiver.url, secret_file=secret, tiers=("evict",), jobs=("llm*",), tell=("verdict",), evidence=False
    )
    outbox = outbox_of(target, store, clock)
    settle(outbox, clock)
    for job, tier in (("llm", "page"), ("vision", "evict"), ("llm-2", "evict")):
        ledger.open_incident(verdict("m5", clock.now_s(), tier), job=job)
    ledger.open_incident(verdict("m5", clock.now_s(), kind="recovered", tier="watch"), job="llm-2")
    settle(outbox, clock)
    (notice,) = receiver.notices
    assert (notice.job, notice.evidence, notice.what) == ("llm-2", (), "verdict evict: m5, stall")


def test_an_action_and_the_end_are_told(ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver, webhook: Target) -> None:
    """The past of conftest.py, told from its beginning."""
    outbox = outbox_of(webhook, store, clock)
    outbox._cursor = 0
    settle(outbox, clock)
    assert [(notice.kind, notice.state) for notice in receiver.notices] == [
        ("verdict", "open"), ("action", "recovering"), ("closed", "closed"), ("verdict", "open"),
    ]  # fmt: skip
    assert receiver.notices[1].undo == ('minder machine return m2 --note "undoes llm-1"',)


def test_alerts_stand_escalate_and_resolve(ledger: Ledger) -> None:
    target = Target(name="am", kind="alertmanager", url="http://127.0.0.1:9093")
    name = ledger.open_incident(verdict("m5", NOW_S, "watch"), job="big")
    assert alerts_of(target, ledger.events(incident=name), NOW_S) == []
    ledger.open_incident(verdict("m5", NOW_S + 1), job="big", time_s=NOW_S + 1)
    (alert,) = alerts_of(target, ledger.events(incident=name), NOW_S + 5)
    assert alert["labels"] == {
        "alertname": "MinderVerdict", "incident": name, "training_job": "big", "severity": "warning", "tier": "page",
        "cause": "stall", "kind": "machine", "machine": "m5",
    }  # fmt: skip
    assert (alert["startsAt"], alert["endsAt"]) == ("2023-11-14T22:13:21.000Z", "2023-11-14T23:13:25.000Z")
    ledger.open_incident(verdict("m5", NOW_S + 9, "evict"), job="big", time_s=NOW_S + 9)
    page, evict = alerts_of(target, ledger.events(incident=name), NOW_S + 10)
    assert page["endsAt"] == "2023-11-14T22:13:29.000Z" and evict["labels"]["severity"] == "critical"
    ledger.open_incident(verdict("m5", NOW_S + 20, kind="recovered", tier="watch"), job="big", time_s=NOW_S + 20)
    assert {item["endsAt"] for item in alerts_of(target, ledger.events(incident=name), NOW_S + 30)} == {
        "2023-11-14T22:13:29.000Z", "2023-11-14T22:13:40.000Z",
    }  # fmt: skip


def test_alertmanager_is_told_again_of_what_is_open(ledger: Ledger, store: EventStore, clock: FakeClock, receiver: Receiver) -> None:
    target = Target(name="am", kind="alertmanager", url=receiver.url)
    outbox = outbox_of(target, store, clock, open_incidents=lambda: ["llm-2"])
    settle(outbox, clock, clock.now_s() + 185.0)
    assert [path for path, _, _ in receiver.requests] == ["/api/v2/alerts"] * 4
    assert all(json.loads(body)[0]["labels"]["incident"] == "llm-2" for _, _, body in receiver.requests)


def test_a_chat_message_calls_nobody() -> None:
    notice = Notice(
        id="event-1", kind="verdict", time="2026-03-02T06:12:31.000Z", job="llm", incident="llm-1", state="open", tier="evict",
        cause="stall",        confidence=0.9, machines=("m1",), title="job llm: m1, stall", what="verdict",
        evidence=("log: <!channel> & <@U1> *x*",),
        link="https://minder.example.org/incidents/llm-1",
    )  # fmt: skip
    message = json.dumps(chat_message(notice))
    assert "<!channel>" not in message and "<@U1>" not in message and "EVICT" in message
    assert "<https://minder.example.org/incidents/llm-1|open>" in message


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("curl https://bob:hunter2@host/x", "https://[redacted]@host/x"),
        ("Authorization: Bearer abcdefgh12345678", "Bearer [redacted]"),
        ('{"api_key": "hunter2 two", "rank": 3}', '"rank": 3'),
        ("HF_TOKEN=hunter2 python train.py", "python train.py"),
        ("AKIAABCDEFGHIJKLMNOP hunter1", "[redacted] hunter1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2", "[redacted]"),
    ],
)
def test_secrets_of_log_lines_are_blotted_out(text: str, kept: str) -> None:
    assert kept in redact(text) and "hunter2" not in redact(text) and "AKIA" not in redact(text)
    assert redact("rank 7 of node-0007", [r"node-\d+"]) == "rank 7 of [redacted]"


def test_an_old_or_odd_signature_is_refused() -> None:
    header = sign(SECRET, b"{}", 1000.0)
    for given, said in ((None, "missing"), ("t=x,v1=y", "missing"), (header.replace("v1=", "v1=0"), "does not fit")):
        with pytest.raises(BadInputError, match=said):
            check_signature(SECRET, given, b"{}", 1000.0)
    with pytest.raises(BadInputError, match="301 s off"):
        check_signature(SECRET, header, b"{}", 1301.0)
