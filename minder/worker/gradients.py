"""Find the rank whose own gradient is not finite, before the all-reduce spreads it to every other rank.

After the sum all ranks hold the same NaN and nobody can tell where it came from; before it, each rank looks at its own flat
bucket. torch is loaded by whoever calls this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from minder.errors import BadInputError
from minder.worker import pulse
from minder.worker.failures import NonFiniteGradient

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["install_gradient_guard"]


def install_gradient_guard(model: Any, action: Literal["raise", "record"] = "raise", group: Any = None) -> None:
    """Register a communication hook on a DistributedDataParallel model: check this rank's gradient, then the default mean.

    A gradient that is not finite is written into the heartbeat (flag NONFINITE); with action "raise", NonFiniteGradient is
    raised and nothing is sent, so that no rank sees the poisoned sum. The mean is computed as without the hook: divide by the
    world size, then sum. `group` is the process group given to DistributedDataParallel, if any. Raises BadInputError.
    """
    if action not in ("raise", "record"):
        raise BadInputError(f"action is {action!r}: raise or record")
    if not hasattr(model, "register_comm_hook"):
        raise BadInputError(f"install_gradient_guard needs a DistributedDataParallel model, not {type(model).__name__}")
    model.register_comm_hook(group, _build_hook(action))


def _build_hook(action: str) -> Callable[[Any, Any], Any]:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def look_then_reduce(group: Any, bucket: Any) -> Any:
        # a sum is one pass without a temporary; it is finite if all are, unless finite values overflow: then look at each
        flat_N = bucket.buffer()
        if not bool(torch.isfinite(flat_N.sum())) and not bool(torch.isfinite(flat_N).all()):
            step = pulse.last_step() + 1
            pulse.beat_nonfinite(step)
            if action == "raise":
                raise NonFiniteGradient(f"this rank's own gradient is not finite before the all-reduce of step {step}")
        return allreduce_hook(group, bucket)

    # DDP looks at the annotations of a hook
    look_then_reduce.__annotations__ = {"bucket": torch.distributed.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    return look_then_reduce
