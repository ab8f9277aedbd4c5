"""Find the rank whose own gradient is not finite, before the all-reduce spreads it to every other rank.

After the sum all ranks hold the same NaN and nobody can tell where it came from; before it, each rank looks at its own flat
bucket. torch is loaded by whoever calls this.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from minder.errors import BadInputError
from minder.worker import pulse
from minder.worker.control import current
from minder.worker.failures import NonFiniteGradient

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_gradient", "install_gradient_guard"]


def install_gradient_guard(model: Any, action: Literal["raise", "record"] = "raise", group: Any = None) -> None:
    """Register a communication hook on a DistributedDataParallel model: check this rank's gradient, then the default mean.

    A gradient that is not finite is written into the heartbeat (flag NONFINITE); with action "raise", NonFiniteGradient is
    raised and nothing is sent, so that no rank sees the poisoned sum. The mean is computed as without the hook, to the last bit:
    DDP multiplies by the reciprocal of the world size, then sums (torch's own allreduce_hook divides, which rounds otherwise for
    world sizes that are no power of two). `group` is the process group given to DistributedDataParallel, if any. Raises BadInputError.
    """
    if action not in ("raise", "record"):
        raise BadInputError(f"action is {action!r}: raise or record")
    if not hasattr(model, "register_comm_hook"):
        raise BadInputError(f"install_gradient_guard needs a DistributedDataParallel model, not {type(model).__name__}")
    model.register_comm_hook(group, _build_hook(action))


def check_gradient(flat_N: Any, step: int | None = None, action: str = "raise") -> bool:
    """Whether this rank's own gradient (any tensor, before it is reduced) is finite; for loops that reduce it themselves.

    If not, the heartbeat page and the launcher are told, and action "raise" raises NonFiniteGradient. step: the one under way
    (default: the last heartbeat's, plus one). On an accelerator this waits for the gradient.
    """
    import torch

    # a sum is one pass without a temporary; it is finite if all are, unless finite values overflow: then look at each
    if bool(torch.isfinite(flat_N.sum())) or bool(torch.isfinite(flat_N).all()):
        return True
    step = pulse.last_step() + 1 if step is None else step
    message = f"this rank's own gradient is not finite before the all-reduce of step {step}"
    pulse.beat_nonfinite(step)
    control = current()
    told = control is not None and control.send("nonfinite", what="gradient", message=message, step=step, time_s=time.time())
    if action == "raise":
        error = NonFiniteGradient(message)
        error.told = told
        raise error
    return False


def _build_hook(action: str) -> Callable[[Any, Any], Any]:
    import torch
    import torch.distributed as dist

    def look_then_reduce(group: Any, bucket: Any) -> Any:
        flat_N = bucket.buffer()
        check_gradient(flat_N, action=action)
        members = group if group is not None else dist.group.WORLD
        flat_N.mul_(1.0 / members.size())
        work = dist.all_reduce(flat_N, group=members, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    # DDP looks at the annotations of a hook
    look_then_reduce.__annotations__ = {"bucket": torch.distributed.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    return look_then_reduce
