"""No part of a tick silences another one; what failed is in the log, the ledger, status.json, the metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.controller.reading.watched import WatchedJob
from minder.act.controller.reporting.status import read_status
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.errors import LedgerError
from minder.model.evidence import Signal
from minder.model.observation import Observation, RuleResult
from minder.record.incidents import kinds


class RaisingRule:
    """Stands where another rule stood."""

    def __init__(self, name: str, raises: Callable[[], bool] = lambda: True) -> None:
        self.name, self._raises = name, raises

    def observe(self, observation: Observation) -> RuleResult:
        if self._raises():
            raise IndexError(f"nothing at {observation.now_s}")
        return RuleResult()


def put(job: Any, rule: RaisingRule) -> None:
    """In the place of the rule of the same name, or as the first of all."""
    judge = job.app.controller._stages.judge
    rest = [item for item in judge.rules if item.name != rule.name]
    judge.rules = (rule, *rest)


def status(folder: Any) -> dict[str, Any]:
    return read_status(folder / "status.json") or {}


@pytest.mark.parametrize("broken", ["telemetry", *(pytest.param(rule, marks=pytest.mark.release) for rule in ("stall", "extra"))])
def test_a_silent_machine_is_named_though_another_rule_always_raises(paper: Any, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    job = paper()
    put(job, RaisingRule(broken))
    job.hit("m2", "silent")
    job.tick(60)
    assert "m2" in {name for event in job.told(kinds.VERDICT) for name in event.payload["machines"]}
    part = f"rule:{broken}"
    shown = status(job.folder)
    assert shown["errors"] == {part: 60}
    assert "IndexError" in shown["failing"][part]
    assert part in job.degraded()
    told = [event.payload for event in job.told(kinds.DEGRADED) if event.payload["what"] == part]
    traces = [payload for payload in told if "traceback" in payload]
    assert len(traces) == 1 and traces[0]["rule"] == broken
    assert "in observe" in traces[0]["traceback"] and "IndexError: nothing at" in traces[0]["traceback"]
    records = [record for record in caplog.records if record.getMessage() == "part failed"]
    assert sum(bool(record.minder_fields["traceback"]) for record in records) == 1  # type: ignore[attr-defined]
    assert len(told) == len(records) == 2, "and once more at the tenth failure, so that it is seen to last"


def test_the_counters_of_all_rules_are_there_before_any_fails(paper: Any) -> None:
    """A counter that appears with its first event shows no increase."""
    job = paper()
    families = {family.name: family for family in job.gauges.collect()}
    counted = {sample.labels["stage"]: sample.value for sample in families["minder_controller_errors"].samples}
    degraded = {sample.labels["what"]: sample.value for sample in families["minder_controller_degraded"].samples}
    for rule in ("crash", "stall", "signals", "telemetry", "absence"):
        assert counted[f"rule:{rule}"] == degraded[f"rule:{rule}"] == 0.0


def test_a_rule_that_works_again_is_no_longer_shown_as_failing(paper: Any, caplog: pytest.LogCaptureFixture) -> None:
    job, broken = paper(), [True]
    put(job, RaisingRule("crash", lambda: broken[0]))
    job.tick(3)
    assert "rule:crash" in status(job.folder)["failing"]
    broken[0] = False
    caplog.set_level(logging.WARNING, "minder")
    job.tick(1)
    assert status(job.folder)["failing"] == {}
    assert status(job.folder)["errors"] == {"rule:crash": 3}, "the count stays"
    assert "part works again" in caplog.text
    broken[0] = True
    job.tick(1)
    assert sum("traceback" in event.payload for event in job.told(kinds.DEGRADED)) == 1, "the same failure: once in the ledger"


@pytest.mark.lab
def test_progress_that_cannot_be_read_is_no_standstill_and_ends_no_episode(paper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing steps any more as far as is known, which says nothing of the job: no machine is blamed for it."""
    job = paper()

    def fail(self: JobTracker, observation: Observation) -> None:
        raise ValueError("a view of another version")

    monkeypatch.setattr(JobTracker, "update", fail)
    job.tick(120)
    assert job.told(kinds.VERDICT) == []
    assert "progress" in job.degraded() and "ValueError" in status(job.folder)["failing"]["progress"]


@pytest.mark.parametrize(("method", "part"), [("drain", "signals"), ("clock_error_s", "observe")])
def test_machines_that_cannot_be_heard_do_not_end_the_loop_and_their_signals_wait(
    world: Any, method: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    heard: list[Signal] = []
    world.script = lambda observation: heard.extend(observation.signals) or []

    def fail() -> Any:
        raise KeyError("rank")

    signal = Signal(world.clock.now_s() + 1.0, "xid", "m1", data={"code": 79})
    world.fleet.signals.append(signal)
    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, method, fail)
        world.tick(app, 3)
    assert heard == [] and set(status(world.folder)["failing"]) == {part}
    world.tick(app)
    app.close()
    assert heard == [signal]
    assert (status(world.folder)["failing"], status(world.folder)["errors"]) == ({}, {part: 3})


def test_a_signal_that_cannot_be_read_takes_no_other_with_it(world: Any) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    watched = WatchedJob("llm", app.state.rank_machine)
    app.controller._stages.watched = watched
    heard: list[Any] = []
    world.script = lambda observation: heard.extend(observation.signals) or []
    now_s = world.clock.now_s() + 1.0
    good = Signal(now_s, "xid", "m1", data={"code": 79})
    world.fleet.signals += [replace(good, time_s=None), good]  # type: ignore[arg-type]
    world.tick(app)
    assert heard == [good]
    app.close()
    assert status(world.folder)["errors"]["signals"] == 1


@pytest.mark.parametrize("part", ["engine", "retests", "end"])
def test_what_writes_to_the_ledger_is_guarded_but_for_the_ledger_itself(world: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    error: list[Exception] = [RuntimeError("bug")]

    def fail(*unused: Any) -> None:
        raise error[0]

    controller = app.controller
    if part == "engine":
        controller._stages.engine = type("Engine", (), {"tick": fail, "close": lambda self: None})()
    elif part == "retests":
        monkeypatch.setattr(controller._retests, "tick", fail)
    else:
        monkeypatch.setattr(controller, "_note_end", fail)
    world.tick(app, 3)
    assert status(world.folder)["errors"] == {part: 3}
    error[0] = LedgerError("disk full")
    with pytest.raises(LedgerError):
        world.tick(app)
    app.close()


def test_an_error_that_is_kept_and_raised_again_is_one_failure(world: Any) -> None:
    app = world.app()
    kept = RuntimeError("the future's own")

    def fail() -> None:
        raise kept

    for _ in range(5):
        app.controller.guard("capture", fail, None)
    app.begin()
    world.tick(app, 1)
    app.close()
    assert len([event for event in world.events(kinds.DEGRADED) if event.payload["what"] == "capture"]) == 1


def test_signals_that_no_rule_judged_are_counted_apart(world: Any) -> None:
    """While a rule raises it sees no signal. What was judged and what was lost stands in the metrics, and by the hour in the ledger."""
    app = world.app()
    app.begin()
    raising = [False]

    def script(observation: Observation) -> list[Any]:
        if raising[0] and observation.signals:
            raise IndexError("a field of another version")
        return []

    world.script = script
    world.fleet.signals += [
        Signal(world.clock.now_s(), "log", "m1", message="one"),
        Signal(world.clock.now_s(), "log", "m1", message="two"),
    ]
    world.tick(app, 2)
    raising[0] = True
    world.fleet.signals.append(Signal(world.clock.now_s(), "log", "m1", message="three"))
    world.tick(app, 1)
    raising[0] = False
    found = app.controller._stages.measures.registry.get_sample_value
    judged, lost = (found("minder_controller_signals_total", {"outcome": outcome}) for outcome in ("judged", "rule"))
    assert (judged, lost) == (2.0, 1.0)
    assert app.ledger.events(kinds=[kinds.SIGNAL_COUNT]) == []
    world.clock.sleep(3700.0)
    world.tick(app, 1)
    (event,) = app.ledger.events(kinds=[kinds.SIGNAL_COUNT])
    app.close()
    assert (event.payload["judged"], event.payload["lost"], event.job) == (2, {"rule": 1}, "llm")


@pytest.mark.parametrize("stage", ["decide", "recheck"])
def test_a_policy_that_raises_does_nothing_and_acts_once_it_works(world: Any, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 3)
    policy, calls = app.controller._stages.policy, 0
    real = getattr(policy, stage)

    def sometimes(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise KeyError("price")
        return real(*arguments)

    monkeypatch.setattr(policy, stage, sometimes)
    accused = [[world.accuse("m1")]]
    world.script = lambda observation: accused.pop() if accused else []
    world.tick(app, 2)
    assert not world.events(kinds.INTENT)
    assert status(world.folder)["errors"] == {"policy": 2}
    world.tick(app, 6)
    assert [event.payload["machines"] for event in world.events(kinds.INTENT) if event.payload["action"] == "evict"] == [["m1"]]
    assert "policy" not in status(world.folder)["failing"]
    app.close()


def test_a_verdict_on_which_the_policy_raises_holds_no_other_up(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 3)
    policy = app.controller._stages.policy
    real = policy.decide

    def picky(verdicts: Any, *arguments: Any) -> Any:
        if any(verdict.machines == ("m2",) for verdict in verdicts):
            raise KeyError("price")
        return real(verdicts, *arguments)

    monkeypatch.setattr(policy, "decide", picky)
    accused = [[world.accuse("m2"), world.accuse("m1")]]
    world.script = lambda observation: accused.pop() if accused else []
    world.tick(app, 6)
    assert [event.payload["machines"] for event in world.events(kinds.INTENT) if event.payload["action"] == "evict"] == [["m1"]]
    app.close()


@pytest.mark.parametrize("place", ["_deciding", "_blame", "_milestones", "_signal_count"])
def test_no_part_of_a_tick_ends_the_loop(world: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    controller, stopping = app.controller, threading.Event()
    part = getattr(controller, place)
    names = {"_deciding": "turn", "_blame": "begin", "_milestones": "note_first_step", "_signal_count": "lost"}
    ticks = iter(range(3))

    def fail(*unused: Any) -> None:
        if next(ticks, None) is None:
            stopping.set()
        raise RuntimeError("bug")

    monkeypatch.setattr(part, names[place], fail)
    controller.run(threading.Event(), stopping, 0.001)
    assert sum(status(world.folder)["errors"].values()) >= 3
    app.close()
