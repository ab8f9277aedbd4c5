"""What a script says of one rank's own loss and gradient, before all ranks mix theirs: is it finite, and how far above its past. No torch.

For loops that have these numbers anyway. `install_gradient_guard` finds the same without them.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from minder.edge.worker.spikes import GradientSpikes

__all__ = ["OwnNumbers"]

_WHOLE = (-1, 0)  # the part that a norm of all parameters is


class OwnNumbers:
    """One process's. Raises ValueError, TypeError for what is no number."""

    def __init__(self) -> None:
        self._past = GradientSpikes()

    def look(self, step: int, loss: Any, grad_norm: Any) -> Literal["nonfinite"] | tuple[float, float] | None:
        """loss, grad_norm: this rank's at `step`, None where not given. "nonfinite", or of a spike (squared norm, its usual value)."""
        if any(value is not None and not math.isfinite(float(value)) for value in (loss, grad_norm)):
            return "nonfinite"
        if grad_norm is None:
            return None
        squared = float(grad_norm) ** 2
        usual = self._past.look(_WHOLE, squared, step)
        return None if usual is None else (squared, usual)
