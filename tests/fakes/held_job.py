"""A job whose rank 1 fails on m1 for a reason that is not known, and what of the ladder was climbed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minder.model.decision import Decision
from minder.model.evidence import Failure, Verdict
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = ["acted", "fails", "result_of", "rungs", "until"]


def fails(world: Any, sort: str = "crash") -> Callable[[Any], list[Verdict]]:
    """Rank 1 fails where m1 runs it, twice, for a reason that is not known."""

    def script(observation: Any) -> list[Verdict]:
        job = observation.job
        if job.phase != "running" or job.rank_machine.get(1) != "m1" or job.generation > 2:
            return []
        failure = Failure(job.generation_start_s, "m1", (1,), sort, generation=job.generation, text="ended by SIGKILL")
        verdict = world.accuse(kind="job", cause="numeric" if sort == "nonfinite" else "explicit")
        return [replace(verdict, since_s=job.generation_start_s, sources=("crash",), failures=(failure,))]

    return script


def acted(world: Any) -> list[Decision]:
    return [from_json(Decision, event.payload["decision"]) for event in world.events(kinds.INTENT)]


def rungs(world: Any) -> list[str]:
    return [item.rung for item in acted(world)]


def result_of(world: Any, action: str = "diagnose") -> dict[str, Any]:
    names = [item.operation_id for item in acted(world) if item.action == action]
    (found,) = [event.payload for event in world.events(kinds.RESULT) if event.operation_id == names[0]]
    return found


def until(world: Any, app: Any, what: Callable[[], bool], most: int = 20) -> None:
    for _ in range(most):
        if what():
            return
        world.tick(app)
    raise AssertionError(f"phase {app.state.phase}, {[event.kind for event in world.events()][-12:]}")
