"""When a job that stands is started again: the clock, what stops it, and a person's order. Virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.orders.hung import HungJob
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.policy import Policy
from minder.diagnose.verdicts.hang import Standing
from minder.model.clock import FakeClock
from minder.model.errors import BadInputError
from minder.model.evidence import Evidence, Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.orders import order_restart

BEGUN_S, STANDS_S = 1000.0, 2000.0
STANDING = Standing(STANDS_S, True, True, (Evidence("progress", None, "no progress of any kind"),))


class Watch:
    """A job on two machines that stands from STANDS_S on."""

    def __init__(self, path: Path, **policy: float) -> None:
        self.clock = FakeClock(BEGUN_S)
        self.ledger = Ledger(path, clock=self.clock)
        self.ledger.append(kinds.JOB_REGISTERED, {"machines": ["m0", "m1"]}, job="llm")
        self.state = JobState("llm", 1, 1, {0: "m0", 1: "m1"}, "running", BEGUN_S)
        self.config = PolicyConfig(dry_run=False, **policy)  # type: ignore[arg-type]
        self.hung = HungJob(self.state, self.ledger, self.config)

    def context(self, now_s: float) -> PolicyContext:
        return PolicyContext(now_s, self.state.view(()), hangs=True)

    def at(self, now_s: float, standing: Standing | None = STANDING, typical_s: float = 0.3) -> list[Verdict]:
        self.clock.sleep(max(0.0, now_s - self.clock.now_s()))
        return self.hung.look(standing, self.context, now_s, typical_s)

    def first(self, begin_s: float, end_s: float, standing: Standing = STANDING, typical_s: float = 0.3) -> float:
        """When it asks for a restart, looked at every 5 s; infinity if it does not."""
        for now_s in range(int(begin_s), int(end_s), 5):
            if self.at(float(now_s), standing, typical_s):
                return float(now_s)
        return math.inf


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path / "ledger.db")
    yield made
    made.ledger.close()


def test_five_minutes_after_it_stopped_once(watch: Watch) -> None:
    assert watch.first(2040.0, 2300.0) == math.inf
    (verdict,) = watch.at(2300.0)
    assert (verdict.kind, verdict.tier, verdict.machines, verdict.sources) == ("job", "evict", (), ("hang",))
    assert verdict.evidence == STANDING.evidence
    assert watch.at(2301.0) == []
    watch.state.generation = 2
    assert watch.at(2302.0, None) == [] and watch.at(3000.0, replace(STANDING, since_s=2600.0)), "another generation that hangs"


def test_who_names_machines_is_heard_first_however_short_the_limit(tmp_path: Path) -> None:
    """Without steps the job was seen to stand 40 s after it had stopped, when a limit of 20 s had long passed."""
    watch = Watch(tmp_path / "ledger.db", restart_hung_after_s=20.0)
    seen = replace(STANDING, seen_s=2040.0)
    assert watch.first(2040.0, 2060.0, seen) == math.inf and watch.hung.left_s == 5.0
    assert watch.at(2060.0, seen)
    watch.ledger.close()


def test_an_engine_that_did_not_answer_is_asked_again_once_it_does(watch: Watch) -> None:
    """A page while it refuses, one, and the restart as soon as nothing speaks against it."""
    plain, refusal = watch.context, "slurm does not answer: connection refused"
    watch.context = lambda now_s: replace(plain(now_s), restart_refused=refusal)  # type: ignore[method-assign]
    assert watch.first(2040.0, 5000.0) == 2300.0
    assert watch.first(2305.0, 5000.0) == math.inf
    watch.context = plain  # type: ignore[method-assign]
    assert watch.first(5000.0, 6000.0) == 5000.0
    assert watch.first(5005.0, 6000.0) == math.inf


def test_what_came_too_late_to_be_decided_is_asked_anew(watch: Watch) -> None:
    assert watch.at(2300.0) and not watch.at(3300.0)
    watch.hung.ask_again()
    assert watch.at(3305.0) and not watch.at(3310.0)


def test_twenty_steps_where_that_is_longer(watch: Watch) -> None:
    assert watch.first(2040.0, 4000.0, typical_s=60.0) == 3200.0


@pytest.mark.parametrize("changes", [{"began": False}, {"stood": None}])
def test_half_an_hour_before_it_was_at_work_and_where_stacks_cannot_be_read(watch: Watch, changes: dict[str, None]) -> None:
    assert watch.first(2040.0, 5000.0, replace(STANDING, **changes)) == 3800.0  # type: ignore[arg-type]


def test_stacks_that_moved_begin_the_time_anew(watch: Watch) -> None:
    assert watch.first(2040.0, 2250.0) == math.inf
    assert watch.first(2250.0, 2400.0, replace(STANDING, stood=False)) == math.inf
    assert watch.first(2400.0, 5000.0, replace(STANDING, since_s=2400.0)) == 2700.0


def test_a_pause_stops_the_clock(watch: Watch) -> None:
    assert watch.first(2040.0, 2100.0) == math.inf
    watch.ledger.append(kinds.PAUSE, {"scope": "job", "target": "llm", "until_s": 2400.0, "reason": "debugging"}, job="llm")
    assert 2590.0 <= watch.first(2100.0, 4000.0) <= 2610.0


def test_a_maintenance_window_stops_the_clock(watch: Watch) -> None:
    window = {"id": "w1", "from_s": 2050.0, "until_s": 2350.0, "machines": ["m1"], "racks": [], "jobs": [], "reason": "fans", "by": "ann"}
    watch.ledger.append(kinds.MAINTENANCE, window)
    found = watch.first(2040.0, 4000.0)
    assert 2590.0 <= found <= 2610.0


def test_zero_is_never(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "off.db", restart_hung_after_s=0.0)
    assert watch.first(2040.0, 9000.0) == math.inf
    watch.ledger.close()


def test_a_dry_run_says_what_it_would_do_and_a_job_that_moves_again_is_let_be(watch: Watch) -> None:
    (verdict,) = watch.at(2300.0)
    history = watch.ledger.history("llm", 2300.0)
    (dry,) = Policy(PolicyConfig()).decide([verdict], history, watch.context(2300.0))
    assert (dry.action, dry.reason) == ("page", "dry_run") and "would restart llm" in dry.detail
    (real,) = Policy(watch.config).decide([verdict], history, watch.context(2300.0))
    assert (real.action, real.reason) == ("restart", "act")
    (moved,) = Policy(watch.config).decide([verdict], history, replace(watch.context(2300.0), hangs=False))
    assert moved.action == "none"
    (none_left,) = Policy(PolicyConfig(dry_run=False, max_restarts=0)).decide([verdict], history, watch.context(2300.0))
    assert (none_left.action, none_left.reason) == ("page", "max_restarts")


def test_a_person_orders_it_once_and_at_once(watch: Watch) -> None:
    assert watch.hung.orders(1001.0) == []
    watch.clock.sleep(100.0)
    assert "at its next tick" in order_restart(watch.ledger, "llm", "ann", "loader is stuck", 1100.0)
    assert "ann ordered it" in order_restart(watch.ledger, "llm", "bob", "me too", 1110.0)
    watch.ledger.append(kinds.GENERATION_STARTED, {"generation": 2, "machines": ["m0", "m1"]}, job="llm", time_s=1111.0)
    assert "ann ordered it" in order_restart(watch.ledger, "llm", "ann", "loader is stuck", 1112.0), "typed twice"
    assert len(watch.ledger.events(kinds=[kinds.RESTART_ASKED])) == 1
    (verdict,) = watch.hung.orders(1101.0)
    assert (verdict.kind, verdict.sources, verdict.cause) == ("job", ("order",), "explicit")
    assert "ann orders a restart in place: loader is stuck" in verdict.evidence[0].message
    assert watch.hung.orders(1102.0) == []
    (again,) = HungJob(watch.state, watch.ledger, watch.config).orders(1103.0)
    names = {
        Policy(watch.config).decide([item], watch.ledger.history("llm"), watch.context(1103.0))[0].operation_id for item in (verdict, again)
    }
    assert len(names) == 1, "a controller that takes over knows it as the same operation"


def test_an_order_of_before_this_generation_or_of_long_ago_is_over(watch: Watch) -> None:
    watch.clock.sleep(100.0)
    order_restart(watch.ledger, "llm", "ann", "stuck", 1100.0)
    watch.state.generation_start_s = 1200.0
    assert HungJob(watch.state, watch.ledger, watch.config).orders(1201.0) == []
    watch.state.generation_start_s = BEGUN_S
    assert HungJob(watch.state, watch.ledger, watch.config).orders(1800.0) == []


def test_a_job_that_does_not_run_cannot_be_ordered(watch: Watch) -> None:
    watch.ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    with pytest.raises(BadInputError, match='no job "llm" runs'):
        order_restart(watch.ledger, "llm", "ann", "stuck", 1100.0)


# What follows a hang, in a whole controller


def hanging(world: Any) -> Callable[[Any], list[Any]]:
    """The job stands once it has stepped, and stands again after every restart."""
    return lambda observation: [world.accuse(kind="job", cause="stall", sources=("hang",))] if observation.job.phase == "running" else []


def test_with_no_restart_left_it_ends_as_failed_with_its_evidence_and_its_workers(world: Any) -> None:
    world.policy, world.script = PolicyConfig(dry_run=False, max_restarts=0), hanging(world)
    app = world.life(5)
    assert app.state.phase == "failed" and "0 of 0 restarts without progress are used up" in app.state.ended_because
    told = [event.kind for event in world.events(kinds.DECISION, kinds.EVIDENCE, kinds.JOB_ENDED)]
    assert told.index(kinds.DECISION) < told.index(kinds.EVIDENCE) < told.index(kinds.JOB_ENDED)
    assert world.events(kinds.JOB_ENDED)[0].payload["outcome"] == "failed"
    assert {item.state for name, item in world.fleet.launchers.items() if name.startswith("m")} == {"waiting"}


def test_a_dry_run_ends_and_restarts_nothing(world: Any) -> None:
    world.policy, world.script = PolicyConfig(), hanging(world)
    world.hangs = True
    app = world.life(6)
    assert (app.state.phase, app.state.generation) == ("running", 1)
    (decision,) = world.events(kinds.DECISION)
    assert (decision.payload["action"], decision.payload["reason"]) == ("page", "dry_run")


def test_with_act_the_same_ranks_start_again_on_the_same_machines(world: Any) -> None:
    world.script, world.hangs = hanging(world), True
    app = world.life(6)
    assert (app.state.generation, app.state.rank_machine) == (2, {0: "m0", 1: "m1", 2: "m2", 3: "m3"})
    assert app.state.barred == set() and world.fleet.captured
