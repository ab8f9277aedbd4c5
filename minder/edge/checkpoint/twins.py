"""Ranks whose bodies are equal, as data-parallel replicas have them: one of each failure domain copies and keeps its own, the others check
at every step that theirs is the same, and keep no body.

Who is alike is seen at the first save, by a sample of every tensor. What is kept rests on more: each rank sums up all bytes of its tensors
at every step, and a step in which a rank differs from the one whose body stands for its own is not committed. From then on every rank keeps
its own.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

import torch

from minder.edge.checkpoint.shards import Shard

__all__ = ["NONE", "are_alike", "crc", "digest_of", "group", "number_of", "sample"]

NONE = -1  # of a rank that keeps its own body
_SAMPLE_BYTES = 4096
_LEAST_BYTES = 2 << 20  # a small body is simply kept by each


def group(samples: Sequence[int], domain: Sequence[str]) -> dict[int, int]:
    """Rank to the rank whose body stands for its own: the first one of its domain with an equal sample. 0 is equal to none.

    >>> group([7, 7, 7, 8, 0, 0], ["m0", "m0", "m1", "m1", "m2", "m2"])
    {1: 0}
    """
    first: dict[tuple[int, str], int] = {}
    found = {}
    for rank, (number, where) in enumerate(zip(samples, domain, strict=True)):
        keeper = first.setdefault((number, where), rank) if number else rank
        if keeper != rank:
            found[rank] = keeper
    return found


def sample(shard: Shard) -> int:
    """Equal for bodies that are cut alike and begin alike in every tensor; 0 for a small one."""
    if shard.body_bytes < _LEAST_BYTES:
        return 0
    parts = [crc(tensor.reshape(-1)[: max(1, _SAMPLE_BYTES // tensor.element_size())]) for tensor in shard.tensors]
    return number_of(digest_of(shard.layout, parts))


def digest_of(layout: str, sums: Sequence[int]) -> str:
    """Of a body by the checksums of its tensors."""
    return hashlib.sha256(f"{layout} {list(sums)}".encode()).hexdigest()


def number_of(digest: str) -> int:
    """A part of a digest that ranks exchange; never 0."""
    return int(digest[:15], 16) or 1


def crc(tensor: torch.Tensor) -> int:
    """CRC-32 of a tensor's bytes, wherever it is."""
    if not tensor.numel():
        return 0
    return zlib.crc32(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))


def are_alike(keeper: Sequence[int], digests: Sequence[int]) -> bool:
    """Whether in one step every rank without a body has what its keeper has, who must have one."""
    pairs = [(rank, keeper[rank]) for rank in range(len(digests)) if keeper[rank] != NONE]
    return all(keeper[other] == NONE and digests[rank] == digests[other] for rank, other in pairs)
