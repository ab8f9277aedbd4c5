"""What is read once and then followed is what the whole ledger says, on every database, whoever else writes to it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from minder.model.decision import Decision, Price
from minder.model.evidence import Verdict
from minder.model.history import History, LedgerEvent, PastEviction
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.approvals import APPROVAL_KINDS, fold_approvals
from minder.record.incidents.history import HISTORY_KINDS, RECENT_S, active_pauses, find_bars, fold_suspects
from minder.record.incidents.maintenance import fold_maintenance
from minder.record.store.engine import writing
from minder.record.store.events import EventRow, EventStore, insert_row
from minder.wire.codec import to_json

JOBS = ("llm", "vision", "speech")


def plain_history(events: Sequence[LedgerEvent], job: str, now_s: float) -> History:
    """The same as one look at everything: what the fold must be equal to."""
    begun_id = max((event.id for event in events if event.kind == kinds.JOB_REGISTERED and event.job == job), default=0)
    of_the_past = bool(events) and events[-1].time_s > now_s
    outcomes = {event.operation_id: event.payload.get("outcome") for event in events if event.kind == kinds.RESULT}
    actions = [
        PastEviction(
            event.time_s, str(event.job), tuple(event.payload["machines"]), event.payload["action"], name, name in outcomes, event.id
        )
        for event in events
        if event.kind == kinds.INTENT
        and event.payload["action"] in ("evict", "trial", "restart")
        and (name := event.operation_id) is not None
        if outcomes.get(name) != "dry_run"
    ]
    own = [item for item in actions if item.job == job and item.event_id >= begun_id and not (of_the_past and item.time_s > now_s)]
    recent = [item for item in actions if item not in own and now_s - RECENT_S <= item.time_s <= now_s]
    started = [event.time_s for event in events if event.kind == kinds.GENERATION_STARTED and event.job == job and event.id > begun_id]
    return History(
        actions=tuple(sorted([*own, *recent], key=lambda item: item.time_s)),
        begun_s=next((event.time_s for event in events if event.id == begun_id), None),
        pauses=active_pauses(events, now_s),
        barred=frozenset(machine for owner, machine in find_bars(events) if owner in (None, job)),
        last_restart_s=started[-1] if len(started) > 1 else None,
        restarts=sum(item.action in ("restart", "trial") for item in own),
        restarts_today=sum(item.action in ("restart", "trial") and item.time_s > now_s - 86_400.0 for item in own),
        approvals=tuple(fold_approvals(event for event in events if event.kind in APPROVAL_KINDS and event.job == job)),
        maintenance=fold_maintenance(events, now_s),
        evicted_s=plain_evictions(events),
    )


def plain_evictions(events: Sequence[LedgerEvent]) -> dict[str, tuple[float, ...]]:
    """Machine to the times of its evictions that happened, in the order of their results."""
    intents = {event.operation_id: event for event in events if event.kind == kinds.INTENT and event.payload["action"] == "evict"}
    done = [event.operation_id for event in events if event.kind == kinds.RESULT and event.payload["outcome"] in ("done", "already_done")]
    found: dict[str, tuple[float, ...]] = {}
    for intent in (intents[name] for name in done if name in intents):
        for machine in intent.payload["machines"]:
            found[machine] = (*found.get(machine, ()), intent.time_s)
    return found


class Writer:
    """Another process: writes what a site may write in a bad year, with a clock that is set now and then."""

    def __init__(self, store: EventStore, seed: int) -> None:
        self.store, self.chance = store, random.Random(seed)
        self.now_s, self.number = 100_000.0, 0
        self.open: list[tuple[str, str, str]] = []
        self.rows: list[EventRow] = []
        for job in JOBS:  # an incident begins with a verdict
            self.put(kinds.VERDICT, self.verdict("m0", "page", "machine"), job, f"{job}-0")

    def put(self, kind: str, payload: dict[str, Any], job: str | None, incident: str | None = None, operation: str | None = None) -> None:
        self.rows.append(EventRow(self.now_s, kind, json.dumps(payload), job, incident, operation))

    def write(self, turns: int) -> None:
        """In one transaction: a disk that others use is slow to say that all is on it."""
        for _ in range(turns):
            self.turn()
        with writing(self.store._engine) as connection:
            for row in self.rows:
                insert_row(connection, row)
        self.rows.clear()

    def turn(self) -> None:
        self.now_s += self.chance.choice((1.0, 30.0, 900.0, 900.0, -20.0)) if self.chance.random() < 0.98 else -50_000.0
        job, machine, self.number = self.chance.choice(JOBS), f"m{self.chance.randrange(8)}", self.number + 1
        self.chance.choice((self.accuse, self.accuse, self.act, self.act, self.ask, self.settle, self.people, self.run))(job, machine)

    def accuse(self, job: str, machine: str) -> None:
        tier, kind = self.chance.choice(("watch", "page", "evict")), self.chance.choice(("machine", "machine", "recovered"))
        incident = f"{job}-{self.chance.randrange(1 + self.number // 8)}"
        self.put(kinds.VERDICT, self.verdict(machine, tier, kind), job, incident)
        if self.chance.random() < 0.5:
            self.put(self.chance.choice((kinds.FIRST_STEP, kinds.CLOSED, kinds.EVIDENCE)), {"machine": machine, "what": "x"}, job, incident)
            if self.chance.random() < 0.5:
                self.put(kinds.DECISION, {"action": "page", "machines": [machine]}, job, incident)

    def verdict(self, machine: str, tier: str, kind: str) -> dict[str, Any]:
        return dict(to_json(Verdict(self.now_s, kind, tier, (machine,), "stall", 0.9, self.now_s - 5.0)))  # type: ignore[arg-type]

    def act(self, job: str, machine: str) -> None:
        action, name = self.chance.choice(("evict", "restart", "end-workers")), f"op-{self.number}"
        self.put(kinds.INTENT, {"action": action, "machines": [machine]}, job, f"{job}-0", name)
        if self.chance.random() < 0.8:
            self.put(kinds.RESULT, {"outcome": self.chance.choice(("done", "failed", "dry_run"))}, job, f"{job}-0", name)

    def ask(self, job: str, machine: str) -> None:
        verdict = Verdict(self.now_s, "machine", "evict", (machine,), "stall", 0.9, self.now_s - 5.0)
        decision = Decision(f"op-{self.number}", self.now_s, "evict", (machine,), "act", "", verdict, Price(1.0, 2.0))
        asked = {"decision": to_json(decision), "until_s": self.now_s + 60.0, "generation": 1, "incidents": [f"{job}-0"]}
        self.put(kinds.APPROVAL_ASKED, asked, job, f"{job}-0", f"op-{self.number}")
        self.open.append((job, machine, f"op-{self.number}"))

    def settle(self, job: str, machine: str) -> None:
        if not self.open:
            return
        job, machine, name = self.open.pop(self.chance.randrange(len(self.open)))
        answer = self.chance.choice(("approved", "rejected", "expired"))
        self.put(kinds.APPROVAL_SETTLED, {"answer": answer, "by": "alice", "reason": "x"}, job, f"{job}-0", name)
        if answer == "approved":
            self.put(kinds.INTENT, {"action": "evict", "machines": [machine]}, job, f"{job}-0", name)
        elif self.chance.random() < 0.5:
            self.put(kinds.APPROVAL_CLOSED, {"why": "rejected"}, job, f"{job}-0", name)

    def people(self, job: str, machine: str) -> None:
        scope, target = self.chance.choice((("job", job), ("rack", "r1"), ("all", None), ("everything", None)))
        if self.chance.random() < 0.5:
            self.put(kinds.UNPAUSE if scope == "everything" else kinds.PAUSE,
                     {"scope": scope, "target": target, "until_s": self.now_s + 2000.0}, None)  # fmt: skip
        owner = self.chance.choice((job, None))
        self.put(self.chance.choice((kinds.BARRED, kinds.BARRED, kinds.UNBARRED)), {"machine": machine, "reason": "x"}, owner)
        window = {"id": f"w{self.chance.randrange(3)}", "from_s": self.now_s, "until_s": self.now_s + 3000.0, "machines": [machine]}
        self.put(self.chance.choice((kinds.MAINTENANCE, kinds.MAINTENANCE_ENDED)), window | {"reason": "x", "by": "alice"}, None)

    def run(self, job: str, machine: str) -> None:
        if self.chance.random() < 0.2:
            self.put(self.chance.choice((kinds.JOB_REGISTERED, kinds.JOB_ENDED)), {"machines": [], "outcome": "failed"}, job)
        self.put(kinds.GENERATION_STARTED, {"generation": self.number}, job)
        self.put(kinds.NOTE, {"text": "x"}, job)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.release) for seed in (2, 3))])
def test_what_is_followed_is_what_the_whole_ledger_says(database: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minder.record.store.follow._WINDOW", 37)
    store = EventStore(database)
    writer, chance = Writer(store, seed), random.Random(seed)
    with Ledger(database) as followed:
        for _ in range(20):
            writer.write(chance.randrange(1, 16))
            compare(followed, writer.now_s)
    with Ledger(database) as late:  # read at once what the other saw come
        compare(late, writer.now_s)
    store.close()


def compare(followed: Ledger, now_s: float) -> None:
    events = followed.events(kinds=HISTORY_KINDS)
    for job in (*JOBS, "none"):
        for at_s in (now_s, now_s - 5000.0):
            assert followed.history(job, at_s) == plain_history(events, job, at_s)
        assert followed.approvals(job) == fold_approvals(followed.events(job=job, kinds=APPROVAL_KINDS))
        assert followed.open_incidents(job) == followed.incidents(job=job, state="open")
    assert followed.open_incidents() == followed.incidents(state="open")
    verdicts = followed.events(kinds=[kinds.VERDICT])
    for since_s in (now_s - 60.0, now_s - 3000.0, now_s - 20_000.0, now_s):
        assert followed.suspects(since_s) == fold_suspects(verdicts, since_s)


def test_nothing_old_is_read_again(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EventStore(database)
    writer = Writer(store, 5)
    writer.write(200)
    with Ledger(database) as followed:
        compare(followed, writer.now_s)
        read: list[int] = []
        select = EventStore.select
        monkeypatch.setattr(EventStore, "select", lambda self, query: [read.append(event.id) or event for event in select(self, query)])  # type: ignore[func-returns-value]
        newest_id = store.last_id()
        writer.put(kinds.PAUSE, {"scope": "all", "target": None, "until_s": writer.now_s + 60.0}, None)
        writer.write(0)
        assert followed.history("llm", writer.now_s).pauses and followed.approvals("llm") is not None
        assert followed.suspects(writer.now_s - 60.0) is not None and followed.open_incidents("llm") is not None
        assert set(read) <= {newest_id + 1}
    store.close()


def test_a_database_that_fails_once_hides_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.model.errors import LedgerError

    database = str(tmp_path / "ledger.db")
    monkeypatch.setattr("minder.record.store.follow._WINDOW", 5)
    store = EventStore(database)
    writer, select, calls = Writer(store, 7), EventStore.select, 0
    writer.write(40)

    def failing(self: EventStore, query: Any) -> list[LedgerEvent]:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise LedgerError("away")
        return select(self, query)

    with Ledger(database) as followed:
        monkeypatch.setattr(EventStore, "select", failing)
        for _ in range(400):
            try:
                followed.history("llm", writer.now_s), followed.suspects(writer.now_s - 60.0), followed.open_incidents()
            except LedgerError:
                continue
        monkeypatch.setattr(EventStore, "select", select)
        compare(followed, writer.now_s)
    store.close()
