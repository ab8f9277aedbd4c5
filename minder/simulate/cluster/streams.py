"""Random numbers: one stream per concept, so that a new concept moves no other's draws."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Streams", "draw"]


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of one recording: of a recipe's seed and the recording's number."""

    recipe: str
    seed: int
    index: int

    def of(self, concept: str) -> np.random.Generator:
        """The concept's own generator, from its start: ask once and keep it."""
        words = [zlib.crc32(text.encode()) for text in (self.recipe, concept)]
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, self.index, *words])))


def draw(rng: np.random.Generator, bounds: Sequence[float]) -> float:
    """Uniform between two bounds.

    >>> draw(np.random.default_rng(0), (3.0, 3.0))
    3.0
    """
    return float(rng.uniform(bounds[0], bounds[1]))
