"""What captures of the ranks' stacks have said of one stall, for the rule that names machines by their connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from minder.diagnose.verdicts.captures import passes
from minder.model.evidence import Evidence, Statement, Suspect

__all__ = ["Answer", "Looks"]

Answer = Literal["waits", "agrees", "program", "another", "unknown"]
_SECOND_S = 20.0  # so long a second look is waited for where the first one could not tell
_STOPS_AT = 0.5  # of a capture that calls the program sick


class Looks:
    """Feed it the statements of every observation while the job stalls; `clear` when it moves.

    A first look ("look") counts until both are there ("stacks"). What collectives say counts for the program alone.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.program = False  # some capture said that the program is at fault, or works for all
        self.passes = False  # the newest stacks show work for all ranks that ends by itself
        self._newest: tuple[Suspect, ...] | None = None
        self._final = False
        self._named_s: dict[str, float] = {}  # machine to when it was first asked about

    def hear(self, statements: Iterable[Statement], since_s: float) -> None:
        """since_s: when the job stopped. What was captured before shows another job."""
        for statement in statements:
            if statement.source == "round" or statement.time_s < since_s:
                continue
            self.program |= any(suspect.kind == "job" and suspect.confidence >= _STOPS_AT for suspect in statement.suspects)
            if statement.source == "collectives":
                continue
            self._newest, self._final = statement.suspects, statement.source == "stacks"
            if self._final:
                self.passes = any(passes(suspect) for suspect in statement.suspects)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the newest stacks say, whoever it is about."""
        return tuple(item for suspect in self._newest or () for item in suspect.evidence)

    def answer(self, machine: str, now_s: float, wait_s: float) -> Answer:
        """What stacks say of a machine that other witnesses name. "waits": not known yet; after `wait_s` without any it agrees."""
        waited_s = now_s - self._named_s.setdefault(machine, now_s)
        if self.program:
            return "program"
        if self._newest is None:
            return "waits" if waited_s < wait_s else "agrees"
        named = {name for suspect in self._newest for name in suspect.machines}
        if machine in named:
            return "agrees"
        if named:
            return "another"
        return "unknown" if self._final or waited_s >= max(wait_s, _SECOND_S) else "waits"
