"""What is known of one machine's agent and launcher, and of the workers that they show."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minder.model.evidence import Signal
from minder.model.observation import WorkerView
from minder.wire.allowance import MOST_SIGNALS, Allowance
from minder.wire.codec import from_json

__all__ = ["Contact", "as_worker", "less_ended", "shift_worker"]


@dataclass(slots=True)
class Contact:
    """What we know of one machine's two processes."""

    agent_heard_s: float | None = None  # monotonic clock
    launcher_heard_s: float | None = None
    started_s: dict[str, float] = field(default_factory=dict)  # agent or launcher to the start of its process
    agent_restarted_s: float | None = None
    workers: tuple[WorkerView, ...] = ()
    ended: dict[int, float] = field(default_factory=dict)  # pids whose exit was reported since the launcher was last asked for its state
    agent_name: str = ""  # the machine that the agent itself says it watches
    jobs: tuple[str, ...] = ()  # all that run on the machine, as its agent sees them
    launcher: Mapping[str, Any] = field(default_factory=dict)
    offset_s: float = 0.0
    offset_error_s: float = float("inf")
    signals: deque[Signal] = field(default_factory=lambda: deque(maxlen=MOST_SIGNALS))  # not taken yet
    allowance: Allowance = field(default_factory=Allowance)
    refused: dict[str, str] = field(default_factory=dict)  # agent or launcher to what it said


def less_ended(workers: Iterable[WorkerView], ended: Mapping[int, float]) -> tuple[WorkerView, ...]:
    """A worker whose exit was reported runs no more, whatever an older look at it says."""
    return tuple(replace(worker, state="exited") if worker.pid in ended else worker for worker in workers)


def as_worker(row: Mapping[str, Any]) -> WorkerView:
    """A process that an agent sees, in the words that a launcher uses. Its generation is the job's own count, -1 if it has none."""
    slot, generation = row.get("slot"), row.get("generation")
    fields = {"slot": -1 if slot is None else slot, "generation": -1 if generation is None else generation, "state": "running"}
    return from_json(WorkerView, {**row, **fields})


def shift_worker(worker: WorkerView, offset_s: float) -> WorkerView:
    def shift(time_s: float | None) -> float | None:
        return None if time_s is None else time_s - offset_s

    return replace(
        worker,
        step_time_s=shift(worker.step_time_s),
        alive_time_s=shift(worker.alive_time_s),
        first_step_time_s=shift(worker.first_step_time_s),
    )
