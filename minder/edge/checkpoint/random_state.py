"""The random generators of one process as one tensor of fixed length, so that a checkpoint can hold one per rank."""

from __future__ import annotations

import random
import struct
import sys

import torch

_TORCH = 5056  # bytes of torch's CPU generator
_PYTHON = struct.Struct("<625I?d")  # words and position, whether a spare normal is stored, that one
_NUMPY = struct.Struct("<?624Iiid")  # present, words, position, whether a spare normal is stored, that one
_CUDA = struct.Struct("<B63s")  # bytes used, state of the current device's generator
LENGTH = _TORCH + _PYTHON.size + _NUMPY.size + _CUDA.size


def capture() -> torch.Tensor:
    """State of torch's CPU generator, `random`, numpy's global one and the current CUDA device's, as far as they are in use.

    uint8, shape [LENGTH].
    """
    _, words, spare = random.getstate()
    packed = _PYTHON.pack(*words, spare is not None, spare or 0.0) + _capture_numpy() + _capture_cuda()
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
    used, cuda = _CUDA.unpack_from(packed, _PYTHON.size + _NUMPY.size)
    if used and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.frombuffer(bytearray(cuda[:used]), dtype=torch.uint8))


def _capture_numpy() -> bytes:
    numpy = sys.modules.get("numpy")
    kind, *state = numpy.random.get_state() if numpy is not None else ("none",)
    if kind != "MT19937":
        return _NUMPY.pack(False, *[0] * 624, 0, 0, 0.0)
    words, position, stored, spare = state
    return _NUMPY.pack(True, *words.tolist(), position, stored, spare)


def _capture_cuda() -> bytes:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return _CUDA.pack(0, b"")
    state = torch.cuda.get_rng_state().numpy().tobytes()
    return _CUDA.pack(len(state), state)
