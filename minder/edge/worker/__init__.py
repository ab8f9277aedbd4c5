"""What runs inside a training process: heartbeat, phases, the standby barrier, in-place restart, the gradient guard.

Everything here loads on first use: a training script that only beats never loads the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Interrupted",
    "MomentReset",
    "NonFiniteGradient",
    "check_gradient",
    "fingerprint",
    "heartbeat",
    "install_gradient_guard",
    "is_victim",
    "keep_dumps",
    "phase",
    "replay",
    "run",
    "skipped_batches",
    "trace_step",
]

if TYPE_CHECKING:
    from minder.edge.worker.barrier import run
    from minder.edge.worker.dumps import keep_dumps
    from minder.edge.worker.failures import Interrupted, NonFiniteGradient, fingerprint, is_victim
    from minder.edge.worker.gradients import check_gradient, install_gradient_guard
    from minder.edge.worker.moments import MomentReset
    from minder.edge.worker.pulse import heartbeat, phase
    from minder.edge.worker.replay_plan import replay
    from minder.edge.worker.skips import skipped_batches
    from minder.edge.worker.tracer import trace_step

_HOME = {
    "heartbeat": "pulse",
    "phase": "pulse",
    "replay": "replay_plan",
    "run": "barrier",
    "Interrupted": "failures",
    "MomentReset": "moments",
    "NonFiniteGradient": "failures",
    "fingerprint": "failures",
    "is_victim": "failures",
    "skipped_batches": "skips",
    "trace_step": "tracer",
    "keep_dumps": "dumps",
    "check_gradient": "gradients",
    "install_gradient_guard": "gradients",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'minder.edge.worker' has no attribute {name!r}")
    found = getattr(import_module(f"minder.edge.worker.{home}"), name)
    globals()[name] = found
    return found
