"""Copying a shard out of a training process while it goes on training.

Parameters of an optimiser and its own tensors change in its `step` only: they are copied in the background during the next forward and
backward, and a hook makes that step wait for them: the host for tensors of the processor, the device alone for those of a GPU
(minder.edge.checkpoint.staging). Everything else is copied before the next forward. Tensors count their in-place changes, so a tensor
that changed nevertheless makes the copy fail; it is never half old and half new.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import IO, Any

import torch

from minder.edge.checkpoint.shards import Piece, Shard, local_part
from minder.edge.checkpoint.staging import Buffer, Mark, Staging
from minder.edge.checkpoint.twins import crc
from minder.model.errors import CheckpointError

__all__ = ["CopyOut", "StepGate"]

_SMALL_BYTES = 4096
_WRITE_BYTES = 64 << 20


class CopyOut:
    """One shard on its way into one body (uint8, of body_bytes). `late`: storages whose tensors may be copied by `finish`. body: None where
    it is kept by another rank: then `sums` has each tensor's checksum, after `finish`. file: the one that the body maps, if it does."""

    def __init__(
        self, shard: Shard, body: torch.Tensor | None, late: frozenset[int], staging: Staging, file: IO[bytes] | None = None
    ) -> None:  # fmt: skip
        self._body, self._file = body, file
        self.sums = [0] * len(shard.pieces)
        self._staging = staging
        self._lock = threading.Lock()
        self._is_held = self._is_changed = False
        self._is_done = threading.Event()
        pairs = list(zip(shard.pieces, shard.tensors, strict=True))
        self._staged = [index for index, tensor in enumerate(shard.tensors) if staging.serves(tensor)]
        self._buffer: Buffer | None = None
        self._marks: list[Mark] = []
        self._watched: list[tuple[torch.Tensor, int]] = []
        if self._staged:
            self._stage(shard, late)
        self._waiting = []
        beside = set(self._staged)
        for index, (piece, tensor) in enumerate(pairs):
            if index in beside:
                continue
            if _is_late(tensor, late) and tensor.is_cpu and not (beside and tensor.nbytes <= _SMALL_BYTES):
                self._waiting.append((index, piece, tensor, tensor._version))
            else:
                self._put(index, piece, tensor)
        if not self._waiting:
            self._is_done.set()

    def finish(self) -> None:
        """In the background, once. Raises CheckpointError where a tensor changed meanwhile, RuntimeError for an error of the device."""
        try:
            self._put_late()
            self._collect()
        finally:
            # The gate keeps us until the optimiser's step, in whose thread the body's map would be given back: a page at a time.
            self._body = self._file = None
        if self._is_changed:
            raise CheckpointError(
                "the state changed outside of an optimiser's step while it was copied: this step is not saved; "
                'give Checkpointer("memory", overlap=False)'
            )

    def hold(self) -> None:
        """What is changed after this call is not in the copy."""
        self._is_done.wait()
        self._note_changes(is_held=True)
        for mark in self._marks:
            mark.hold_streams()

    def _put_late(self) -> None:
        try:
            for index, piece, tensor, version in self._waiting:
                self._put(index, piece, tensor)
                self._is_changed |= tensor._version != version
        finally:
            self._waiting = []
            self._is_done.set()

    def _stage(self, shard: Shard, late: frozenset[int]) -> None:
        """What may change in the next forward goes first, and the current streams wait for it."""
        self._buffer = self._staging.take(shard.pieces)
        is_late = {index: _is_late(shard.tensors[index], late) for index in self._staged}
        for wanted in (False, True):
            chosen = [index for index in self._staged if is_late[index] is wanted]
            if not chosen:
                continue
            mark = self._staging.copy([shard.tensors[index] for index in chosen], [self._buffer.parts[index] for index in chosen])
            self._marks.append(mark)
            if not wanted:
                mark.hold_streams()
        # Held until the copy is done: memory that is freed earlier is given to another tensor.
        self._watched = [(shard.tensors[index], shard.tensors[index]._version if is_late[index] else -1) for index in self._staged]

    def _collect(self) -> None:
        """From the buffer into the body, once the device is done with it."""
        if self._buffer is None:
            return
        for mark in self._marks:
            mark.wait()
        self._note_changes()
        self._watched = []
        if not self._is_changed:
            for index in self._staged:
                self._put(index, self._buffer.pieces[index], self._buffer.parts[index])
        self._staging.give(self._buffer)
        self._buffer = None

    def _put(self, index: int, piece: Piece, tensor: torch.Tensor) -> None:
        if self._body is None:
            self.sums[index] = crc(tensor)
        elif self._file is not None and _is_plain(tensor):
            _write(self._file, piece.offset, tensor)
        else:
            piece.of(self._body).copy_(tensor)

    def _note_changes(self, is_held: bool = False) -> None:
        """The host runs ahead of a GPU: what it has changed counts until an optimiser's step begins, since that is put behind the copy."""
        with self._lock:
            if not self._is_held:
                self._is_changed |= any(version not in (-1, tensor._version) for tensor, version in self._watched)
            self._is_held |= is_held


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes lie in this process's memory one after the other."""
    return bool(tensor.is_cpu and tensor.numel() and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())


def _write(file: IO[bytes], offset: int, tensor: torch.Tensor) -> None:
    """By the kernel, which takes new pages at half the price that a map has to pay for them, one fault each. Raises OSError."""
    data = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
    for begin in range(0, len(data), _WRITE_BYTES):
        part = data[begin : begin + _WRITE_BYTES]
        if os.pwrite(file.fileno(), part, offset + begin) != len(part):
            raise OSError(28, "no room for a checkpoint record")


class StepGate:
    """Puts every known optimiser's step behind the copies that are under way."""

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
            copy.hold()


def _is_late(tensor: torch.Tensor, late: frozenset[int]) -> bool:
    return tensor.untyped_storage().data_ptr() in late


def _storages(optimizer: torch.optim.Optimizer) -> set[int]:
    tensors = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    return {local_part(tensor)[0].untyped_storage().data_ptr() for tensor in tensors}
