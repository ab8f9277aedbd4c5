"""Bringing a generation up: who runs, who is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from minder.act.recovery.generation_plan import GenerationPlan
from minder.act.recovery.restart import await_waiting, is_waiting, start_generation, why_not_waiting
from minder.model.clock import FakeClock
from minder.model.errors import NoAnswerError
from minder.model.observation import MachineView, WorkerView

WAITING = MachineView("m", 0.1, 0.1, (WorkerView(0, 1, None, "waiting", -1), WorkerView(1, 2, None, "waiting", -1)))


class FakeFleet:
    """Machines that carry out an order after some looks; `silent` ones answer no request, `stuck` ones never run it. A launcher of
    `anew` begins again at so many looks; the worker of a `dying` one is another process each time."""

    def __init__(
        self,
        *machines: str,
        silent: Iterable[str] = (),
        stuck: Iterable[str] = (),
        anew: Mapping[str, int] | None = None,
        heard_s: float = 0.1,
        dying: Iterable[str] = (),
    ) -> None:
        self._views = {name: replace(WAITING, machine=name, launcher_age_s=heard_s) for name in machines}
        self._silent, self._stuck, self._anew, self._dying = set(silent), set(stuck), dict(anew or {}), set(dying)
        self.looks = 0
        self.ordered: list[str] = []
        self.bodies: dict[str, Mapping[str, Any]] = {}

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        self.bodies |= {name: body for name, body in bodies.items() if name not in self._silent}
        self.ordered += bodies
        return {name: NoAnswerError(f"{name} does not answer") if name in self._silent else {"outcome": "done"} for name in bodies}

    def refresh(self, machines: Iterable[str]) -> None:
        self.looks += 1
        for name in machines:
            if self._anew.get(name) == self.looks:
                self.bodies.pop(name, None)
                self._silent.discard(name)
                self._views[name] = replace(WAITING, machine=name)
            if name not in self.bodies:
                continue
            body = self.bodies[name]
            state = "starting" if name in self._stuck | self._dying or self.looks < 3 else "running"
            workers = tuple(
                WorkerView(slot, self.looks if name in self._dying else 1, int(item["env"]["RANK"]), state, body["generation"])  # type: ignore[arg-type]
                for slot, item in enumerate(body["assignments"])
            )
            self._views[name] = replace(self._views[name], workers=workers)

    def views(self) -> dict[str, MachineView]:
        return self._views


def plan(generation: int = 2) -> GenerationPlan:
    return GenerationPlan("llm", generation, {0: "a", 1: "b", 2: "c"}, "127.0.0.1", 1, "op")


def start(fleet: FakeFleet, deadline_s: float = 5.0) -> Mapping[str, str]:
    return start_generation(fleet, plan(), (deadline_s, deadline_s), FakeClock()).missing  # type: ignore[arg-type]


def test_all_run_nobody_is_missing() -> None:
    fleet = FakeFleet("a", "b", "c")
    assert start(fleet) == {}
    assert fleet.looks == 3


def test_a_machine_that_does_not_answer_is_missing_with_the_reason_and_not_waited_for() -> None:
    assert start(FakeFleet("a", "b", "c", silent=["b"], heard_s=6.0)) == {"b": "b does not answer"}


@pytest.mark.parametrize("silent", [[], ["c"]], ids=["after its order", "before its order"])
def test_a_launcher_that_begins_again_meanwhile_is_ordered_again(silent: list[str]) -> None:
    fleet = FakeFleet("a", "b", "c", silent=silent, anew={"c": 2})
    assert start(fleet) == {}
    assert (fleet.ordered.count("a"), fleet.bodies["c"]["operation_id"]) == (1, "op/g2") and fleet.ordered.count("c") > 1


def test_the_deadline_is_by_the_controllers_clock() -> None:
    clock = FakeClock()
    result = start_generation(FakeFleet("a", "b", "c", stuck=["c"]), plan(), (900.0, 900.0), clock)  # type: ignore[arg-type]
    assert result.seconds == pytest.approx(900.0, abs=0.1) == clock.monotonic_s() and list(result.missing) == ["c"]


def test_a_machine_that_does_not_start_is_missing_at_the_deadline() -> None:
    ((machine, why),) = start(FakeFleet("a", "b", "c", stuck=["c"]), 0.5).items()
    assert machine == "c" and "generation 2" in why


def bring_up(fleet: FakeFleet) -> tuple[float, list[str], list[str]]:
    """(seconds, missing, late) with a minute for whom shows nothing, and two for whom is on its way."""
    result = start_generation(fleet, plan(), (60.0, 120.0), FakeClock())  # type: ignore[arg-type]
    return round(result.seconds), sorted(result.missing), sorted(result.late)


def test_a_machine_on_its_way_is_late_and_gets_as_long_as_at_the_jobs_start() -> None:
    assert bring_up(FakeFleet("a", "b", "c", stuck=["c"])) == (120, ["c"], [])


def test_where_most_machines_are_late_none_is_missing() -> None:
    """Found by bench/chaos.py: on a busy host five of six fresh processes took over a minute, and a healthy machine was evicted for it."""
    assert bring_up(FakeFleet("a", "b", "c", stuck=["b", "c"])) == (120, [], ["b", "c"])


def test_a_machine_whose_processes_end_again_and_again_is_not_waited_for_to_the_end() -> None:
    assert bring_up(FakeFleet("a", "b", "c", dying=["c"])) == (20, ["c"], [])


def test_where_processes_end_on_most_machines_none_is_given_up_early() -> None:
    assert bring_up(FakeFleet("a", "b", "c", dying=["b", "c"])) == (60, ["b", "c"], [])


def test_the_machine_that_shows_nothing_is_named_and_not_those_that_are_late_beside_it() -> None:
    assert bring_up(FakeFleet("a", "b", "c", stuck=["b"], dying=["c"])) == (60, ["c"], ["b"])


def test_an_older_generation_that_still_runs_does_not_count() -> None:
    fleet = FakeFleet("a", "b", "c")
    assert start(fleet) == {}
    fleet.refresh = lambda machines: None  # type: ignore[method-assign]
    missing = start_generation(fleet, plan(3), (0.3, 0.3), FakeClock()).missing  # type: ignore[arg-type]
    assert set(missing) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("view", "why_not"),
    [
        (WAITING, ""),
        (None, "its launcher was never heard of"),
        (replace(WAITING, launcher_age_s=None), "its launcher was never heard of"),
        (replace(WAITING, launcher_age_s=9.0), "its launcher has been silent for 9 s"),
        (replace(WAITING, workers=()), "its launcher has no worker"),
        (
            replace(WAITING, workers=(WAITING.workers[0], WorkerView(1, 2, None, "starting", -1))),
            "its worker does not wait at the barrier (starting)",
        ),
    ],
    ids=["ready", "unknown", "never heard of", "silent", "no workers", "one still starts"],
)
def test_a_standby_is_ready_when_all_its_workers_wait_and_it_answers(view: MachineView | None, why_not: str) -> None:
    assert why_not_waiting(view, 1000.0) == why_not
    assert is_waiting(view, 1000.0) is (why_not == "")


def test_a_standby_that_is_frozen_at_the_barrier_is_not_ready() -> None:
    def ticked(age_s: float) -> MachineView:
        return replace(WAITING, workers=(WorkerView(0, 1, None, "waiting", -1, alive_time_s=1000.0 - age_s),))

    assert is_waiting(ticked(1.0), 1000.0)
    assert not is_waiting(ticked(12.0), 1000.0) and "stands still" in why_not_waiting(ticked(12.0), 1000.0)
    assert is_waiting(replace(ticked(4.0), launcher_age_s=2.9), 1000.0)


def test_who_is_late_is_told_at_the_deadline_or_when_it_is_given_up() -> None:
    fleet = FakeFleet("a", "b")
    fleet._views["b"] = replace(WAITING, machine="b", workers=())
    assert await_waiting(fleet, ["a", "b"], 0.2, FakeClock()) == ["b"]  # type: ignore[arg-type]
    assert await_waiting(fleet, ["a", "b"], 60.0, FakeClock(), give_up=lambda: True) == ["b"]  # type: ignore[arg-type]
