"""Random generators that follow from seed, step and rank, so that no checkpoint has to hold them and every rank has its own."""

from __future__ import annotations

import hashlib
import random
import sys

import torch

__all__ = ["seed_loading", "seed_step"]


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set `random`, numpy's global generator, torch's and the CUDA device's, as far as they are in use, for a step of a rank."""
    drawn = _seed_all("step", seed, step, rank)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.manual_seed(drawn)


def seed_loading(seed: int, batch: int, *what: int) -> None:
    """Set the processor's generators for one sample of a batch, or for putting a rank's share together."""
    _seed_all("load", seed, batch, *what)


def _seed_all(purpose: str, *numbers: int) -> int:
    text = " ".join((purpose, *map(str, numbers)))
    drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    random.seed(drawn)
    torch.default_generator.manual_seed(drawn)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(drawn & 0xFFFFFFFF)
    return drawn
