"""When a generation has started of which no step is read."""

from __future__ import annotations

from minder.act.controller.state import JobState
from minder.diagnose.verdicts.progress import Progress

__all__ = ["started_without_steps"]

_SETTLED_S = 90.0  # so long a job whose steps are read may take to its first one


def started_without_steps(state: JobState, progress: Progress, now_s: float) -> str:
    """One line where the generation is at work and has told no step, "" where it has, or still starts."""
    settled = now_s - state.generation_start_s >= _SETTLED_S and progress.activity.has_begun and not progress.steps_in_generation
    if state.phase != "starting" or state.first_step_seen or not settled or not state.rank_machine:
        return ""
    return f"generation {state.generation} is at work; no step of it is read"
