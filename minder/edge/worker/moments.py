"""Adam's moments, kept from a spike: elements of the gradient that are far above their past are clipped, and the moments begin anew.

One gradient element a thousand times its size stays in the moments for hundreds of steps. SPAM (arXiv 2501.06842, ICLR 2025) clips it by
its second moment, sets both moments to zero every so often, and warms the step size up after that. Two things differ from its code:
the optimiser's own step count is reset too, since its correction for the beginning would else make the first updates after a reset larger
than the learning rate; and an element whose second moment is zero is not clipped, since it would never move again. It changes what is
learned: nothing of minder uses it unless a script asks for it. torch is loaded by the caller.
"""

from __future__ import annotations

import math
from typing import Any

from minder.model.errors import BadInputError

__all__ = ["MomentReset"]

_FIRST_DECAY = 0.99


class MomentReset:
    """On an optimiser of torch's Adam family (Adam, AdamW): from now on its `step` clips, resets and warms up.

        moments = MomentReset(optimizer)
        checkpoints.save(step, {"model": model, "optimizer": optimizer, "moments": moments})

    every: steps between two resets, 0: only by `reset`. warm_up: steps until the full step size after a reset. theta: an element is a spike
    if its square is over so many times its usual one. settle: so many steps after the start, or after a reset, nothing is clipped, as the
    second moment means nothing yet. Raises BadInputError.
    """

    def __init__(self, optimizer: Any, *, every: int = 500, warm_up: int = 150, theta: float = 5_000.0, settle: int = 20) -> None:
        if every < 0 or warm_up < 0 or settle < 1 or not theta > 1.0:
            raise BadInputError("MomentReset needs every and warm_up of 0 or more, settle of 1 or more, theta above 1")
        if not all("betas" in group for group in optimizer.param_groups):
            raise BadInputError(f"MomentReset needs an optimiser with Adam's moments, not {type(optimizer).__name__}")
        self._optimizer, self._every, self._warm_up, self._theta, self._settle = optimizer, every, warm_up, theta, settle
        self._since = 0  # steps since the start or the last reset
        self._was_reset = False
        self._rates: list[Any] = []
        self.clipped = 0  # elements so far
        self._hooks = [optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after)]

    def close(self) -> None:
        """The optimiser is as it was."""
        for hook in self._hooks:
            hook.remove()

    def reset(self) -> None:
        """Both moments of every parameter are zero, and its steps are counted anew."""
        for state in self._optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
                if name in state:
                    state[name].zero_()
            if "step" in state:
                state["step"] = state["step"] * 0
        self._since, self._was_reset = 0, True

    def state_dict(self) -> dict[str, Any]:
        return {"since": self._since, "was_reset": self._was_reset, "clipped": self.clipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._since, self._was_reset, self.clipped = int(state["since"]), bool(state["was_reset"]), int(state["clipped"])

    def scale(self) -> float:
        """Of the next step's size: 0.01 right after a reset, 1 once it is warm."""
        if not self._was_reset or self._since >= self._warm_up:
            return 1.0
        return 1.0 - _FIRST_DECAY * 0.5 * (1.0 + math.cos(math.pi * self._since / self._warm_up))

    def _before(self, optimizer: Any, *unused: Any) -> None:
        if self._every and self._since >= self._every:
            self.reset()
        if self._since >= self._settle:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._clip(parameter, optimizer.state.get(parameter), group["betas"][1])
        scale, self._rates = self.scale(), [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * scale

    def _after(self, optimizer: Any, *unused: Any) -> None:
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        self._since += 1

    def _clip(self, parameter: Any, state: Any, beta: float) -> None:
        """g becomes sign(g) sqrt(theta v) where g squared is over theta v, v corrected for its beginning."""
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse or not state or "exp_avg_sq" not in state:
            return
        bound = (state["exp_avg_sq"] * (self._theta / (1.0 - beta**self._since))).sqrt().to(gradient.dtype)
        is_spike = (gradient.abs() > bound) & (bound > 0)
        self.clipped += int(is_spike.sum())
        gradient.copy_(gradient.where(~is_spike, bound.copysign(gradient)))
