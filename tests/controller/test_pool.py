"""Machines that come back to a running job's pool, and machines that join it: by an operator's order, once, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minder.model.decision import ActionResult
from minder.model.errors import BadInputError
from minder.record.incidents import kinds
from minder.record.incidents.joins import Join, order_join


def evict(world: Any, machine: str = "m1") -> Any:
    """A controller whose job has lost m1 to s0 and steps again."""
    app = world.app()
    app.begin()
    world.tick(app, 3)
    world.script = lambda observation: [world.accuse(machine)]
    world.tick(app, 6)
    world.script = lambda observation: []
    assert world.fleet.launchers[machine].state == "ended" and machine not in app.state.rank_machine.values()
    return app


def give_back(world: Any, machine: str = "m1") -> None:
    with world.ledger() as ledger:
        ledger.append(kinds.UNBARRED, {"machine": machine, "by": "ada"}, job="llm")


def rejoins(world: Any) -> list[Any]:
    return [event for event in world.events(kinds.INTENT, kinds.RESULT) if str(event.operation_id).startswith("rejoin-")]


def test_a_returned_machine_waits_at_the_barrier_again(world: Any) -> None:
    app = evict(world)
    world.tick(app, 20)
    assert world.fleet.launchers["m1"].state == "ended" and rejoins(world) == [], "no machine comes back by itself"
    give_back(world)
    world.tick(app, 2)
    assert world.fleet.launchers["m1"].state == "waiting" and "m1" in app.controller.standbys()
    intent, result = rejoins(world)
    assert (intent.kind, intent.payload["action"], intent.payload["machines"]) == (kinds.INTENT, "rejoin", ["m1"])
    assert (result.payload["outcome"], result.payload["detail"]) == ("done", "its workers wait at the barrier")
    world.tick(app, 30)
    assert len(rejoins(world)) == 2 and sum(name.startswith("rejoin") for name in world.fleet.launchers["m1"].operations) == 1
    app.close()


def test_it_takes_a_place_again_and_its_old_order_does_not_call_it_back(world: Any) -> None:
    app = evict(world)
    give_back(world)
    world.tick(app, 2)
    world.fleet.launchers["s1"].silent = True
    since_s = 1_700_000_005.0
    world.script = lambda observation: [replace(world.accuse("m2"), since_s=since_s)]
    world.tick(app, 6)
    assert app.state.rank_machine[2] == "m1"
    world.tick(app, 30)
    assert world.fleet.launchers["m1"].state == "running"
    app.close()


def test_a_controller_that_dies_between_order_and_answer_is_followed_by_one_that_asks_for_the_same(world: Any) -> None:
    app = evict(world)
    app.close()
    give_back(world)
    world.life(3, die_at=2)  # controller_started, then the intent
    assert [event.kind for event in rejoins(world)] == [kinds.INTENT]
    app = world.life(3)
    assert [event.kind for event in rejoins(world)] == [kinds.INTENT, kinds.RESULT]
    assert sum(name.startswith("rejoin") for name in world.fleet.launchers["m1"].operations) == 1
    assert "m1" not in app.state.barred


def test_a_machine_whose_launcher_is_dead_is_told_of_until_it_answers(world: Any) -> None:
    app = evict(world)
    world.fleet.launchers["m1"].silent = True
    give_back(world)
    world.tick(app, 15)
    told = "it was returned, but its launcher has been silent for 30 s"
    assert app.controller.pool.missing()["m1"] == told
    notes = [event.payload["text"] for event in world.events(kinds.NOTE)]
    assert notes == [f"m1 is no standby yet: {told}"], "once"
    world.fleet.launchers["m1"].silent = False
    world.tick(app, 2)
    assert "m1" in app.controller.standbys() and "m1" not in app.controller.pool.missing()
    app.close()


def test_a_launcher_that_was_started_anew_is_asked_for_nothing(world: Any) -> None:
    app = evict(world)
    world.fleet.launchers["m1"].state = "waiting"  # as after a boot
    give_back(world)
    world.tick(app, 2)
    assert not any(name.startswith("rejoin") for name in world.fleet.launchers["m1"].operations)
    assert "m1" in app.controller.standbys() and rejoins(world)[-1].payload["outcome"] == "done"
    app.close()


def test_one_that_is_barred_again_before_it_is_back_stays_out(world: Any) -> None:
    app = evict(world)
    world.fleet.launchers["m1"].silent = True
    give_back(world)
    world.tick(app, 2)
    with world.ledger() as ledger:
        ledger.append(kinds.BARRED, {"machine": "m1", "reason": "the disk after all"}, job="llm")
    world.fleet.launchers["m1"].silent = False
    world.tick(app, 15)
    assert world.fleet.launchers["m1"].state == "ended" and "m1" in app.state.barred
    app.close()


def let_join(world: Any) -> None:
    """The fleet takes machines in: those of `expected` answer, under the names that `called` gives them, else their own."""
    launcher = type(world.fleet.launchers["m0"])

    class Open(type(world.fleet)):  # type: ignore[misc]
        def add(self, join: Join) -> None:
            self.launchers[join.machine] = self.expected.get(join.machine) or self.launcher(silent=True)

        def remove(self, machine: str) -> None:
            self.launchers.pop(machine, None)

        def names(self, machine: str) -> tuple[str, str]:
            return ("", "") if self.launchers[machine].unheard else self.called.get(machine, (machine, machine))

        def launcher(self, silent: bool = False) -> Any:
            return launcher(silent=silent, unheard=silent)

    world.fleet.__class__, world.fleet.expected, world.fleet.called = Open, {}, {}
    world.admits = Admits(world)


class Admits:
    """The wiring of a real controller is tried in tests/test_admission.py."""

    def __init__(self, world: Any) -> None:
        self.world, self.admitted = world, list[str]()

    def known(self) -> dict[str, tuple[str | None, str | None]]:
        return {"m1": ("http://m1:1", "http://m1:2")}

    def endpoints(self, join: Join) -> Any:
        return join

    def admit(self, join: Join) -> None:
        self.admitted.append(join.machine)


NEW = Join("", "n9", "http://n9:1", "http://n9:2", rack="r7")


@pytest.fixture
def joining(world: Any) -> Any:
    let_join(world)
    app = world.app()
    app.begin()
    world.tick(app, 2)
    yield app
    app.close()


def order(world: Any, **changes: Any) -> Join:
    with world.ledger() as ledger:
        return order_join(ledger, "llm", replace(NEW, **changes), "ada", "one more")


def outcome(world: Any, join: Join) -> tuple[str, str]:
    (result,) = [event.payload for event in world.events(kinds.RESULT) if event.operation_id == join.operation_id]
    return result["outcome"], result["detail"]


def test_a_machine_joins_as_soon_as_both_of_its_processes_answer(world: Any, joining: Any) -> None:
    join = order(world)
    world.fleet.expected["n9"] = world.fleet.launcher(silent=True)
    world.tick(joining, 12)
    assert "n9" not in joining.controller.standbys() and world.admits.admitted == []
    assert joining.controller.pool.missing()["n9"] == "it is to join as a standby, but no launcher answers at http://n9:2"
    world.fleet.launchers["n9"].silent = world.fleet.launchers["n9"].unheard = False
    world.tick(joining, 2)
    assert world.admits.admitted == ["n9"] and outcome(world, join) == ("done", "a standby of llm")
    assert joining.controller.standbys()[-1] == "n9"


@pytest.mark.parametrize(
    ("named", "told"),
    [(("m7", "n9"), "the agent at http://n9:1 is m7's"), (("n9", "m7"), "the launcher at http://n9:2 is m7's of job llm")],
)
def test_another_machine_at_the_address_does_not_join_under_this_name(world: Any, joining: Any, named: tuple[str, str], told: str) -> None:
    join = order(world)
    world.fleet.expected["n9"], world.fleet.called["n9"] = world.fleet.launcher(), named
    world.tick(joining, 2)
    assert outcome(world, join) == ("failed", told)
    assert "n9" not in world.fleet.machines and world.admits.admitted == []
    again = order(world, agent="http://n9:3", launcher="http://n9:4")
    world.fleet.called.clear()
    world.tick(joining, 2)
    assert outcome(world, again)[0] == "done", "mended by another order"


def test_a_name_or_an_address_that_is_taken_is_refused_by_the_controller_too(world: Any, joining: Any) -> None:
    """A ledger that an earlier version began does not tell the addresses."""
    taken, same = order(world, machine="m1"), order(world, launcher="http://m1:2")
    world.tick(joining, 1)
    assert outcome(world, taken)[0] == "failed" and "is known with other addresses" in outcome(world, taken)[1]
    assert outcome(world, same) == ("failed", "http://m1:2 is m1's: two names for one machine would give it two places")


def test_an_order_that_nobody_took_up_is_taken_up_by_the_next_controller_and_a_newer_one_replaces_it(world: Any, joining: Any) -> None:
    joining.close()
    wrong = order(world, launcher="http://nowhere:2")
    world.fleet.expected["n9"] = world.fleet.launcher(silent=True)
    app = world.app()
    app.begin()
    world.tick(app, 2)
    right = order(world)
    world.fleet.expected["n9"] = world.fleet.launcher()
    world.tick(app, 2)
    assert outcome(world, wrong) == ("failed", "a newer order names other addresses")
    assert outcome(world, right)[0] == "done"


def test_no_machine_joins_a_job_that_does_not_run(world: Any) -> None:
    with pytest.raises(BadInputError, match='no job "llm" runs'):
        order(world)
    app = world.app()
    app.begin()
    app.close()
    with world.ledger() as ledger:
        ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    with pytest.raises(BadInputError, match='no job "llm" runs'):
        order(world)


def gone_twice(world: Any, machine: str, job: str = "vision") -> None:
    """It was evicted from another job twice, and given back."""
    with world.ledger() as ledger:
        for number in range(2):
            name = f"evict-{machine}-{number}"
            ledger.intend(name, {"action": "evict", "machines": [machine]}, job=job)
            ledger.complete(name, ActionResult(name, world.clock.now_s(), "done"))


def test_a_machine_evicted_twice_is_no_standby_before_it_has_passed_a_test(world: Any) -> None:
    gone_twice(world, "s0")
    app = evict(world)
    assert app.state.rank_machine[1] == "s1", "s0 would have been first"
    assert "s0" not in app.controller.standbys()
    assert app.controller.pool.missing()["s0"] == "s0 was evicted 2 times within 7 days and has passed no test since"
    with world.ledger() as ledger:
        ledger.append(kinds.RETEST_ASKED, {"machine": "s0", "reason": "", "by": "ada"}, job="vision", operation_id="retest-1")
        ledger.intend("retest-1", {"action": "retest", "machines": ["s0"]}, job="vision")
        ledger.complete("retest-1", ActionResult("retest-1", world.clock.now_s(), "done"))
    world.tick(app, 2)
    assert "s0" in app.controller.standbys()
    app.close()


def test_neither_does_it_begin_a_job_while_a_standby_is_there(world: Any) -> None:
    gone_twice(world, "m1")
    app = world.app()
    app.begin()
    assert app.state.rank_machine[1] == "s0"
    assert any("s0 takes its place" in event.payload["text"] for event in world.events(kinds.NOTE))
    app.close()


def test_without_a_standby_left_the_configuration_stands_and_the_ledger_says_so(world: Any) -> None:
    for machine in ("m0", "m1", "m2"):
        gone_twice(world, machine)
    app = world.app()
    app.begin()
    inside = set(app.state.rank_machine.values())
    assert {"s0", "s1"} <= inside and len(inside & {"m0", "m1", "m2"}) == 1
    assert any("no standby is left" in event.payload["text"] for event in world.events(kinds.NOTE))
    app.close()


def test_it_does_not_join_either(world: Any, joining: Any) -> None:
    gone_twice(world, "n9")
    world.tick(joining, 1)
    join = order(world)
    world.fleet.expected["n9"] = world.fleet.launcher()
    world.tick(joining, 2)
    assert outcome(world, join) == ("failed", "n9 was evicted 2 times within 7 days and has passed no test since")


def test_launchers_that_outlived_the_last_run_begin_the_next_one_with_workers_started_anew(world: Any) -> None:
    """Those of standbys too, one that left its ranks there; what still runs is left alone."""
    world.life(3)
    with world.ledger() as ledger:
        ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    launchers = world.fleet.launchers
    for name, item in launchers.items():
        item.state, item.rank = "exited" if name != "s1" else item.state, None
    launchers["s1"].state = "running"
    app = world.app()
    app.begin()
    world.tick(app, 3)
    assert (app.state.run, app.state.generation) == (2, 2)
    assert {launchers[name].state for name in app.state.rank_machine.values()} == {"running"}
    assert app.controller.standbys() == ["s0"]
    asked = {name for name, item in launchers.items() if any(operation.startswith("anew-") for operation in item.operations)}
    assert asked == set(launchers) - {"s1"}
    assert "does not wait at the barrier (running)" in app.controller.pool.missing()["s1"]
    app.close()


def test_workers_that_end_while_a_job_runs_are_no_leftovers(world: Any) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 3)
    world.fleet.launchers["s0"].state = "ended"
    world.tick(app, 20)
    assert world.fleet.launchers["s0"].state == "ended"
    app.close()
