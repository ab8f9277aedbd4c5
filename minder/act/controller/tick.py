"""What the controller carries from tick to tick."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minder.act.controller.backlog import Backlog
from minder.model.evidence import Signal, Verdict

__all__ = ["Tick"]


@dataclass(slots=True)
class Tick:
    """The loop's memory; nothing of it outlives the process."""

    errors: Counter[str] = field(default_factory=Counter)
    failing: dict[str, str] = field(default_factory=dict)  # part to its error, of the parts whose newest run raised
    named_s: float = -math.inf  # when a verdict last named machines
    accused_s: float = -math.inf  # when one last did that may evict
    message: str = ""
    held: list[Signal] = field(default_factory=list)  # heard while nothing may be concluded; they wait for that
    recorded: int = 0  # generation whose ranks the recording knows
    last_words: tuple[str, str, float] | None = None  # no restart is left: why, the incident, and until when that ends the job
    backlog: Backlog = field(default_factory=Backlog)
    opened: list[tuple[Verdict, str]] = field(default_factory=list)  # (verdict, incident) of this tick
    excerpts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # (incident, evidence) that is not written yet
    alarm: str = ""  # as it was told; "" if there is none
    unscored: list[str] = field(default_factory=list)  # why telemetry is not scored, as it was told; empty if it is
    standing: dict[tuple[str, ...], Verdict] = field(default_factory=dict)  # of a watched job: what a restart of it ends

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self.named_s += by_s
        self.accused_s += by_s
        if self.last_words is not None:
            why, incident, until_s = self.last_words
            self.last_words = (why, incident, until_s + by_s)

    def note_standing(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self.standing.pop(verdict.machines, None)
            if verdict.kind != "recovered":
                self.standing[verdict.machines] = verdict

    def end_standing(self, now_s: float) -> list[Verdict]:
        """Whoever owns a watched job has started it again: what stood against its former generation is over, in the ledger too."""
        return [
            dataclasses.replace(verdict, time_s=now_s, kind="recovered", tier="watch", evidence=(), against=())
            for verdict in self.standing.values()
        ]
