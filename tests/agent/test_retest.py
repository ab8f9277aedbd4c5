"""The site's own test of a machine: once per operation, never beside a job; and an operator's order through to its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.diagnosis.retests import Retests as Orders
from minder.act.controller.state import JobState
from minder.edge.agent.retest import RetestRequest, Retests, parse_retest, split_command
from minder.model.errors import BadInputError
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.machines import MACHINE_KINDS, fold_machines
from minder.record.incidents.retests import order_retest
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.fleet import Fleet


def ask(retests: Retests, name: str = "retest-1", training: bool = False, wait_s: float = 30.0) -> dict[str, Any]:
    return asyncio.run(retests.ask(RetestRequest(name, wait_s), training))


@pytest.mark.parametrize(
    ("command", "state", "expected"),
    [
        (("sh", "-c", "echo GPU 0 fine; exit 0"), "passed", "status 0: GPU 0 fine"),
        (("sh", "-c", "yes | head -c 9000000; echo; echo 'GPU 3: 2 ECC errors' >&2; exit 3"), "failed", "GPU 3: 2 ECC errors"),
        (("/no/such/test",), "failed", "cannot be run: No such file"),
        ((), "refused", "start it with --retest"),
    ],
)
def test_what_a_test_says_is_reported(command: tuple[str, ...], state: str, expected: str) -> None:
    found = ask(Retests(command, 60.0))
    assert found["state"] == state and expected in found["detail"] and len(found["detail"]) < 500


def test_a_test_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    found = ask(Retests(("sh", "-c", f"sleep 600 & echo $! > {pid}; wait"), 0.5))
    assert found["state"] == "failed" and "did not end within 0.5 s" in found["detail"]
    for _ in range(100):
        if (
            not Path(f"/proc/{pid.read_text().strip()}/cmdline").exists()
            or b"sleep" not in Path(f"/proc/{pid.read_text().strip()}/cmdline").read_bytes()
        ):
            return
        time.sleep(0.05)
    raise AssertionError("its child lives on")


def test_it_runs_once_per_operation_one_at_a_time_and_never_beside_a_job(tmp_path: Path) -> None:
    async def play() -> list[dict[str, Any]]:
        retests = Retests(("sh", "-c", f"echo x >> {tmp_path}/runs; until [ -e {tmp_path}/go ]; do sleep 0.05; done"), 60.0)
        beside = await retests.ask(RetestRequest("a", 0.0), True)
        begun = await retests.ask(RetestRequest("a", 0.0), False)
        other = await retests.ask(RetestRequest("b", 0.0), False)
        (tmp_path / "go").touch()
        ended = await retests.ask(RetestRequest("a", 30.0), True)
        again = await retests.ask(RetestRequest("a", 30.0), False)
        return [beside, begun, other, ended, again]

    beside, begun, other, ended, again = asyncio.run(play())
    assert [item["state"] for item in (beside, begun, other, ended, again)] == ["refused", "running", "refused", "passed", "passed"]
    assert "training processes" in beside["detail"] and "another test" in other["detail"]
    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.parametrize(
    "body", [None, [], {}, {"operation": 3}, {"operation": ""}, {"operation": "a", "wait_s": 1e9}, {"operation": "a", "wait_s": "x"}]
)
def test_what_is_no_request_is_refused(body: Any) -> None:
    with pytest.raises(BadInputError):
        parse_retest(body)


def test_who_orders_a_test_does_not_choose_what_it_is() -> None:
    body = {"operation": "a", "wait_s": 0.0, "command": ["rm", "-r", "/"], "retest": "rm -r /", "env": {"LD_PRELOAD": "x"}}
    assert parse_retest(body) == RetestRequest("a", 0.0)


def test_a_command_that_does_not_close_its_quotes_is_refused() -> None:
    assert split_command(None) == () and split_command("ssh 'a b'") == ("ssh", "a b")
    with pytest.raises(BadInputError, match="--retest"):
        split_command("'a")


def test_an_order_is_carried_out_once_by_whichever_controller_leads(bench: Any, tmp_path: Path) -> None:
    """A real agent: the first controller begins the test and is gone, the next one finds what came of it."""
    agent = bench.agent("--retest", f"sh -c 'echo x >> {tmp_path}/runs; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo fine'")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.append(kinds.BARRED, {"machine": "m0", "reason": "evicted"}, job="llm")
    order_retest(ledger, "m0", None, "alice", "new HBM")

    def until(orders: Orders, look: Callable[[], Any]) -> None:
        end_s = time.monotonic() + 60.0
        while not look():
            assert time.monotonic() < end_s
            orders.tick()
            time.sleep(0.05)

    def state() -> str:
        found = fold_machines(ledger.events(kinds=MACHINE_KINDS))["m0"].retest
        assert found is not None
        return f"{found.state} {found.detail}".strip()

    for look in ((tmp_path / "runs").exists, lambda: state().startswith("passed")):
        fleet = Fleet([MachineEndpoints("m0", Endpoint(agent.url, "a-token-of-the-tests"), None)])
        fleet.start()
        orders = Orders(JobState("llm"), ledger, fleet, time.time)
        until(orders, look)
        (tmp_path / "go").touch() if state() == "running" else None
        orders.close()
        fleet.stop()
    assert state().endswith("fine") and (tmp_path / "runs").read_text() == "x\n"
    assert [event.kind for event in ledger.events(kinds=[kinds.INTENT, kinds.RESULT])] == [kinds.INTENT, kinds.RESULT]
    ledger.close()
