"""The real controller against simulated machines: whatever happens, in whatever order, the invariants hold (tests/fakes/invariants.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIRST, COUNT, PARTS = 1, 18, 3  # more of them: bench/schedules.py


@pytest.mark.parametrize("part", [*range(PARTS - 1), pytest.param(PARTS - 1, marks=pytest.mark.release)])
def test_the_invariants_hold(scene: Any, schedule: Any, empty_ledger: Path, part: int) -> None:
    for seed in range(FIRST + part, FIRST + COUNT, PARTS):
        drawn = schedule.draw(seed)
        played = scene.play(drawn, empty_ledger)
        assert played.watch.broken == [], f"{drawn.text()}\n" + "\n".join(played.trace)


def test_the_same_schedule_is_the_same_story(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    drawn = schedule.Schedule.read(schedule.draw(1).text())
    assert drawn == schedule.draw(1)
    first, second = (scene.play(drawn, empty_ledger) for _ in range(2))
    assert first.trace == second.trace and first.trace


INVARIANT = {
    "acts without an intent": "an intent before each action",
    "forgets who is barred": "a machine returns only with a proof",
    "never restarts what hangs": "no job stands for ever",
    "forgets what was climbed": "the state of a climb is in the ledger",
}


@pytest.fixture
def fails(scene: Any, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], bool]:
    """fails("acts without an intent", schedule): whether the product, broken in this way, breaks its invariant there."""

    def play(breaks: str, candidate: Any) -> bool:
        with monkeypatch.context() as broken:
            BREAKS[breaks](broken)
            return any(line.startswith(INVARIANT[breaks]) for line in scene.play(candidate, empty_ledger).watch.broken)

    return play


def among_noise(action: Any, breaks: str) -> tuple[Any, ...]:
    """What breaks the broken product, between two actions that do not."""
    needed = NEEDED[breaks](action)
    return (action(1.0, "agent_silent", "m2", 5.0), *needed, action(needed[-1].at_s + 1.0, "retest", "s0"))


@pytest.mark.parametrize("breaks", INVARIANT)
def test_a_broken_product_is_noticed(schedule: Any, fails: Callable[[str, Any], bool], breaks: str) -> None:
    assert fails(breaks, schedule.Schedule(0, among_noise(schedule.Action, breaks)))


@pytest.mark.parametrize(
    "breaks", [name if name == "acts without an intent" else pytest.param(name, marks=pytest.mark.release) for name in INVARIANT]
)
def test_a_schedule_shrinks_to_what_is_needed(schedule: Any, fails: Callable[[str, Any], bool], breaks: str) -> None:
    whole = schedule.Schedule(0, among_noise(schedule.Action, breaks))
    assert schedule.shrink(whole, lambda candidate: fails(breaks, candidate)).actions == NEEDED[breaks](schedule.Action)


NEEDED: dict[str, Any] = {
    "acts without an intent": lambda action: (action(5.0, "crash", "m1", 1),),
    "forgets who is barred": lambda action: (action(5.0, "ecc", "m1", 1), action(20.0, "ecc", "m0", 1)),
    "never restarts what hangs": lambda action: (action(5.0, "deadlock"),),
    "forgets what was climbed": lambda action: (action(5.0, "crash", "m1", 1), action(20.0, "crash", "m0", 1)),
}


def act_without_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes after the job's start."""
    from minder.act.recovery.generation_plan import GenerationPlan

    request_for = GenerationPlan.request_for

    def asked(self: Any, *rest: Any) -> Any:
        name = {} if self.generation == 1 else {"operation_id": f"x/{self.generation}"}
        return {**request_for(self, *rest), **name}

    monkeypatch.setattr(GenerationPlan, "request_for", asked)


def forget_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evicted machine stands in for the next one."""
    from minder.act.controller.recover import Recovery
    from minder.act.recovery.generation_plan import replace_machines

    def place(self: Any, decision: Any) -> Any:
        barred = sorted(self._state.barred - set(decision.machines))
        return replace_machines(self._state.rank_machine, decision.machines, barred or decision.replacements)

    monkeypatch.setattr(Recovery, "_place", place)


def never_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.act.controller.hung import HungJob

    monkeypatch.setattr(HungJob, "look", lambda self, *unused: [])


def forget_climbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were in the controller's memory, and not in the ledger."""
    from minder.record.incidents.climbs import ClimbFold

    monkeypatch.setattr(ClimbFold, "climbs", lambda self, *unused: ())


BREAKS: dict[str, Any] = {
    "forgets what was climbed": forget_climbs,
    "acts without an intent": act_without_intent,
    "forgets who is barred": forget_bars,
    "never restarts what hangs": never_restart,
}


@pytest.mark.parametrize("asked", [True, False])
def test_a_machine_that_was_evicted_twice_is_tested_before_it_takes_a_place(
    scene: Any, schedule: Any, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """m1 goes and comes back, twice; it would be the first standby. asked: whether the product looks at its record."""
    orders = [(5.0, "evict", "m1"), (25.0, "return", "m1"), (40.0, "evict", "m0"), (150.0, "evict", "m1"), (170.0, "return", "m1")]
    actions = [schedule.Action(*item) for item in (*orders, (200.0, "evict", "m2"))]
    if not asked:
        for room in ("minder.act.policy.limits", "minder.act.policy.trial", "minder.act.controller.pool"):
            monkeypatch.setattr(f"{room}.distrusted", lambda *unused: {})
    broken = scene.play(schedule.Schedule(0, tuple(actions)), empty_ledger).watch.broken
    assert [line.split(":")[0] for line in broken] == ([] if asked else ["a machine evicted twice passes a test first"])
