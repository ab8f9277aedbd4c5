"""The fleet against real servers: restarts, wrong clocks, wrong tokens, silence, nonsense."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest
from starlette.responses import JSONResponse

from minder.model.errors import WireError
from minder.model.evidence import Signal
from minder.model.observation import WorkerView
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.codec import to_json

Make = Callable[..., Any]


def collect(fleet: Any, messages: list[str]) -> list[str]:
    messages.extend(signal.message for signal in fleet.drain())
    return messages


def test_signals_of_agents_and_launchers_arrive_once_with_their_machine(peer: Make, fleet: Make, until: Make) -> None:
    agent, launcher = peer("m0"), peer("m0")
    agent.tell("log", message="a1")
    launcher.tell("exit", message="l1")
    watched = fleet([agent], [launcher])
    seen: list[str] = []
    until(lambda: len(collect(watched, seen)) >= 2)
    agent.tell("log", message="a2")
    until(lambda: "a2" in collect(watched, seen))
    time.sleep(0.3)
    assert sorted(collect(watched, seen)) == ["a1", "a2", "l1"]


@pytest.mark.parametrize("more", [2, 9], ids=["fewer than before", "more than before"])
@pytest.mark.parametrize("part", ["agents", "launchers"])
def test_a_restarted_process_is_read_from_its_beginning_and_nothing_is_lost(
    peer: Make, fleet: Make, until: Make, part: str, more: int
) -> None:
    """Its count starts anew: what it says first must not be skipped."""
    one = peer("m0")
    for index in range(5):
        one.tell("log", message=f"before {index}")
    watched = fleet(**{part: [one]})
    seen: list[str] = []
    until(lambda: len(collect(watched, seen)) == 5)
    one.stop()
    one.signals, one.started_s = [], one.now_s() + 1.0
    for index in range(more):
        one.tell("log", message=f"after {index}")
    one.start()
    until(lambda: len(collect(watched, seen)) >= 5 + more)
    assert seen[5:] == [f"after {index}" for index in range(more)]


def test_an_agents_restart_is_noticed(peer: Make, fleet: Make, until: Make) -> None:
    agent = peer("m0")
    watched = fleet([agent])
    until(lambda: watched.views()["m0"].agent_age_s is not None)
    assert watched.views()["m0"].agent_restarted_s is None
    time.sleep(0.6)
    agent.restart()
    until(lambda: watched.views()["m0"].agent_restarted_s is not None)


@pytest.mark.parametrize("fast_s", [3.0, -3.0, 0.0])
@pytest.mark.parametrize("part", ["agents", "launchers"])
def test_a_wrong_clock_is_corrected_in_every_signal_from_the_first_on(
    peer: Make, fleet: Make, until: Make, part: str, fast_s: float
) -> None:
    one = peer("m0", fast_s=fast_s)
    before_s = time.time()
    one.tell("log", message="early")
    after_s = time.time()
    watched = fleet(**{part: [one]})
    (early,) = until(watched.drain)
    assert before_s - 0.5 < early.time_s < after_s + 0.5
    before_s = time.time()
    one.tell("log", message="late")
    (late,) = until(watched.drain)
    assert before_s - 0.5 < late.time_s < time.time() + 0.5
    assert watched.clock_error_s() < 0.5


def test_the_times_of_workers_are_on_our_clock(peer: Make, fleet: Make, until: Make) -> None:
    launcher = peer("m0", fast_s=3.0)
    now_s = time.time()
    launcher.workers = [WorkerView(0, 1, 0, "running", 1, 7, now_s + 3.0, now_s + 3.0, first_step=1, first_step_time_s=now_s - 7.0)]
    watched = fleet(launchers=[launcher])
    (worker,) = until(lambda: watched.views()["m0"].workers)
    assert worker.step_time_s == pytest.approx(now_s, abs=0.5)
    assert worker.alive_time_s == pytest.approx(now_s, abs=0.5)
    assert worker.first_step_time_s == pytest.approx(now_s - 10.0, abs=0.5)


def test_a_worker_whose_exit_was_told_runs_no_more_whatever_an_older_look_says(peer: Make, fleet: Make, until: Make) -> None:
    """Its launcher is asked for its state every second, its events come at once: who decides about a death must see it."""
    launcher = peer("m0")
    launcher.workers = [WorkerView(0, 17, 0, "running", 1), WorkerView(1, 18, 1, "running", 1)]
    watched = fleet(launchers=[launcher])
    states = lambda: [(worker.pid, worker.state, worker.rank) for worker in watched.views()["m0"].workers]  # noqa: E731
    until(lambda: states() == [(17, "running", 0), (18, "running", 1)])
    launcher.tell("exit", pid=18, rank=1)
    until(watched.drain)
    assert states() == [(17, "running", 0), (18, "exited", 1)]
    launcher.workers = [WorkerView(0, 17, 0, "running", 1), WorkerView(1, 19, None, "waiting", -1)]
    until(lambda: states() == [(17, "running", 0), (19, "waiting", None)])
    launcher.workers = [WorkerView(0, 17, 0, "running", 1), WorkerView(1, 18, 1, "running", 2)]
    until(lambda: states()[1] == (18, "running", 1))  # a process of the same number, as its launcher says by itself


def test_a_stepped_clock_is_noticed(peer: Make, fleet: Make, until: Make) -> None:
    launcher = peer("m0")
    watched = fleet(launchers=[launcher])
    until(lambda: watched.views()["m0"].launcher_age_s is not None)
    launcher.fast_s = 60.0

    def told_now() -> bool:
        launcher.tell("log")
        time.sleep(0.1)
        return any(abs(signal.time_s - time.time()) < 5.0 for signal in watched.drain())

    until(told_now)


def test_a_wrong_token_is_told_as_long_as_it_is_wrong(peer: Make, fleet: Make, until: Make) -> None:
    """The agent takes the token, the launcher does not: the agent's good answers hide nothing."""
    agent, launcher = peer("m0"), peer("m0", token="another")
    watched = fleet([agent], [launcher])
    until(lambda: watched.views()["m0"].agent_age_s is not None and "m0" in watched.refusals())
    for _ in range(20):
        assert "HTTP 401" in watched.refusals()["m0"] and "launcher of m0" in watched.refusals()["m0"]
        time.sleep(0.05)
    assert watched.views()["m0"].launcher_age_s is None
    launcher.token = "secret"
    until(lambda: not watched.refusals())


def test_a_silent_machine_delays_nobody_and_is_no_refusal(peer: Make, fleet: Make, until: Make) -> None:
    agent = peer("m0")
    watched = fleet([agent], m9="http://127.0.0.1:9")
    agent.tell("log", message="hello")
    (signal,) = until(watched.drain, 5.0)
    assert signal.machine == "m0"
    views = watched.views()
    assert views["m9"].agent_age_s is None and views["m9"].launcher_age_s is None
    assert watched.refusals() == {}
    answers = watched.capture(["m0", "m9"], ["logs"], 5.0)
    assert answers["m0"]["logs"] == {"rank0": ["hello"]}
    assert isinstance(answers["m9"], WireError)


def test_a_machine_that_falls_silent_grows_old_and_keeps_its_last_word(peer: Make, fleet: Make, until: Make) -> None:
    launcher = peer("m0")
    launcher.workers = [WorkerView(0, 1, 0, "running", 1, 7)]
    watched = fleet(launchers=[launcher])
    until(lambda: watched.views()["m0"].workers)
    launcher.stop()
    until(lambda: (watched.views()["m0"].launcher_age_s or 0.0) > 1.5)
    assert watched.views()["m0"].workers[0].step == 7
    launcher.start()
    until(lambda: (watched.views()["m0"].launcher_age_s or 9.0) < 1.0)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_our_own_clock_makes_nobody_older_or_younger(
    peer: Make, fleet: Make, until: Make, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    launcher = peer("m0")
    watched = fleet(launchers=[launcher])
    until(lambda: watched.views()["m0"].launcher_age_s is not None)
    launcher.stop()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by_s)
    assert watched.views()["m0"].launcher_age_s < 5.0
    until(lambda: 1.0 < watched.views()["m0"].launcher_age_s < 60.0)


@pytest.mark.parametrize(
    "nonsense",
    [{"next": "many"}, {"next": None}, {"now_s": None}, {"signals": 7}, {"signals": [7]}, {"started_s": []}, {"workers": [{"slot": "x"}]}],
    ids=lambda value: str(value),
)
def test_nonsense_from_one_machine_is_told_and_harms_no_other(peer: Make, fleet: Make, until: Make, nonsense: dict[str, Any]) -> None:
    bad_agent, bad_launcher, good = peer("m0"), peer("m0"), peer("m1")
    bad_agent.extra = bad_launcher.extra = nonsense
    watched = fleet([bad_agent, good], [bad_launcher])
    time.sleep(0.5)
    good.tell("log", message="still heard")
    assert "still heard" in until(lambda: [signal.message for signal in watched.drain()])
    bad_agent.extra = bad_launcher.extra = {}
    bad_agent.tell("log", message="mended")
    until(lambda: "mended" in [signal.message for signal in watched.drain()])
    until(lambda: not watched.refusals())


def test_a_signal_of_a_newer_agents_kind_is_heard_as_it_is_and_the_others_count(peer: Make, fleet: Make, until: Make) -> None:
    agent = peer("m0")
    agent.signals.append({"time_s": time.time(), "kind": "telepathy", "machine": "m0"})
    agent.signals.append({"time_s": "soon", "kind": "log"})
    agent.tell("log", message="known")
    agent.extra = {"dropped": 7}  # before our first look: not ours to count
    watched = fleet([agent])
    assert [(signal.kind, signal.message) for signal in until(watched.drain)] == [("telepathy", ""), ("log", "known")]
    assert until(watched.lost)["unreadable"] == 1
    agent.tell("log", message="more")
    assert until(watched.lost)["machine"] >= 7


def test_a_machine_gives_no_operators_orders(peer: Make, fleet: Make, until: Make) -> None:
    agent = peer("m0")
    agent.tell("order", message="alice: m0 goes")
    agent.tell("log", message="known")
    watched = fleet([agent])
    assert [signal.message for signal in until(watched.drain)] == ["known"]


@pytest.mark.lab
def test_a_machine_that_talks_without_end_costs_the_others_nothing(peer: Make, fleet: Make, until: Make) -> None:
    """It answers every question at once, each time with thousands of signals: of those ten thousand are taken, and what is left out is
    told. What another machine said before, and says meanwhile, is heard."""
    evil, good = peer("m0"), peer("m1")
    flood = [to_json(Signal(evil.now_s(), "log", "m0", message=f"flood {index}")) for index in range(30_000)]
    answers = 0

    async def log(request: Any) -> JSONResponse:
        nonlocal answers
        answers += 1
        about = {"machine": "m0", "started_s": evil.started_s, "now_s": evil.now_s()}
        return JSONResponse({**about, "signals": flood, "next": 30_000 * answers})

    good.tell("log", message="before")
    evil.stop()
    evil._log = log
    evil.start()
    watched = fleet([evil, good])
    until(lambda: answers >= 5, 60.0)
    assert "says too much" in until(lambda: watched.refusals().get("m0"))
    good.tell("log", message="meanwhile")
    found: list[Signal] = []
    until(lambda: found.extend(watched.drain()) or "meanwhile" in [item.message for item in found if item.machine == "m1"])
    assert [item.message for item in found if item.machine == "m1"] == ["before", "meanwhile"]
    assert 10_000 <= len([item for item in found if item.machine == "m0"]) < 30_000
    assert set(watched.refusals()) == {"m0"}


def test_a_machine_that_never_waits_is_not_asked_without_end(peer: Make, fleet: Make, until: Make) -> None:
    """An answer that comes at once is no reason to ask again at once: twenty times a second at most."""
    hasty, asked = peer("m0"), list[float]()

    async def log(request: Any) -> JSONResponse:
        asked.append(time.monotonic())
        return JSONResponse({"machine": "m0", "started_s": hasty.started_s, "now_s": hasty.now_s(), "signals": [], "next": 0})

    hasty.stop()
    hasty._log = log
    hasty.start()
    fleet([hasty])
    until(lambda: len(asked) > 20, 60.0)
    assert asked[20] - asked[0] > 20 * 0.04


def test_an_answer_that_is_too_large_to_be_one_is_refused_and_told(peer: Make, fleet: Make, until: Make) -> None:
    launcher, agent = peer("m0"), peer("m1")
    launcher.workers, launcher.extra = [WorkerView(0, 1, 0, "running", 1, 7)], {"more": "x" * 2**20}
    agent.extra = {"processes": [{}] * 10_001, "jobs": []}
    watched = fleet([agent], [launcher])
    refused = until(lambda: watched.refusals() if len(watched.refusals()) == 2 else None)
    assert "1048576 are read at most" in refused["m0"] and "10001 processes" in refused["m1"]
    assert watched.views()["m0"].workers == ()


def test_requests_reach_many_machines_at_once_and_fail_one_by_one(peer: Make, fleet: Make, until: Make) -> None:
    first, second, third = peer("m0"), peer("m1", token="another"), peer("m2")
    watched = fleet(launchers=[first, second, third])
    until(lambda: watched.views()["m0"].launcher_age_s is not None and watched.views()["m2"].launcher_age_s is not None)
    answers = watched.post_workers({f"m{index}": {"operation_id": "x", "generation": index} for index in range(3)})
    assert answers["m0"]["outcome"] == answers["m2"]["outcome"] == "done"
    assert "401" in str(answers["m1"])
    assert third.bodies == [{"operation_id": "x", "generation": 2}]


def test_a_machine_that_answers_too_slowly_is_given_up_alone(peer: Make, fleet: Make, until: Make) -> None:
    slow, fast = peer("m0"), peer("m1")
    watched = fleet([slow, fast])
    until(lambda: all(view.agent_age_s is not None for view in watched.views().values()))
    slow.delay_s = 30.0
    answers = watched.capture(["m0", "m1"], ["logs"], 1.0)
    assert isinstance(answers["m0"], WireError) and not isinstance(answers["m1"], WireError)


def test_a_call_that_is_under_way_ends_with_the_fleet_and_leaves_no_traceback(
    peer: Make, fleet: Make, until: Make, caplog: pytest.LogCaptureFixture
) -> None:
    slow = peer("m0")
    watched = fleet([slow])
    until(lambda: watched.views()["m0"].agent_age_s is not None)
    slow.delay_s = 30.0
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.ERROR, "asyncio"):
        call = pool.submit(watched.capture, ["m0"], ["logs"], 20.0)
        time.sleep(0.3)
        watched.stop()
        with pytest.raises(CancelledError):
            call.result(5.0)
        gc.collect()
    assert [record.message for record in caplog.records] == []


def test_signals_come_out_oldest_first_across_machines(peer: Make, fleet: Make, until: Make) -> None:
    one, two = peer("m0"), peer("m1", fast_s=3.0)
    for index in range(3):
        one.tell("log", message=f"{2 * index}")
        time.sleep(0.15)
        two.tell("log", message=f"{2 * index + 1}")
        time.sleep(0.15)
    watched = fleet([one, two])
    until(lambda: all(view.agent_age_s is not None for view in watched.views().values()))
    time.sleep(0.2)
    assert [signal.message for signal in watched.drain()] == [str(index) for index in range(6)]


def test_a_machine_joins_and_leaves_while_the_others_are_polled(peer: Make, fleet: Make, until: Make) -> None:
    first, second = peer("m0"), peer("m1")
    second.workers = [to_json(WorkerView(0, 4211, None, "waiting", -1))]
    watched = fleet([first], [first])
    until(lambda: watched.views()["m0"].launcher_age_s is not None)
    endpoint = Endpoint(second.url, second.token)
    watched.add(MachineEndpoints("m1", endpoint, endpoint))
    until(lambda: watched.views()["m1"].workers != () and watched.views()["m1"].agent_age_s is not None)
    second.tell("log", message="from the new one")
    seen: list[str] = []
    until(lambda: "from the new one" in collect(watched, seen))
    body = {"operation_id": "op", "generation": 1, "desired": "parked"}
    assert not isinstance(watched.post_workers({"m1": body})["m1"], WireError) and second.bodies[-1]["desired"] == "parked"
    watched.remove("m1")
    assert watched.machines == ("m0",) and set(watched.views()) == {"m0"}
    second.tell("log", message="after it left")
    first.tell("log", message="still here")
    until(lambda: "still here" in collect(watched, seen))
    assert "after it left" not in seen


def test_a_machine_that_joins_under_another_address_is_asked_there(peer: Make, fleet: Make, until: Make) -> None:
    wrong, right = peer("m1"), peer("m1")
    watched = fleet([peer("m0")])
    watched.add(MachineEndpoints("m1", None, Endpoint(wrong.url, "wrong")))
    until(lambda: "m1" in watched.refusals())
    watched.add(MachineEndpoints("m1", None, Endpoint(right.url, right.token)))
    until(lambda: watched.views()["m1"].launcher_age_s is not None)
    assert "m1" not in watched.refusals()
    watched.remove("never heard of")
