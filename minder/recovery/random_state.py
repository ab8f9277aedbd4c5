"""The random generators of one process as one tensor of fixed length, so that a checkpoint can hold one per rank."""

from __future__ import annotations

import random
import struct
import sys

import torch

_TORCH = 5056  # bytes of torch's CPU generator
_PYTHON = struct.Struct("<625I?d")  # words and position, whether a spare normal is stored, that one
_NUMPY = struct.Struct("<?624Iiid")  # present, words, position, whether a spare normal is stored, that one
LENGTH = _TORCH + _PYTHON.size + _NUMPY.size


def capture() -> torch.Tensor:
    """State of torch's CPU generator, of `random`, and of numpy's global one if numpy is loaded: uint8, shape [LENGTH]."""
    _, words, spare = random.getstate()
    packed = _PYTHON.pack(*words, spare is not None, spare or 0.0) + _capture_numpy()
    return torch.cat([torch.get_rng_state(), torch.frombuffer(bytearray(packed), dtype=torch.uint8)])


def restore(state: torch.Tensor) -> None:
    """Set the generators to what `capture` saw."""
    torch.set_rng_state(state[:_TORCH].clone())
    packed = state[_TORCH:].numpy().tobytes()
    *words, stored, spare = _PYTHON.unpack_from(packed)
    random.setstate((3, tuple(words), spare if stored else None))
    present, *rest = _NUMPY.unpack_from(packed, _PYTHON.size)
    numpy = sys.modules.get("numpy")
    if present and numpy is not None:
        numpy.random.set_state(("MT19937", rest[:624], *rest[624:]))


def _capture_numpy() -> bytes:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return _NUMPY.pack(False, *[0] * 624, 0, 0, 0.0)
    kind, words, position, stored, spare = numpy.random.get_state()
    if kind != "MT19937":
        return _NUMPY.pack(False, *[0] * 624, 0, 0, 0.0)
    return _NUMPY.pack(True, *words.tolist(), position, stored, spare)
