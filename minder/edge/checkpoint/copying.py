"""Copying a shard out of a training process while it goes on training.

Parameters of an optimiser and its own tensors change in its `step` only: they are copied in the background during the next forward and
backward, and a hook makes that step wait for them. Everything else is copied at once. Tensors count their in-place changes, so a tensor
that changed nevertheless makes the copy fail; it is never half old and half new.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from minder.edge.checkpoint.shards import Shard, local_part
from minder.model.errors import CheckpointError

__all__ = ["CopyOut", "StepGate"]


class CopyOut:
    """One shard on its way into one body (uint8, of body_bytes). `late`: storages whose tensors may be copied by `finish`."""

    def __init__(self, shard: Shard, body: torch.Tensor, late: frozenset[int]) -> None:
        self._body = body
        self._waiting = []
        self._is_done = threading.Event()
        for piece, tensor in zip(shard.pieces, shard.tensors, strict=True):
            if tensor.is_cpu and tensor.untyped_storage().data_ptr() in late:
                self._waiting.append((piece, tensor, tensor._version))
            else:
                piece.of(body).copy_(tensor)
        if not self._waiting:
            self._is_done.set()

    def finish(self) -> None:
        """In the background. Raises CheckpointError where a tensor changed meanwhile."""
        try:
            for piece, tensor, version in self._waiting:
                piece.of(self._body).copy_(tensor)
                if tensor._version != version:
                    raise CheckpointError(
                        "the state changed outside of an optimiser's step while it was copied: this step is not saved; "
                        'give Checkpointer("memory", overlap=False)'
                    )
        finally:
            self._waiting = []
            self._is_done.set()

    def wait(self) -> None:
        self._is_done.wait()


class StepGate:
    """Holds every known optimiser's step up until the copies that are under way are done."""

    def __init__(self) -> None:
        self._known: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._under_way: list[CopyOut] = []

    def watch(self, values: Iterable[Any]) -> frozenset[int]:
        """Hook the optimisers among these values; the storages (their addresses) that change in their steps only."""
        late: set[int] = set()
        for value in values:
            if isinstance(value, torch.optim.Optimizer):
                if value not in self._known:
                    value.register_step_pre_hook(self._before_step)
                    self._known.add(value)
                late |= _storages(value)
        return frozenset(late)

    def hold_for(self, copy: CopyOut) -> None:
        self._under_way.append(copy)

    def _before_step(self, *unused: Any) -> None:
        under_way, self._under_way = self._under_way, []
        for copy in under_way:
            copy.wait()


def _storages(optimizer: torch.optim.Optimizer) -> set[int]:
    tensors = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    return {local_part(tensor)[0].untyped_storage().data_ptr() for tensor in tensors}
