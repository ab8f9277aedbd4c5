"""A machine that is faulty while the reference model is replayed: one bit of one product flips, a value is NaN, or the process dies."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch

from minder.edge.probes.replay_model import RankTask, ReplayModel

__all__ = ["Fault", "FaultyModel", "flip_one_bit"]

_FLIPPED_BIT = 20  # of a float32: an eighth of its value


@dataclass(frozen=True, slots=True)
class Fault:
    """In run r, at step steps[r] (counted from 1; 0: not in that run), the rank flips one bit of one product, computes NaN, or dies."""

    kind: str
    steps: tuple[int, ...]


class FaultyModel(ReplayModel):
    """fault: None of a healthy machine."""

    def __init__(self, fault: Fault | None, task: RankTask) -> None:
        super().__init__(task)
        self._fault, self._bad_step = fault, 0

    def begin(self, run: int) -> None:
        super().begin(run)
        self._bad_step = self._fault.steps[run] if self._fault and run < len(self._fault.steps) else 0

    def product(self, left: torch.Tensor, right: torch.Tensor, step: int) -> torch.Tensor:
        """What a faulty machine makes of a right product."""
        right_NC = super().product(left, right, step)
        if self._fault is None or step != self._bad_step:
            return right_NC
        if self._fault.kind == "crash":
            os._exit(139)
        changed = right_NC.detach().clone()
        if self._fault.kind == "nan":
            changed[0, 0] = math.nan
        else:
            flip_one_bit(changed)
        return right_NC + (changed - right_NC.detach())


def flip_one_bit(tensor: torch.Tensor) -> None:
    """Of its first value, in place."""
    tensor.view(torch.int32).view(-1)[0] ^= 1 << _FLIPPED_BIT
