"""Whether all ranks hold the same state, so that one of them can write it for all.

Writing together costs five rounds of pickled plans, which pays only for state that is sharded or large. Under plain data
parallelism every rank holds the same small tensors: the first rank alone writes the same files in a sixth of the processor time
(measured by bench/checkpoint.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["NOTE_BYTES", "agree", "describe"]

NOTE_BYTES = 33  # a SHA-256, and whether one rank may write alone
_LARGEST_ALONE_BYTES = 64 * 2**20  # above this the ranks share the writing


def describe(state: Mapping[str, Any]) -> torch.Tensor:
    """What a rank sends the others about its state: uint8, shape [NOTE_BYTES]; names, shapes and types, not values."""
    digest = hashlib.sha256()
    size_bytes = 0
    plain = True
    for path, leaf in _leaves("", state):
        digest.update(path.encode())
        if isinstance(leaf, torch.Tensor):
            digest.update(f"{tuple(leaf.shape)} {leaf.dtype}".encode())
            size_bytes += leaf.numel() * leaf.element_size()
            plain = plain and type(leaf) in (torch.Tensor, torch.nn.Parameter)  # a DTensor is sharded
        elif hasattr(leaf, "local_shards"):
            plain = False
    alone = plain and size_bytes <= _LARGEST_ALONE_BYTES
    return torch.frombuffer(bytearray(digest.digest() + bytes([alone])), dtype=torch.uint8)


def agree(notes: list[torch.Tensor]) -> bool:
    """Whether every rank described the same plain, small state."""
    return bool(notes[0][-1]) and all(torch.equal(notes[0], note) for note in notes[1:])


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}[{index}]", item)
    else:
        yield path, value
