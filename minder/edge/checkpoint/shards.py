"""One rank's state taken apart: plain values, and tensors whose bytes follow one another in a body. And put together again, in place.

A DTensor is kept by its local part. Values are packed by torch.save and read with weights_only, so that a record that came from another
machine runs no code.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from minder.model.errors import CheckpointError

__all__ = ["Piece", "Shard", "copy_all", "idle_cores", "local_part", "put_together", "take_apart", "unpack_values"]

_TENSOR = "\0tensor"  # the only key of what stands for a tensor in the values
_ALIGN_BYTES = 64
_PART_BYTES = 16 << 20  # of a large tensor, for one of several threads


_Copy: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # from, to


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor's place in the body. cut: which part of a DTensor it is; "" for a whole tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    cut: str

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def of(self, body: torch.Tensor) -> torch.Tensor:
        """The tensor within a body (uint8); it shares its memory."""
        return body[self.offset : self.offset + self.size_bytes].view(self.dtype).view(self.shape)


@dataclass(frozen=True, slots=True)
class Shard:
    """values: the state with a number in place of each tensor. tensors: the local parts, in the order of pieces."""

    values: Any
    pieces: tuple[Piece, ...]
    tensors: tuple[torch.Tensor, ...]

    @property
    def body_bytes(self) -> int:
        return self.pieces[-1].offset + self.pieces[-1].size_bytes if self.pieces else 0

    @property
    def layout(self) -> str:
        """Equal for bodies that are cut alike."""
        text = repr([(str(piece.dtype), piece.shape, piece.offset, piece.cut) for piece in self.pieces])
        return hashlib.sha256(text.encode()).hexdigest()

    def pack_values(self, random: torch.Tensor) -> bytes:
        """With the pieces' places and the random generators' state. Raises CheckpointError for a value that has no plain form."""
        pieces = [(piece.dtype, piece.shape, piece.offset, piece.cut) for piece in self.pieces]
        packed = io.BytesIO()
        try:
            torch.save({"values": self.values, "pieces": pieces, "random": random}, packed)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise CheckpointError(f"the state holds what is no plain value: {error}; turn it into numbers, texts or tensors") from error
        return packed.getvalue()


_Filling: TypeAlias = tuple[tuple[Piece, ...], torch.Tensor, list[_Copy]]  # pieces, their body, and what is to be copied out of it


def take_apart(state: Mapping[str, Any]) -> Shard:
    """The tensors are the live ones: copy them before the next step changes them."""
    tensors: list[torch.Tensor] = []
    pieces: list[Piece] = []
    end = 0

    def note(tensor: torch.Tensor) -> dict[str, int]:
        nonlocal end
        local, cut = local_part(tensor)
        piece = Piece(local.dtype, tuple(local.shape), -(-end // _ALIGN_BYTES) * _ALIGN_BYTES, cut)
        pieces.append(piece)
        tensors.append(local)
        end = piece.offset + piece.size_bytes
        return {_TENSOR: len(pieces) - 1}

    plain = {key: value.state_dict() if hasattr(value, "state_dict") else value for key, value in state.items()}
    return Shard(_without_tensors(plain, note), tuple(pieces), tuple(tensors))


def unpack_values(data: bytes) -> tuple[Any, tuple[Piece, ...], torch.Tensor]:
    """Values, pieces, and the random generators' state. Raises CheckpointError."""
    try:
        found = torch.load(io.BytesIO(data), weights_only=True)
        return found["values"], tuple(Piece(*piece) for piece in found["pieces"]), found["random"]
    except (RuntimeError, ValueError, TypeError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"a record's plain values cannot be read: {_first_line(error)}; keep numbers, texts and tensors in the state"
        ) from error


def put_together(values: Any, pieces: tuple[Piece, ...], body: torch.Tensor, state: dict[str, Any]) -> None:
    """Load into `state`, in place. Raises CheckpointError where the record is of another model or optimiser, or cut otherwise, before any
    tensor is changed."""
    copies: list[_Copy] = []
    found = {}
    for key, target in state.items():
        if key not in values:
            raise CheckpointError(f'the checkpoint does not fit: it has no "{key}"')
        current = target.state_dict() if hasattr(target, "load_state_dict") else target
        found[key] = _filled(values[key], current, (pieces, body, copies), key)
    copy_all(copies)
    for key, target in state.items():
        filled = found[key]
        if not hasattr(target, "load_state_dict"):
            state[key] = filled
            continue
        try:
            target.load_state_dict(filled)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"the checkpoint does not fit this model or optimiser: {key}: {_first_line(error)}") from error


def copy_all(copies: Sequence[_Copy]) -> None:
    """Each (from, to). All ranks wait for a recovery, so a large state takes the cores that this machine's ranks leave idle."""
    parts = [part for source, target in copies for part in _parts(source, target)]
    cores = min(idle_cores(), len(parts) - len(copies) + 1)
    if cores == 1:
        for part in parts:
            _copy(part)
        return
    with ThreadPoolExecutor(cores, "minder-load") as pool:
        list(pool.map(_copy, parts))


def idle_cores() -> int:
    """Cores for each rank of this machine, four at most."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return max(1, min(4, len(os.sched_getaffinity(0)) // max(1, ranks)))


def local_part(tensor: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Of a DTensor its own part and which part that is; any other tensor itself."""
    if not hasattr(tensor, "to_local"):
        return tensor.detach(), ""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tensor.to_local().detach(), f"{tuple(tensor.shape)} from {tuple(offset)}"


def _without_tensors(value: Any, note: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return note(value)
    if isinstance(value, Mapping):
        return {key: _without_tensors(item, note) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(item, note) for item in value)
    return value


def _parts(source: torch.Tensor, target: torch.Tensor) -> list[_Copy]:
    """A large tensor in parts."""
    if not (target.is_cpu and target.is_contiguous()) or target.nbytes < 2 * _PART_BYTES:
        return [(source, target)]
    step = _PART_BYTES // target.element_size()
    return list(zip(source.reshape(-1).split(step), target.view(-1).split(step), strict=True))


def _copy(copy: _Copy) -> None:
    with torch.no_grad():  # counts for the thread that says it
        copy[1].copy_(copy[0])


def _filled(saved: Any, current: Any, into: _Filling, path: str) -> Any:
    """What was saved. Tensors that are there already will be written into, so that they keep their place and their owner."""
    pieces, body, copies = into
    if isinstance(saved, dict) and saved.keys() == {_TENSOR}:
        return _fill(pieces[saved[_TENSOR]], current, body, copies, path)
    if isinstance(saved, dict):
        known = current if isinstance(current, Mapping) else {}
        return {key: _filled(item, known.get(key), into, f"{path}.{key}") for key, item in saved.items()}
    if type(saved) in (list, tuple):
        known_items = current if isinstance(current, (list, tuple)) and len(current) == len(saved) else [None] * len(saved)
        return type(saved)(
            _filled(item, known, into, f"{path}[{index}]") for index, (item, known) in enumerate(zip(saved, known_items, strict=True))
        )
    return saved


def _fill(piece: Piece, current: Any, body: torch.Tensor, copies: list[_Copy], path: str) -> torch.Tensor:
    found = piece.of(body)
    if not isinstance(current, torch.Tensor):
        if piece.cut:
            raise CheckpointError(f"the checkpoint does not fit: {path} was part {piece.cut} of a sharded tensor, and is none here")
        return found.clone()
    local, cut = local_part(current)
    if (tuple(local.shape), local.dtype, cut) != (piece.shape, piece.dtype, piece.cut):
        was = f"{piece.dtype} {piece.shape} {piece.cut}".strip()
        raise CheckpointError(f"the checkpoint does not fit: {path} was {was}, here it is {local.dtype} {tuple(local.shape)} {cut}".strip())
    copies.append((found, local))
    return current


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
