"""What the policy must know from the engine that owns the machines: who is free, who is held by others, who else runs there.

The engine is asked beside the tick. What is too old counts as not known: then nothing is taken that needs the engine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from minder.act.actuators.contract import Engine, EngineLook
from minder.act.controller.state import JobState
from minder.act.policy.context import PolicyContext
from minder.model.errors import MinderError

__all__ = ["ContextMaker", "EngineWatch", "with_engine"]

ContextMaker = Callable[[JobState, Sequence[str], float], PolicyContext]
_EVERY_S = 5.0
_FRESH_S = 60.0
_DAY_S = 86_400.0
_REQUEUE_S = 120.0  # a job that the scheduler starts anew: its old processes end, others start, torch is imported


class EngineWatch:
    """Looks at the engine every few seconds. `newest(now_s)`: what it last said, None if that is older than a minute (or never)."""

    def __init__(self, engine: Engine, machines: Sequence[str], every_s: float = _EVERY_S, restarts: bool = False) -> None:
        """restarts: minder may have the job started again without taking a machine away."""
        self.engine = engine
        self._restarts = restarts
        self._retries: str | None = None  # what of the job's own starts it again; None: not asked yet
        self._counted: int | None = None
        self._requeued_s: deque[float] = deque(maxlen=1000)
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
            self._look = look = self.engine.look(self._machines)
            if self._restarts and self._retries is None:
                self._retries = self.engine.own_retries()
            self._count(look)
            self.trouble = ""
        except MinderError as error:
            self.trouble = str(error)

    def restarts(self) -> int | None:
        """How often the engine has started the job again; None: unknown."""
        return None if self._look is None else self._look.restarts

    def refuses_restart(self, now_s: float, most: int) -> str:
        """Why the job is not to be started again as it is, "" if nothing speaks against it. most: restarts within a day, whoever asked
        for them: one that Slurm itself, or a person, has requeued so often is no restart's to mend."""
        look = self.newest(now_s)
        if not self._restarts:
            return 'whoever submitted the job restarts it: set restart = "requeue" in [engine] to have minder do it'
        if look is None:
            return f"{self.engine.name} does not answer: {self.trouble or 'it was not asked yet'}"
        if look.refusal:
            return look.refusal
        if self._retries is None or self._retries:
            return f"one owner of retries: {self._retries or 'whether the job starts itself again is not known yet'}"
        lately = sum(now_s - time_s <= _DAY_S for time_s in self._requeued_s)
        return f"{self.engine.name} has started it again {lately} times within a day, and max_restarts is {most}" if lately >= most else ""

    def _count(self, look: EngineLook) -> None:
        if look.restarts is None:
            return
        if self._counted is not None:
            self._requeued_s.extend([look.time_s] * max(0, look.restarts - self._counted))
        self._counted = look.restarts

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self.look()


def with_engine(make: ContextMaker, watch: EngineWatch, restarts_elsewhere: bool, max_restarts: int = 0) -> ContextMaker:
    """The policy's context, completed. max_restarts: how often within a day a watched job may be started again as it is.
    restarts_elsewhere: an eviction has the engine start the job again on other machines, so those
    that it could use are the standbys; otherwise standbys are the job's own spares, without those that somebody holds."""

    def made(state: JobState, standbys: Sequence[str], now_s: float) -> PolicyContext:
        context = make(state, standbys, now_s)
        look = watch.newest(now_s)
        if restarts_elsewhere:
            context = replace(context, restart_refused=watch.refuses_restart(now_s, max_restarts))
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
