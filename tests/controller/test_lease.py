"""Two controllers of one job: one leads, the other waits. Real processes are killed and stopped; the ledger says who did what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.lease import Leadership
from minder.model.decision import Decision
from minder.model.errors import LeaseLostError, LedgerError
from minder.record.incidents import Ledger, kinds
from minder.record.store.leases import LeaseStore

# A controller reduced to its lease: whoever leads writes an intent and then acts, ten times a second, as its next number in the ledger.
LEADER = """
import sys, threading, time
from minder.act.controller.lease import Leadership
from minder.model.errors import LeaseLostError
from minder.record.incidents import Ledger
url, name, acts = sys.argv[1:]
ledger = Ledger(url, busy_timeout_s=30.0)
leadership = Leadership(url, "llm", beat_s=0.2, patience_s=3.0)
ledger.fence(leadership.lead(threading.Event(), lambda line: print(line, flush=True)))
print("leads", flush=True)
try:
    while True:
        ledger.intend(f"op-{len(ledger.events(kinds=['intent']))}", {"action": name, "machines": []}, job="llm")
        ledger.check_fence()
        open(acts, "a").write(name)
        time.sleep(0.1)
except LeaseLostError as error:
    print(error, flush=True)
"""


class Person:
    """One of the processes; `lines` is what it said."""

    def __init__(self, url: str, name: str, acts: Path) -> None:
        self.name = name
        command = [sys.executable, "-c", LEADER, url, name, str(acts)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout or ()), daemon=True).start()

    def says(self, what: str, limit_s: float = 60.0) -> None:
        end_s = time.monotonic() + limit_s
        while not any(what in line for line in list(self.lines)):
            assert time.monotonic() < end_s, (self.name, what, self.lines)
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
def person(database: str, tmp_path: Path) -> Iterator[Callable[[str], Person]]:
    made: list[Person] = []

    def make(name: str) -> Person:
        made.append(Person(database, name, tmp_path / "acts"))
        return made[-1]

    Ledger(database).close()
    yield make
    for each in made:
        each.process.kill()
        each.process.wait()


def stop(person: Person, url: str) -> None:
    """SIGSTOP at a moment when the process holds no lock: in SQLite one that is stopped while it writes holds everybody up (ADR 13)."""
    for _ in range(100):
        person.signal(signal.SIGSTOP)
        try:
            with Ledger(url, busy_timeout_s=1.0) as ledger:
                ledger.append(kinds.NOTE, {"text": "can be written"})
            return
        except LedgerError:
            person.signal(signal.SIGCONT)
            time.sleep(0.05)
    raise AssertionError("it always holds the lock")


def until_written(url: str, name: str, limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    with Ledger(url) as ledger:
        while not any(event.payload["action"] == name for event in ledger.events(kinds=[kinds.INTENT])):
            assert time.monotonic() < end_s, f"{name} wrote nothing"
            time.sleep(0.05)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.release)])
def test_a_leader_that_is_killed_or_stopped_is_followed_and_acts_no_more(
    person: Callable[[str], Person], database: str, tmp_path: Path, number: signal.Signals
) -> None:
    first = person("a")
    first.says("leads")
    until_written(database, "a")
    second = person("b")
    second.says("waiting to take over")
    stop(first, database) if number == signal.SIGSTOP else first.signal(number)
    second.says("leads")
    until_written(database, "b")
    if number == signal.SIGSTOP:
        first.signal(signal.SIGCONT)
        first.says("acts no more")
    with Ledger(database) as ledger:
        intents = ledger.events(kinds=[kinds.INTENT])
    told = "".join(str(event.payload["action"]) for event in intents)
    assert told.strip("a").strip("b") == "", "the first wrote after the second had begun"
    assert len({event.operation_id for event in intents}) == len(intents)
    acts = (tmp_path / "acts").read_text()
    assert acts.count("a") <= told.count("a") and acts.strip("a").strip("b") == ""


def test_a_lease_that_was_given_back_is_taken_at_once(tmp_path: Path) -> None:
    url, said = str(tmp_path / "ledger.db"), list[str]()
    first, second = Leadership(url, "llm", beat_s=0.05), Leadership(url, "llm")
    assert first.lead(threading.Event(), said.append) is not None
    stopping = threading.Event()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(second.lead(stopping, said.append)))
    waiting.start()
    while not said:
        time.sleep(0.01)
    assert "llm is led by process" in said[0] and found == []
    first.close()
    waiting.join(30.0)
    assert found[0].token == 2
    second.close()


def test_who_waits_can_be_stopped(tmp_path: Path) -> None:
    url = str(tmp_path / "ledger.db")
    first, second, stopping = Leadership(url, "llm"), Leadership(url, "llm"), threading.Event()
    first.lead(threading.Event(), lambda line: None)
    stopping.set()
    assert second.lead(stopping, lambda line: None) is None
    second.close()
    first.close()


def test_a_controller_that_lost_its_lease_does_nothing_more(world: Any) -> None:
    world.script = lambda observation: [world.accuse("m1")] if observation.job.phase == "running" else []
    app = world.app()
    app.begin()
    leases = LeaseStore(world.folder / "ledger.db")
    app.ledger.fence(leases.take("llm", "a", None))
    leases.take("llm", "b", leases.read("llm"))
    world.fleet.advance()
    with pytest.raises(LeaseLostError, match="led by b now"):
        app.controller._step_or_wait()
    assert world.actuator.executed == [] and world.events(kinds.INTENT, kinds.VERDICT) == []
    leases.close()
    app.close()


def test_the_lease_is_looked_at_again_between_the_intent_and_the_action(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped right after the intent was written: the other finishes the operation."""
    world.script = lambda observation: [world.accuse("m1")] if observation.job.phase == "running" else []
    app = world.app()
    app.begin()
    leases = LeaseStore(world.folder / "ledger.db")
    mine = leases.take("llm", "a", None)
    app.ledger.fence(mine)
    append = app.ledger.append

    def stopped_after(kind: str, *arguments: Any, **more: Any) -> Any:
        found = append(kind, *arguments, **more)
        if kind == kinds.BARRED:
            leases.take("llm", "b", leases.read("llm"))
        return found

    monkeypatch.setattr(app.ledger, "append", stopped_after)
    with pytest.raises(LeaseLostError):
        for _ in range(3):
            world.fleet.advance()
            world.clock.sleep(1.0)
            app.controller._step_or_wait()
    assert world.actuator.executed == [] and len(world.events(kinds.INTENT)) == 1
    leases.close()
    app.close()
    later = world.life(6)
    assert later.state.generation == 2 and len(set(world.actuator.executed)) == 1 and len(world.events(kinds.INTENT)) == 1


def test_a_deposed_leader_parks_no_machine_after_a_trial(begun: Any, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine on trial may run ranks again, by the order of the current leader."""

    def deposed() -> None:
        raise LeaseLostError("another controller leads")

    monkeypatch.setattr(begun.ledger, "check_fence", deposed)
    begun.state.rank_machine[1] = "s0"
    trial = Decision("trial-1", world.clock.now_s(), "trial", ("m1",), "act", "", world.accuse("m1"), replacements=("s0",))
    with pytest.raises(LeaseLostError):
        begun.recovery._park(trial)
    assert world.fleet.launchers["m1"].state == "running"
