"""What the policy must know from the engine that owns the machines: who is free, who is held by others, who else runs there.

The engine is asked beside the tick. What is too old counts as not known: then nothing is taken that needs the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from minder.actuators.contract import Engine, EngineLook
from minder.controller.state import JobState
from minder.errors import MinderError
from minder.policy.context import PolicyContext

__all__ = ["EngineWatch", "with_engine"]

ContextMaker = Callable[[JobState, Sequence[str], float], PolicyContext]
_EVERY_S = 5.0
_FRESH_S = 60.0
_REQUEUE_S = 120.0  # a job that the scheduler starts anew: its old processes end, others start, torch is imported


class EngineWatch:
    """Looks at the engine every few seconds. `newest(now_s)`: what it last said, None if that is older than a minute (or never)."""

    def __init__(self, engine: Engine, machines: Sequence[str], every_s: float = _EVERY_S) -> None:
        self.engine = engine
        self._machines = tuple(machines)
        self._every_s = every_s
        self._look: EngineLook | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-engine-watch", daemon=True)
        self.trouble = ""  # why it does not answer now

    def start(self) -> None:
        self.look()
        self._thread.start()

    def close(self) -> None:
        """May be called twice, and without `start`; a call that still runs is left to end by its deadline."""
        self._ending.set()

    def newest(self, now_s: float) -> EngineLook | None:
        look = self._look
        return look if look is not None and abs(now_s - look.time_s) <= _FRESH_S else None

    def look(self) -> None:
        try:
            self._look = self.engine.look(self._machines)
            self.trouble = ""
        except MinderError as error:
            self.trouble = str(error)

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self.look()


def with_engine(make: ContextMaker, watch: EngineWatch, restarts_elsewhere: bool) -> ContextMaker:
    """The policy's context, completed. restarts_elsewhere: an eviction has the engine start the job again on other machines, so those
    that it could use are the standbys; otherwise standbys are the job's own spares, without those that somebody holds."""

    def made(state: JobState, standbys: Sequence[str], now_s: float) -> PolicyContext:
        context = make(state, standbys, now_s)
        look = watch.newest(now_s)
        if look is None:
            silent = f"{watch.engine.name} does not answer: {watch.trouble or 'it was not asked yet'}"
            refused = dict.fromkeys(context.job.machines, silent) if restarts_elsewhere else {}
            return replace(context, standbys_ready=() if restarts_elsewhere else context.standbys_ready, engine_refuses=refused)
        ready = look.free if restarts_elsewhere else tuple(name for name in context.standbys_ready if name not in look.held)
        return replace(
            context,
            standbys_ready=ready,
            other_jobs=_merged(context.other_jobs, look.neighbours),
            engine_refuses=_refusals(watch.engine, look, context.job.machines, restarts_elsewhere),
            expected_restart_s=_REQUEUE_S if restarts_elsewhere else context.expected_restart_s,
        )

    return made


def _refusals(engine: Engine, look: EngineLook, machines: Sequence[str], restarts_elsewhere: bool) -> dict[str, str]:
    """Machine to why the engine, or the limit over all its jobs, does not let it be taken."""
    found: dict[str, str] = {}
    for machine in machines:
        others = sorted(name for name in look.ours if name != machine)
        if restarts_elsewhere and look.refusal:
            found[machine] = look.refusal
        elif len(others) >= engine.max_held and machine not in look.held:
            found[machine] = f"minder keeps {', '.join(others[:5])} out of {engine.name} already, and {engine.max_held} is the limit"
    return found


def _merged(one: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in dict.fromkeys([*one, *other])}
