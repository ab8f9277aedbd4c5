"""A dataset's own state as one text: whatever keeps checkpoints (DCP, JSON, memory) keeps a text, and needs to know none of its fields."""

from __future__ import annotations

import base64
import binascii
import io
import pickle
from typing import Any

import torch

from minder.model.errors import DataError

__all__ = ["pack_state", "unpack_state"]

_PLAIN = "keep numbers, texts, lists, dictionaries and tensors in what its `state_dict()` returns"


def pack_state(state: Any) -> str:
    """Raises DataError for a state that could not be read again: at the first save, not at the recovery."""
    packed = io.BytesIO()
    try:
        torch.save(state, packed)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise DataError(f"the dataset's state holds what is no plain value ({_first_line(error)}): {_PLAIN}") from error
    text = base64.b64encode(packed.getvalue()).decode()
    unpack_state(text)
    return text


def unpack_state(text: Any) -> Any:
    """What was packed; a state of an earlier version, which was none, is taken as it is. Runs no code. Raises DataError."""
    if not isinstance(text, str):
        return text
    try:
        return torch.load(io.BytesIO(base64.b64decode(text, validate=True)), weights_only=True)
    except (RuntimeError, ValueError, EOFError, binascii.Error, pickle.UnpicklingError) as error:
        raise DataError(f"the dataset's state cannot be read ({_first_line(error)}): {_PLAIN}") from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
