"""What a decision reads of the ledger's past, with thousands of incidents in it: processor time in one process.

    python bench/past.py [--incidents 10000] [--ledger postgresql://...] [--out results.json]

Every incident was asked about (approval mode), evicted and recovered from. Each reading is timed the first time and as the least of
five more, before each of which another process writes a pause.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages import machine_names, write_incident

from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.store.engine import writing
from minder.record.store.events import EventStore
from minder.record.store.tables import EVENTS


def write_past(ledger: str, incidents: int, now_s: float) -> int:
    """Returns how many events there are."""
    store, rows = EventStore(ledger), list[dict[str, Any]]()

    def put(kind: str, payload: Any, time_s: float, incident: str | None = None, operation: str | None = None) -> None:
        text = json.dumps(payload, separators=(",", ":"))
        rows.append({"time_s": time_s, "kind": kind, "payload": text, "job": "big", "incident": incident, "operation_id": operation})
        if kind == kinds.DECISION and payload["action"] == "evict":
            asked = {"decision": payload, "until_s": time_s + 900.0, "on_timeout": "page", "generation": 1, "incidents": [incident]}
            put(kinds.APPROVAL_ASKED, asked, time_s, incident, payload["operation_id"])
            said = {"answer": "approved", "by": "alice", "reason": "looked at it"}
            put(kinds.APPROVAL_SETTLED, said, time_s, incident, payload["operation_id"])

    begin_s = now_s - 30 * 86_400.0
    names = machine_names()
    put(kinds.JOB_REGISTERED, {"machines": names, "standbys": [], "gpus": len(names)}, begin_s)
    for number in range(1, incidents + 1):
        machine, time_s = names[number * 7 % len(names)], begin_s + 86_400.0 * 29.9 * number / incidents
        write_incident(put, number, time_s, machine, is_open=number > incidents - 3, ranks={})
    with writing(store._engine) as connection:
        connection.execute(EVENTS.insert(), rows)
    store.close()
    return len(rows)


def measure(work: Callable[[], object], between: Callable[[], object]) -> dict[str, float]:
    seconds = []
    for _ in range(6):
        between()
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    return {"first_ms": round(1000 * seconds[0], 1), "again_ms": round(1000 * min(seconds[1:]), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--incidents", type=int, default=10_000)
    parser.add_argument("--ledger", help="an empty one; a SQLite file in a temporary folder if not given")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minder-past-") as folder:
        place, now_s = given.ledger or str(Path(folder) / "ledger.db"), time.time()
        found: dict[str, Any] = {"incidents": given.incidents, "events": write_past(place, given.incidents, now_s)}
        verdict = Verdict(now_s, "machine", "page", (machine_names()[3],), "stall", 0.9, now_s)
        with Ledger(place) as ledger, Ledger(place) as other:

            def pause() -> None:
                other.append(kinds.PAUSE, {"scope": "rack", "target": "r1", "until_s": now_s + 60.0, "reason": "x"})

            found["history"] = measure(lambda: ledger.history("big"), pause)
            found["approvals"] = measure(lambda: ledger.approvals("big"), pause)
            found["suspects"] = measure(lambda: ledger.suspects(now_s - 300.0), pause)
            found["open_incident"] = measure(lambda: ledger.open_incident(verdict, job="big"), pause)
    print(json.dumps(found, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
