"""minder: names the faulty machine of a distributed training job, takes it away, and gets the job going again.

Only light names live here: this module is imported by other people's training processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Checkpointer", "DataLoader", "__version__", "heartbeat", "keep_dumps", "phase", "replay", "run", "skipped_batches", "trace_step",
]  # fmt: skip

if TYPE_CHECKING:
    from minder.edge.checkpoint.checkpoint import Checkpointer
    from minder.edge.data.loader import DataLoader
    from minder.edge.worker import heartbeat, keep_dumps, phase, replay, run, skipped_batches, trace_step


def __getattr__(name: str) -> Any:
    if name in ("heartbeat", "keep_dumps", "phase", "replay", "run", "skipped_batches", "trace_step"):
        from minder.edge import worker

        globals()[name] = found = getattr(worker, name)  # found at once from now on: a training loop asks at every step
        return found
    if name == "Checkpointer":
        from minder.edge.checkpoint.checkpoint import Checkpointer

        return Checkpointer
    if name == "DataLoader":
        from minder.edge.data.loader import DataLoader

        return DataLoader
    raise AttributeError(f"module 'minder' has no attribute {name!r}")
