"""The order of an epoch's samples: a permutation that is computed place by place, so that no rank holds a list of all samples.

A generalised Feistel network with cycle walking (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): the place is
split in two numbers, and each is shifted in turn by a hash of the other. It depends on nothing but integers, so an order is the same in
every version of Python, numpy and torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from math import isqrt

__all__ = ["Order", "fingerprint", "mix"]

_WORD = (1 << 64) - 1
_ROUNDS = 6


class Order:
    """A permutation of range(size), by seed and epoch.

    >>> sorted(Order(5, seed=7, epoch=0).at(place) for place in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        self._size = size
        self._rows = isqrt(size - 1) + 1
        self._columns = -(-size // self._rows)
        drawn = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
        keys = [int.from_bytes(drawn[at : at + 8], "little") for at in range(0, len(drawn), 8)]
        self._keys = tuple(zip(keys[::2], keys[1::2], strict=True))

    def at(self, place: int) -> int:
        """The sample at a place of the epoch."""
        while True:
            row, column = divmod(place, self._columns)
            for first, second in self._keys:
                row = (row + mix(column ^ first)) % self._rows
                column = (column + mix(row ^ second)) % self._columns
            place = row * self._columns + column
            if place < self._size:
                return place


def mix(number: int) -> int:
    """64 bits that look drawn at random (the finaliser of splitmix64, which is a permutation)."""
    number = (number + 0x9E3779B97F4A7C15) & _WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _WORD
    return number ^ (number >> 31)


def fingerprint(samples: Iterable[int]) -> int:
    """64 bits that stand for a collection of samples, in whatever order: those of two collections add up (modulo 2**64) to that of both."""
    return sum(map(mix, samples)) & _WORD
