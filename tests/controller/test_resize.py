"""A job that goes on with fewer machines, through the real controller: ranks, partners that wait, growth, and a controller that dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy.context import Sizes
from minder.model.topology import Parallelism
from minder.record.incidents import kinds

PIPES = Sizes(2, 4, Parallelism(pipeline=2, data=2))  # m0-m2 and m1-m3
PLAIN = Sizes(2, 4, Parallelism(data=4))


@pytest.fixture
def small(new_world: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """small(sizes): a world of four machines that may go on with two. Standbys wait only where a test says so (`world.ready`)."""

    def make(sizes: Sizes) -> Any:
        world = new_world()
        plain, world.ready, world.policy = world.app, set(), replace(world.policy, breaker_share=1.0)

        def app(die_at: int | None = None) -> Any:
            made = plain(die_at)
            stages, recovery = made.controller._stages, made.recovery
            make_context, pool = stages.context, made.controller.pool
            stages.context = lambda *asked: replace(make_context(*asked), sizes=sizes)
            recovery._settings = replace(recovery._settings, parallelism=sizes.parallelism, full_machines=sizes.full)
            waiting = pool.standbys
            monkeypatch.setattr(pool, "standbys", lambda: [name for name in waiting() if name in world.ready])
            return made

        world.app = app
        return world

    return make


def evict(world: Any, machine: str) -> Callable[[Any], list[Any]]:
    def script(observation: Any) -> list[Any]:
        inside = observation.job.phase == "running" and machine in observation.job.machines
        return [world.accuse(machine)] if inside else []

    return script


def test_the_rest_of_a_pipeline_waits_and_is_no_suspect(small: Callable[..., Any]) -> None:
    world = small(PIPES)
    world.script = evict(world, "m1")
    app = world.life(8)
    assert app.state.rank_machine == {0: "m0", 1: "m2"} and app.state.barred == {"m1"}
    assert [item.state for item in world.fleet.views()["m3"].workers] == ["waiting"]
    (decision,) = [event.payload for event in world.events(kinds.DECISION)]
    assert decision["size"] == {"machines": 2, "full": 4} and world.events(kinds.GENERATION_STARTED)[-1].payload["full_machines"] == 4


@pytest.mark.lab
def test_killed_after_any_event_the_job_is_as_small_as_it_was_to_be_and_no_partner_is_left_behind(small: Callable[..., Any]) -> None:
    whole = small(PIPES)
    whole.script = evict(whole, "m1")
    whole.life(8)
    for die_at in range(1, len(whole.events()) + 1):
        world = small(PIPES)
        world.script = evict(world, "m1")
        world.life(8, die_at)
        app = world.life(8)
        at = f"killed after event {die_at}: {[event.kind for event in world.events()]}"
        assert app.state.rank_machine == {0: "m0", 1: "m2"} and app.state.generation == 2, at
        assert [item.state for item in world.fleet.views()["m3"].workers] == ["waiting"], at
        assert len(world.events(kinds.INTENT)) == 1, at


def test_the_next_eviction_takes_in_what_is_ready(small: Callable[..., Any]) -> None:
    world = small(PLAIN)
    world.script = evict(world, "m1")
    app = world.app()
    app.begin()
    world.tick(app, 6)
    assert app.state.rank_machine == {0: "m0", 1: "m2", 2: "m3"}
    world.ready = {"s0", "s1"}
    world.script = evict(world, "m2")
    world.tick(app, 6)
    assert app.state.rank_machine == {0: "m0", 1: "s0", 2: "m3", 3: "s1"}
    assert world.events(kinds.DECISION)[-1].payload["joins"] == ["s1"]
    app.close()


def test_a_checkpoint_that_no_other_size_reads_is_said_and_a_person_is_called(small: Callable[..., Any]) -> None:
    world = small(replace(PLAIN, refused="its checkpoint can be read by 4 ranks only"))
    world.script = evict(world, "m1")
    app = world.life(4)
    assert app.state.generation == 1 and not app.state.barred
    assert "its checkpoint can be read by 4 ranks only" in world.events(kinds.DECISION)[0].payload["detail"]
