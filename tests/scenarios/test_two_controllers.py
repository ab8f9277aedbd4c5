"""Two whole controllers of one job, on one PostgreSQL, each with a state folder of its own as on two machines: kill -9, and the other
one goes on, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.server("postgresql"), pytest.mark.timeout(280)]


class Controllers:
    """`minder run --act` of one job, as often as it is started, all on one ledger."""

    def __init__(self, run: Any, url: str, stack: ExitStack) -> None:
        self.run, self.url, self._stack = run, url, stack
        self.folder: Path = run.stage.folder
        self.ledger = stack.enter_context(Ledger(url))

    def start(self, name: str) -> subprocess.Popen[bytes]:
        state = self.folder / f"state-{name}"
        text = (self.folder / "job.toml").read_text()
        text = text.replace(f'state_dir = "{self.folder / "state"}"', f'state_dir = "{state}"')
        text = text.replace(f'record_dir = "{self.run.stage.recording_path}"', "")
        (self.folder / f"{name}.toml").write_text(text)
        command = [sys.executable, "-m", "minder", "run", "--config", str(self.folder / f"{name}.toml"), "--act"]
        environment = os.environ | self.run.stage.lab.mark | {"MINDER_LEDGER": self.url}
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._stack.callback(self._end, process, state)
        return process

    def _end(self, process: subprocess.Popen[bytes], state: Path) -> None:
        from minder.act.recovery.rendezvous import RendezvousHost

        process.kill()
        process.wait()
        RendezvousHost(state, self.run.stage.lab.controller_address).stop()

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def events(self, *wanted: str) -> list[LedgerEvent]:
        return self.ledger.events(job=self.run.stage.job, kinds=list(wanted))

    def until(self, what: Callable[[], Any], limit_s: float = 120.0) -> Any:
        try:
            return self.run.until(what, limit_s, pause_s=0.02)
        except AssertionError as error:
            told = [(event.kind, event.payload.get("detail")) for event in self.events()][-12:]
            raise AssertionError(f"{told} {[(path.name, path.read_text()[-800:]) for path in self.folder.glob('?.log')]}") from error


@pytest.fixture
def controllers(drama: Callable[..., Any], postgres: Any) -> Iterator[Controllers]:
    run = drama(steps=80)
    with ExitStack() as stack:
        yield Controllers(run, postgres.new_database(), stack)


def test_the_one_that_waits_finishes_what_the_killed_one_began_and_nobody_starts_the_finished_job_again(controllers: Controllers) -> None:
    run, events = controllers.run, controllers.events
    first = controllers.start("a")
    controllers.until(lambda: events(kinds.JOB_REGISTERED))
    others = {name: controllers.start(name) for name in ("b", "c")}
    controllers.until(lambda: all("is led by process" in controllers.said(name) for name in others))
    controllers.until(lambda: events(kinds.FIRST_STEP))
    run.stage.inject("xid", 1)
    controllers.until(lambda: events(kinds.INTENT))
    first.send_signal(signal.SIGKILL)
    (taken,) = controllers.until(lambda: events(kinds.CONTROLLER_STARTED))
    assert taken.payload["pid"] in {process.pid for process in others.values()}
    (end,) = controllers.until(lambda: events(kinds.JOB_ENDED))
    assert end.payload["outcome"] == "finished"
    assert [process.wait(60) for process in others.values()] == [0, 0]
    assert all("is finished" in controllers.said(name) for name in others)
    assert len(events(kinds.JOB_REGISTERED)) == 1, "the job that was over was not begun again"
    assert [event.payload["machine"] for event in events(kinds.BARRED)] == [run.name(1)]
    assert len(events(kinds.INTENT)) == len(events(kinds.RESULT)) == 1
    placed = [event.payload["rank_machine"]["1"] for event in events(kinds.GENERATION_STARTED)]
    assert placed == [run.name(1), run.name(4)]


@pytest.mark.release
@pytest.mark.timeout(420)
def test_controller_store_host_and_a_machine_go_and_state_in_memory_is_left(
    drama: Callable[..., Any], postgres: Any, same_losses: Any
) -> None:
    """The leader's machine goes with the store that the generation met at; another leads, and then a machine of the job goes. Which one and
    when: MINDER_MEMORY_SEED."""
    from minder.act.recovery.rendezvous import RendezvousHost

    chance = random.Random(int(os.environ.get("MINDER_MEMORY_SEED", "0")))
    run = drama(memory=True, fault="crash", steps=60)
    with ExitStack() as stack:
        found = Controllers(run, postgres.new_database(), stack)
        first = found.start("a")
        found.until(lambda: found.events(kinds.JOB_REGISTERED))
        found.start("b")
        found.until(lambda: found.events(kinds.FIRST_STEP))
        time.sleep(chance.uniform(0.0, 3.0))
        first.send_signal(signal.SIGKILL)
        RendezvousHost(found.folder / "state-a", run.stage.lab.controller_address).stop()
        found.until(lambda: found.events(kinds.CONTROLLER_STARTED))
        lost = chance.choice(run.stage.lab.machines)
        run.stage.power_off([lost])
        (end,) = found.until(lambda: found.events(kinds.JOB_ENDED), 200.0)
        assert end.payload["outcome"] == "finished"
        assert [event.payload["machine"] for event in found.events(kinds.BARRED)] == [lost.name]
    assert same_losses(run)
    taken = [json.loads(line)["step"] for line in (run.stage.folder / "train" / "losses.jsonl").read_text().splitlines()]
    assert len(taken) - len(set(taken)) <= 1
