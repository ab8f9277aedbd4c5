"""The engine is asked beside the tick: who is free, who is held by others, who else runs there. What is too old counts as not known: then
nothing is taken that needs the engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from minder.act.actuators.contract import Engine, EngineSnapshot
from minder.model.errors import MinderError

__all__ = ["EngineWatch"]

_EVERY_S = 5.0
_LOOK_HOLDS_S = 60.0
_DAY_S = 86_400.0


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
        self._look: EngineSnapshot | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-engine-watch", daemon=True)
        self.trouble = ""  # why it does not answer now

    def start(self) -> None:
        self.look()
        self._thread.start()

    def close(self) -> None:
        """May be called twice, and without `start`; a call that still runs is left to end by its deadline."""
        self._ending.set()

    def newest(self, now_s: float) -> EngineSnapshot | None:
        look = self._look
        return look if look is not None and abs(now_s - look.time_s) <= _LOOK_HOLDS_S else None

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
        """Why the job is not to be started again as it is, "" if nothing speaks against it. most: restarts within a day, by whatever
        for them: one that Slurm itself, or a person, has requeued so often is no restart's to mend."""
        look = self.newest(now_s)
        if not self._restarts:
            return 'the job\'s owner restarts it: set restart = "requeue" in [engine] to have minder do it'
        if look is None:
            return f"{self.engine.name} does not answer: {self.trouble or 'it was not asked yet'}"
        if look.refusal:
            return look.refusal
        if self._retries is None or self._retries:
            return f"one owner of retries: {self._retries or 'whether the job starts itself again is not known yet'}"
        lately = sum(now_s - time_s <= _DAY_S for time_s in self._requeued_s)
        return f"{self.engine.name} has started it again {lately} times within a day, and max_restarts is {most}" if lately >= most else ""

    def _count(self, look: EngineSnapshot) -> None:
        if look.restarts is None:
            return
        if self._counted is not None:
            self._requeued_s.extend([look.time_s] * max(0, look.restarts - self._counted))
        self._counted = look.restarts

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self.look()
