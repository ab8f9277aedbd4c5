"""How a job's run ended: every rank's script returned, and none of them with a loss that is no number."""

from __future__ import annotations

from collections.abc import Iterable

from minder.act.controller.state import JobState
from minder.model.evidence import Signal

__all__ = ["note_finished", "spoilt_because"]


def note_finished(state: JobState, signals: Iterable[Signal]) -> None:
    """Take in the ranks of this generation whose script returned with 0."""
    for signal in signals:
        if signal.kind == "exit" and signal.data.get("code") == 0 and signal.generation == state.generation:
            state.finished.add((state.generation, signal.rank))
            step = signal.data.get("nonfinite_since")
            if isinstance(step, int) and signal.rank is not None:
                state.spoilt[state.generation, signal.rank] = step


def spoilt_because(state: JobState) -> str:
    """Why a run whose ranks have all returned is no success: the ranks whose loss was not finite first. "" where none had one at its end.

    >>> spoilt_because(JobState("j", generation=1, rank_machine={0: "a", 1: "b"}, spoilt={(1, 0): 8, (1, 1): 7}))
    'the loss of rank 1 on b was not finite from step 7 on, and that of 1 other rank later: its checkpoints since then are spoilt'
    """
    found = {rank: step for (generation, rank), step in state.spoilt.items() if generation == state.generation}
    if not found:
        return ""
    first = min(found.values())
    ranks = sorted(rank for rank, step in found.items() if step == first)
    later = len(found) - len(ranks)
    machine = state.rank_machine.get(ranks[0])
    where = f" on {machine}" if machine is not None and len(ranks) == 1 else ""
    who = f"rank {ranks[0]}{where}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
    others = f", and that of {later} other rank{'s' if later > 1 else ''} later" if later else ""
    return f"the loss of {who} was not finite from step {first} on{others}: its checkpoints since then are spoilt"
