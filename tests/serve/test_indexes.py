"""What is kept in memory says what the whole ledger says."""

from __future__ import annotations

import random

from minder.act.controller.state import fold_job
from minder.model.decision import ActionResult, Decision
from minder.record.incidents import Ledger, fold_incident, kinds
from minder.record.incidents.approvals import APPROVAL_KINDS, fold_approvals
from minder.record.incidents.machines import MACHINE_KINDS, fold_machines
from minder.record.store.events import EventQuery, EventStore
from minder.wire.codec import to_json
from serve.approval_index import ApprovalIndex
from serve.incident_index import IncidentIndex
from serve.job_index import JOB_KINDS, JobIndex
from serve.state import Service
from tests.serve.conftest import verdict_of, write_past

NOW_S = 1_700_000_000.0


def write_something(ledger: Ledger, dice: random.Random, number: int) -> None:
    """Incidents that are open, closed, recovered from, acted on, acted on again after their end."""
    time_s = NOW_S + number
    job = dice.choice(["llm", "moe"])
    name = ledger.open_incident(verdict_of(f"x{number}", time_s), job=job, time_s=time_s)
    for step in range(dice.randrange(4)):
        what = dice.choice(["intent", "first_step", "closed", "recovered", "note", "barred", "unbarred", "ended", "asked"])
        at = {"job": job, "incident": name, "time_s": time_s}
        if what == "intent":
            operation = f"{name}-{step}"
            ledger.intend(operation, {"action": dice.choice(["evict", "restart", "look"]), "machines": [f"x{number}"]}, **at)
            if dice.random() < 0.7:
                ledger.complete(operation, ActionResult(operation, time_s, "done"))
        elif what == "first_step":
            ledger.append(kinds.FIRST_STEP, {"step": number, "generation": number}, **at)
        elif what == "recovered":
            ledger.append(kinds.VERDICT, {"kind": "recovered", "machines": [f"x{number}"]}, **at)
        elif what == "asked":
            decision = Decision(
                f"{name}-{step}", time_s, "evict", (f"x{number}",), "awaiting_approval", "asks", verdict_of(f"x{number}", time_s)
            )
            asked = {"decision": to_json(decision), "generation": 1, "until_s": time_s + 60.0, "incidents": [name]}
            ledger.append_once(kinds.APPROVAL_ASKED, asked, operation_id=decision.operation_id, **at)
            if dice.random() < 0.5:
                settled = {"answer": dice.choice(["approved", "rejected"]), "by": "alice", "reason": "seen"}
                ledger.append_once(kinds.APPROVAL_SETTLED, settled, operation_id=decision.operation_id, **at)
        elif what == "ended":
            ledger.append(kinds.GENERATION_STARTED, {"generation": number, "rank_machine": {"0": f"x{number}"}}, **at)
        else:
            ledger.append(what, {"machine": f"x{number}", "text": '"kind":"recovered"'}, **at)


def test_they_agree_with_the_ledger_while_it_grows(ledger: Ledger, service: Service) -> None:
    dice = random.Random(7)
    index, machines = service.incidents, service.machines
    for number in range(120):
        write_something(ledger, dice, number)
        if number == 60:
            write_past(ledger, "third", NOW_S)
        if number % 20 == 0 or number == 119:
            fresh = [item.summary.id for item in IncidentIndex(service.events).newest_first() if item.summary.state != "closed"]
            assert [item.summary.id for item in index.unfinished()] == fresh
            assert [item.summary.id for item in IncidentIndex(service.events).unfinished()] == fresh
            every = service.events.select(EventQuery(kinds=MACHINE_KINDS))
            assert machines.records(None) == fold_machines(every)
            own = [event for event in every if event.job in (None, "moe")]
            assert machines.records(("moe",)) == fold_machines(own)
            for questions in (service.questions, ApprovalIndex(service.events)):
                assert questions.approvals() == fold_approvals(service.events.select(EventQuery(kinds=APPROVAL_KINDS)))
            for item in index.newest_first():
                assert index.whole(item.summary.id) == fold_incident(service.events.select(EventQuery(incident=item.summary.id)))
            for jobs in (service.jobs, JobIndex(service.events)):
                for name, past in jobs.pasts().items():
                    assert past.state == fold_job(name, service.events.select(EventQuery(job=name, kinds=JOB_KINDS)))


def test_an_incident_is_found_by_the_machine_that_it_names(service: Service, ledger: Ledger) -> None:
    for machine in ("m%", "m_", "m", 'm"x', "m\\x"):
        ledger.open_incident(verdict_of(machine, NOW_S), job="llm", time_s=NOW_S)

    def naming(machine: str) -> list[tuple[str, ...]]:
        return [item.summary.machines for item in service.incidents.listed(service.machines.incidents_naming(machine))]

    assert naming("m2") == [("m2",)]
    for machine in ("m%", "m_", "m", 'm"x', "m\\x"):
        assert naming(machine) == [(machine,)]


def test_what_is_older_than_the_index_is_read_once(service: Service, ledger: Ledger, monkeypatch: object) -> None:
    list(service.incidents.newest_first())
    asked: list[EventQuery] = []
    select = EventStore.select

    def watch(self: EventStore, query: EventQuery) -> object:
        asked.append(query)
        return select(self, query)

    monkeypatch.setattr(EventStore, "select", watch)  # type: ignore[attr-defined]
    list(service.incidents.newest_first())
    assert asked == []
