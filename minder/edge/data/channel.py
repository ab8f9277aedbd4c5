"""How a batch comes from one process to another: whole, or not at all.

A batch is written into memory of its own (memfd), then a packet with the file's descriptor is sent. A process that is killed before the
packet leaves has sent nothing; one that is killed afterwards has sent all of it, since the memory lasts as long as a descriptor of it.
No folder in /dev/shm, no name and no helper process has to be cleaned up. The receiver maps the memory: tensors and arrays are not copied.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import pickle
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Channel", "Packet", "channel_pair"]

_HEAD = struct.Struct("<BQdQQ")  # kind, number, seconds, where the pickle begins, its length
_ALIGN_BYTES = 64
_PLACES = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Packet:
    """kind, number: the sender's. seconds: what the sender needed for it."""

    kind: int
    number: int
    seconds: float
    value: Any


class Channel:
    """One end. Raises OSError where the other end is gone and the system says so."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: int, number: int, seconds: float, value: Any) -> None:
        """Raises what pickle raises for a value that has no form as bytes; nothing is sent then."""
        memory, tail, length = _write(value)
        try:
            socket.send_fds(self._socket, [_HEAD.pack(kind, number, seconds, tail, length)], [memory])
        finally:
            os.close(memory)

    def receive(self) -> Packet | None:
        """Waits. None where the other end has closed."""
        head, memories, _, _ = socket.recv_fds(self._socket, _HEAD.size, 1)
        if len(head) < _HEAD.size or not memories:
            return None
        kind, number, seconds, tail, length = _HEAD.unpack(head)
        try:
            value = _read(memories[0], tail, length)
        finally:
            os.close(memories[0])
        return Packet(kind, number, seconds, value)

    def grant(self) -> None:
        """The other end may send one more. In silence where it is gone: who receives from it finds out."""
        try:
            self._socket.send(b"+")
        except OSError:
            pass

    def await_grant(self) -> bool:
        """Waits for one. False where the other end has closed."""
        return self._socket.recv(1) == b"+"

    def is_ready(self, timeout_s: float, *others: int) -> bool:
        """Whether something has come, after a wait of at most so long; the wait ends when one of the other descriptors has something."""
        poll = select.poll()
        for descriptor in (self.fileno(), *others):
            poll.register(descriptor, select.POLLIN)
        return any(descriptor == self.fileno() for descriptor, _ in poll.poll(timeout_s * 1000.0))

    def close(self) -> None:
        self._socket.close()


def channel_pair() -> tuple[Channel, Channel]:
    """Both ends, in this process."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(left), Channel(right)


class _Pickler(pickle.Pickler):
    """Plain tensors of the processor's memory go beside the pickle, as numpy's arrays do by themselves."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.requires_grad or value.is_complex() or value.numel() == 0:
            return NotImplemented
        if value.device.type != "cpu" or value.layout != torch.strided or value.is_quantized:
            return NotImplemented
        flat = value.detach().contiguous()
        return _tensor, (pickle.PickleBuffer(_Bytes(flat).view()), flat.dtype, tuple(flat.shape))


class _Bytes:
    """The bytes of a tensor, which they keep alive: torch hands out no buffer without numpy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        kind = ctypes.c_ubyte * (tensor.numel() * tensor.element_size())
        self._array = kind.from_address(tensor.data_ptr())
        self._array.tensor = tensor

    def view(self) -> memoryview:
        return memoryview(self._array).cast("B")


def _tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(data, dtype=dtype).view(shape)


def _write(value: Any) -> tuple[int, int, int]:
    """A new file in memory with the buffers, their places and the pickle: its descriptor, where the places begin, and their length."""
    buffers: list[pickle.PickleBuffer] = []
    packed = io.BytesIO()
    _Pickler(packed, protocol=5, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    places, end = [], 0
    for view in views:
        places += [end, end + view.nbytes]
        end = -(-(end + view.nbytes) // _ALIGN_BYTES) * _ALIGN_BYTES
    rest = b"".join(map(_PLACES.pack, (len(places), *places))) + packed.getbuffer()
    memory = os.memfd_create("minder-batch", os.MFD_CLOEXEC)
    try:
        for view, at in zip((*views, memoryview(rest)), (*places[::2], end), strict=True):
            _write_at(memory, view, at)
    except OSError:
        os.close(memory)
        raise
    return memory, end, len(rest)


def _write_at(memory: int, view: memoryview, at: int) -> None:
    while view.nbytes:
        written = os.pwrite(memory, view, at)
        view, at = view[written:], at + written


def _read(memory: int, tail: int, length: int) -> Any:
    mapped = memoryview(mmap.mmap(memory, tail + length, access=mmap.ACCESS_COPY))
    count = _PLACES.unpack_from(mapped, tail)[0]
    places: Sequence[int] = [_PLACES.unpack_from(mapped, tail + 8 * (1 + index))[0] for index in range(count)]
    buffers = [mapped[begin:end] for begin, end in zip(places[::2], places[1::2], strict=True)]
    return pickle.loads(mapped[tail + 8 * (1 + count) :], buffers=buffers)
