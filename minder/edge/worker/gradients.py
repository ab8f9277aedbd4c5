"""Find the rank whose own gradient is not finite, or far above its past, before the all-reduce spreads it to every other rank.

After the sum all ranks hold the same NaN and its origin is lost; before it, each rank looks at its own flat
bucket, once: the norm that says whether all of it is finite also says how large it is. torch is loaded by the caller.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Literal

from minder.edge.worker import pulse
from minder.edge.worker.control import current
from minder.edge.worker.failures import NonFiniteGradient
from minder.edge.worker.spikes import GradientSpikes
from minder.model.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_gradient", "install_gradient_guard"]


def install_gradient_guard(model: Any, action: Literal["raise", "record"] = "raise", group: Any = None) -> None:
    """Register a communication hook on a DistributedDataParallel model: check this rank's gradient, then the default mean.

    One whose square is over 5,000 times its usual value is written there too, and the step goes on: see minder/edge/worker/spikes.py.
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


def check_gradient(
    flat_N: Any, step: int | None = None, action: str = "raise", past: GradientSpikes | None = None, part: int = 0
) -> bool:  # fmt: skip
    """Whether this rank's own gradient (any tensor, before it is reduced) is finite; for loops that reduce it themselves.

    If not, it is reported to the heartbeat page and the launcher, and action "raise" raises NonFiniteGradient. step: the one under way
    (default: the one after the last heartbeat, or after the step that `Checkpointer` loaded). past: one object for the whole loop, with
    which spikes are reported as well; part: which of several tensors of a step this is. On an accelerator this waits for the gradient.
    """
    norm = _norm(flat_N)
    if math.isfinite(norm):
        if past is not None:
            step = pulse.next_step() if step is None else step
            usual = past.look((part, flat_N.numel()), norm * norm, step)
            if usual is not None:
                pulse.beat_spike(step, norm * norm, usual)
        return True
    step = pulse.next_step() if step is None else step
    message = f"this rank's own gradient is not finite before the all-reduce of step {step}"
    pulse.beat_nonfinite(step)
    control = current()
    reported = control is not None and control.send("nonfinite", what="gradient", message=message, step=step, time_s=time.time())
    if action == "raise":
        error = NonFiniteGradient(message)
        error.reported = reported
        raise error
    return False


def _norm(flat_N: Any) -> float:
    """The 2-norm: one pass without a temporary, as cheap as a sum. It is finite if every element is, unless finite ones overflow.

    Half precision adds up in single: its own sum of squares overflows at a norm of 256.
    """
    import torch

    norm = float(torch.linalg.vector_norm(flat_N, dtype=torch.float32 if flat_N.dtype is torch.float16 else None))
    if math.isfinite(norm) or not bool(torch.isfinite(flat_N).all()):
        return norm
    return float(torch.linalg.vector_norm(flat_N, dtype=torch.float64))


def _build_hook(action: str) -> Callable[[Any, Any], Any]:
    import torch
    import torch.distributed as dist

    past = GradientSpikes()

    def look_then_reduce(group: Any, bucket: Any) -> Any:
        flat_N = bucket.buffer()
        check_gradient(flat_N, action=action, past=past, part=bucket.index())
        members = group if group is not None else dist.group.WORLD
        flat_N.mul_(1.0 / members.size())
        work = dist.all_reduce(flat_N, group=members, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    # DDP looks at the annotations of a hook
    look_then_reduce.__annotations__ = {"bucket": torch.distributed.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    return look_then_reduce
