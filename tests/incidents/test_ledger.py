from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from minder.model.clock import FakeClock
from minder.model.decision import ActionResult, Decision
from minder.model.errors import BadInputError, LedgerError
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.store.engine import open_engine, reading


def test_events_come_back_in_order_and_by_what_is_asked(ledger: Ledger, clock: FakeClock) -> None:
    first = ledger.append(kinds.NOTE, {"text": "a"}, job="llm")
    clock.sleep(5)
    second = ledger.append(kinds.SOURCE_ERROR, {"source": "prometheus", "error": "refused"})
    third = ledger.append(kinds.NOTE, {"text": "b"}, job="llm", time_s=7.0)
    assert [event.time_s for event in (first, second, third)] == [1000.0, 1005.0, 7.0]
    assert ledger.events() == [first, second, third]
    assert ledger.events(since_id=first.id, job="llm") == [third]
    assert ledger.events(kinds=[kinds.SOURCE_ERROR]) == [second]
    assert ledger.events(limit=1) == [first]


def test_what_python_has_and_json_has_not_is_written_all_the_same(ledger: Ledger) -> None:
    log = "bad \udcff byte \x00"
    payload = {"loss": float("nan"), "score": np.float32(0.5), "machines": ("a", "b"), "set": {"x"}, "log": log}
    payload["list"] = [np.float64("inf"), np.int64(3)]
    ledger.append(kinds.NOTE, payload)
    found = ledger.events()[0].payload
    assert found == {"loss": None, "score": 0.5, "machines": ["a", "b"], "set": ["x"], "log": log, "list": [None, 3]}
    with pytest.raises(LedgerError, match="payload cannot be written as JSON"):
        ledger.append(kinds.NOTE, {"what": object()})


def test_an_operation_is_intended_once(ledger: Ledger, decision: Decision) -> None:
    first = ledger.intend("evict-1", decision, job="llm", incident="llm-1")
    again = ledger.intend("evict-1", {"action": "evict", "machines": ["other"]}, job="llm")
    assert first.first and not again.first
    assert again.event == first.event
    assert first.event.payload["machines"] == ["m2"]
    assert len(ledger.events(kinds=[kinds.INTENT])) == 1


def test_a_result_is_written_once_and_the_same_again_is_no_error(ledger: Ledger, decision: Decision) -> None:
    ledger.intend("evict-1", decision, job="llm", incident="llm-1")
    done = ledger.complete("evict-1", ActionResult("evict-1", 1001.0, "done", undo="put it back"))
    assert (done.job, done.incident, done.time_s) == ("llm", "llm-1", 1001.0)
    assert ledger.complete("evict-1", ActionResult("evict-1", 1002.0, "done")) == done
    assert ledger.complete("evict-1", ActionResult("evict-1", 1002.0, "already_done")) == done
    with pytest.raises(LedgerError, match="ended as done already: it cannot become failed"):
        ledger.complete("evict-1", ActionResult("evict-1", 1003.0, "failed"))
    assert ledger.result("evict-1") == ActionResult("evict-1", 1001.0, "done", undo="put it back")
    assert len(ledger.events(kinds=[kinds.RESULT])) == 1


def test_no_result_without_an_intent(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no intent"):
        ledger.complete("evict-1", ActionResult("evict-1", 1.0, "done"))
    with pytest.raises(LedgerError, match="written by intend"):
        ledger.append(kinds.RESULT, {"outcome": "done"}, operation_id="evict-1")
    assert ledger.events() == []


def test_a_restarted_controller_finds_what_it_had_begun(database: str, decision: Decision) -> None:
    with Ledger(database) as before:
        before.intend("evict-1", decision, job="llm", incident="llm-1")
        before.intend("evict-1/end", {"action": "end-workers", "machines": ["m2"]}, job="llm")
        before.complete("evict-1/end", ActionResult("evict-1/end", 1.0, "done"))
        before.intend("restart-9", {"action": "restart", "machines": []}, job="other")
    with Ledger(database) as after:
        (found,) = after.open_operations("llm")
        assert (found.operation_id, found.decision, found.ambiguous) == ("evict-1", decision, False)
        assert [item.operation_id for item in after.open_operations()] == ["evict-1", "restart-9"]


def test_an_ambiguous_operation_stays_open_until_somebody_knows(ledger: Ledger, decision: Decision) -> None:
    ledger.intend("evict-1", decision, job="llm")
    ledger.complete("evict-1", ActionResult("evict-1", 1.0, "ambiguous", "timed out after the request was taken"))
    (found,) = ledger.open_operations("llm")
    assert found.ambiguous and ledger.result("evict-1") is None
    ledger.complete("evict-1", ActionResult("evict-1", 2.0, "done"))
    assert ledger.open_operations("llm") == []
    late = ledger.complete("evict-1", ActionResult("evict-1", 3.0, "ambiguous"))
    assert late.payload["outcome"] == "done"


def test_verdicts_about_one_machine_are_one_incident(ledger: Ledger, verdict: Verdict) -> None:
    from dataclasses import replace

    first = ledger.open_incident(verdict, job="llm")
    assert first == "llm-1"
    assert ledger.open_incident(replace(verdict, confidence=0.99), job="llm") == first
    assert ledger.open_incident(replace(verdict, machines=("m5",)), job="llm") == "llm-2"
    assert ledger.open_incident(verdict, job="other") == "other-1"
    nobody = replace(verdict, kind="job", machines=())
    assert ledger.open_incident(nobody, job="llm") == "llm-3" == ledger.open_incident(nobody, job="llm")
    assert ledger.open_incident(replace(verdict, kind="recovered"), job="llm") == first
    assert ledger.incident(first).state == "closed"
    assert ledger.open_incident(verdict, job="llm") == "llm-4"
    assert [item.id for item in ledger.incidents(job="llm", state="open")] == ["llm-2", "llm-3", "llm-4"]


def test_a_recovery_that_nobody_waits_for_opens_nothing(ledger: Ledger, verdict: Verdict) -> None:
    from dataclasses import replace

    assert ledger.open_incident(replace(verdict, kind="recovered"), job="llm") == ""
    assert ledger.incidents() == []


def test_an_unknown_incident_is_bad_input(ledger: Ledger) -> None:
    with pytest.raises(BadInputError, match='no incident "llm-9"'):
        ledger.incident("llm-9")


def test_history_is_what_the_ledger_tells(ledger: Ledger, recovered_incident: str) -> None:
    history = ledger.history("llm", 1020.0)
    assert [(item.machines, item.action, item.finished) for item in history.actions] == [(("m2",), "evict", True)]
    assert history.barred == {"m2"}


@pytest.mark.lab
def test_several_processes_append_at_the_same_time(database: str) -> None:
    path = database
    code = (
        "import sys; from minder.record.incidents import Ledger\n"
        "ledger = Ledger(sys.argv[1])\n"
        "for n in range(25):\n"
        "    ledger.append('note', {'who': sys.argv[2], 'n': n})\n"
        "print(ledger.intend('evict-1', {'action': 'evict', 'machines': [sys.argv[2]]}, job='llm').first)"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), str(who)], stdout=subprocess.PIPE, text=True) for who in range(4)]
    firsts = [process.communicate()[0].strip() for process in started]
    events = Ledger(path).events(kinds=[kinds.NOTE])
    assert sorted(firsts) == ["False", "False", "False", "True"]
    assert len(events) == 100
    for who in "0123":
        assert [event.payload["n"] for event in events if event.payload["who"] == who] == list(range(25))


FULL_DISK = """
import resource, signal, sys
from minder.model.errors import LedgerError
from minder.record.incidents import Ledger
ledger = Ledger(sys.argv[1])
ledger.append("note", {"text": "before"})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    for _ in range(100):
        ledger.append("note", {"text": "x" * 20_000})
except LedgerError as error:
    print(error)
    try:
        ledger.intend("evict-1", {"action": "evict", "machines": ["m" * 150_000]}, job="llm")
    except LedgerError:
        print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(ledger.events()[0].payload["text"], ledger.open_operations())
ledger.append("note", {"text": "after"})
"""


def test_a_full_disk_is_one_line_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert "cannot be written" in lines[0] and "free some space" in lines[0]
    assert lines[1:] == ["refused", "before []"]
    assert [event.payload["text"][:6] for event in Ledger(path).events()][-1] == "after"


@pytest.mark.root
def test_a_full_file_system_is_one_line(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        ledger = Ledger(small / "ledger.db")
        with pytest.raises(LedgerError, match="full: free some space"):
            for _ in range(50):
                ledger.append(kinds.NOTE, {"text": "x" * 20_000})
        ledger.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


READ_ONLY = """
import os, sys
from minder.model.errors import LedgerError
from minder.record.incidents import Ledger
Ledger(":memory:").append("note", {})  # all is imported before root is given up
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Ledger(sys.argv[1]).append("note", {})
except LedgerError as error:
    print(error)
"""


def test_a_read_only_ledger_is_one_line() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: another user must get there
        path = Path(folder) / "ledger.db"
        Ledger(path).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, check=False)
        Path(folder).chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "cannot be" in done.stdout and "check the owner and mode" in done.stdout and done.stdout.count("\n") == 1


def test_every_payload_in_the_file_is_json_that_any_reader_takes(ledger: Ledger, recovered_incident: str, database: str) -> None:
    with reading(open_engine(database)) as connection:
        rows = connection.execute(text("SELECT payload FROM events")).fetchall()
    assert len(rows) == 11
    for (payload,) in rows:
        json.loads(payload, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
