"""Bringing a generation up: who runs, who is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from minder.act.recovery.placement import GenerationPlan
from minder.act.recovery.restart import await_waiting, is_waiting, start_generation, why_not_waiting
from minder.model.errors import WireError
from minder.model.observation import MachineView, WorkerView

WAITING = MachineView("m", 0.1, 0.1, (WorkerView(0, 1, None, "waiting", -1), WorkerView(1, 2, None, "waiting", -1)))


class FakeFleet:
    """Machines that start what they are told after some looks; `silent` ones answer nobody, `stuck` ones never run it."""

    def __init__(self, *machines: str, silent: Iterable[str] = (), stuck: Iterable[str] = ()) -> None:
        self._views = {name: replace(WAITING, machine=name) for name in machines}
        self._silent, self._stuck = set(silent), set(stuck)
        self.looks = 0
        self.bodies: dict[str, Mapping[str, Any]] = {}

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        self.bodies = dict(bodies)
        return {name: WireError(f"{name} does not answer") if name in self._silent else {"outcome": "done"} for name in bodies}

    def refresh(self, machines: Iterable[str]) -> None:
        self.looks += 1
        for name in machines:
            body = self.bodies[name]
            state = "starting" if name in self._stuck or self.looks < 3 else "running"
            workers = tuple(
                WorkerView(slot, 1, int(item["env"]["RANK"]), state, body["generation"])  # type: ignore[arg-type]
                for slot, item in enumerate(body["assignments"])
            )
            self._views[name] = replace(self._views[name], workers=workers)

    def views(self) -> dict[str, MachineView]:
        return self._views


def plan(generation: int = 2) -> GenerationPlan:
    return GenerationPlan("llm", generation, {0: "a", 1: "b", 2: "c"}, "127.0.0.1", 1, "op")


def start(fleet: FakeFleet, deadline_s: float = 5.0) -> Mapping[str, str]:
    return start_generation(fleet, plan(), deadline_s).missing  # type: ignore[arg-type]


def test_all_run_nobody_is_missing() -> None:
    fleet = FakeFleet("a", "b", "c")
    assert start(fleet) == {}
    assert fleet.looks == 3


def test_a_machine_that_does_not_answer_is_missing_with_the_reason_and_not_waited_for() -> None:
    assert start(FakeFleet("a", "b", "c", silent=["b"])) == {"b": "b does not answer"}


def test_a_machine_that_does_not_start_is_missing_at_the_deadline() -> None:
    ((machine, why),) = start(FakeFleet("a", "b", "c", stuck=["c"]), 0.5).items()
    assert machine == "c" and "generation 2" in why


def test_an_older_generation_that_still_runs_does_not_count() -> None:
    fleet = FakeFleet("a", "b", "c")
    assert start(fleet) == {}
    fleet.refresh = lambda machines: None  # type: ignore[method-assign]
    missing = start_generation(fleet, plan(3), 0.3).missing  # type: ignore[arg-type]
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
    assert why_not_waiting(view) == why_not
    assert is_waiting(view) is (why_not == "")


def test_a_standby_that_is_frozen_at_the_barrier_is_not_ready() -> None:
    def ticked(age_s: float) -> MachineView:
        return replace(WAITING, workers=(WorkerView(0, 1, None, "waiting", -1, alive_time_s=1000.0 - age_s),))

    assert is_waiting(ticked(1.0), 1000.0)
    assert not is_waiting(ticked(12.0), 1000.0) and "stands still" in why_not_waiting(ticked(12.0), 1000.0)
    assert is_waiting(replace(ticked(4.0), launcher_age_s=2.9), 1000.0)


def test_who_is_late_is_told_at_the_deadline_or_when_it_is_given_up() -> None:
    fleet = FakeFleet("a", "b")
    fleet._views["b"] = replace(WAITING, machine="b", workers=())
    assert await_waiting(fleet, ["a", "b"], 0.2) == ["b"]  # type: ignore[arg-type]
    assert await_waiting(fleet, ["a", "b"], 60.0, give_up=lambda: True) == ["b"]  # type: ignore[arg-type]
