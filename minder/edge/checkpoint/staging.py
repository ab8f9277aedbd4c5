"""From a GPU into page-locked memory, on a stream of its own, while training goes on.

Why a stream and an event, and no copy on the device first: the copy engine reads beside the kernels of the next forward and backward, which
only read what an optimiser owns, and no GPU memory is taken. What writes (an optimiser's step) is put behind the copy on the device; the
host never waits.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from minder.edge.checkpoint.shards import Piece

__all__ = ["Buffer", "Mark", "Staging"]

_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for every device of this process


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Buffer:
    """Memory for one shard's body (uint8), and in it the place of each piece."""

    memory: torch.Tensor
    pieces: tuple[Piece, ...]
    parts: tuple[torch.Tensor, ...]


class Mark:
    """A point in the side streams, one event for each device."""

    def __init__(self, events: Sequence[tuple[torch.device, Any]]) -> None:
        self._events = events

    def hold_streams(self) -> None:
        """What is put into the current streams from now on runs when the copy is done; the caller does not wait."""
        for device, event in self._events:
            torch.cuda.current_stream(device).wait_event(event)

    def wait(self) -> None:
        """Until the copy is done. Raises RuntimeError for an error of the device."""
        for _, event in self._events:
            event.synchronize()


class Staging:
    """Page-locked buffers, one for each save in flight. They are kept: to lock memory takes about as long as to fill it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Buffer] = []
        self._streams: dict[torch.device, Any] = {}

    def serves(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.is_cuda)

    def take(self, pieces: tuple[Piece, ...]) -> Buffer:
        """Raises RuntimeError where memory cannot be had."""
        with self._lock:
            while self._free:
                buffer = self._free.pop()
                if buffer.pieces == pieces:
                    return buffer
        memory = torch.zeros(pieces[-1].offset + pieces[-1].size_bytes, dtype=torch.uint8)
        buffer = Buffer(memory, pieces, tuple(piece.of(memory) for piece in pieces))
        self._lock_memory(buffer)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Nothing may write into it any more."""
        with self._lock:
            self._free.append(buffer)

    def copy(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> Mark:
        """Put the copies behind what the current streams do now."""
        events = []
        for device in sorted({tensor.device for tensor in sources}, key=str):
            stream = self._streams.get(device) or self._streams.setdefault(device, torch.cuda.Stream(device))
            stream.wait_stream(torch.cuda.current_stream(device))
            chosen = [index for index, tensor in enumerate(sources) if tensor.device == device]
            with torch.no_grad(), torch.cuda.stream(stream):
                torch._foreach_copy_([targets[index] for index in chosen], [sources[index] for index in chosen], non_blocking=True)
            event = torch.cuda.Event(blocking=True)  # one that does not spin: a core of the machine is the job's
            event.record(stream)
            events.append((device, event))
        return Mark(events)

    def _lock_memory(self, buffer: Buffer) -> None:
        """In place: torch's own allocator of page-locked memory rounds up to a power of two. Unlocked, a copy is only slower."""
        address, size_bytes = buffer.memory.data_ptr(), buffer.memory.nbytes
        if size_bytes and int(torch.cuda.cudart().cudaHostRegister(address, size_bytes, _PORTABLE)) == 0:
            weakref.finalize(buffer, _unlock, address).atexit = False


def _unlock(address: int) -> None:
    torch.cuda.cudart().cudaHostUnregister(address)
