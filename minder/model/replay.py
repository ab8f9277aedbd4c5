"""What a rank made of one run of a replayed job: a record of launchers, the controller and the judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["RankRun"]


@dataclass(frozen=True, slots=True)
class RankRun:
    """What one rank made of one run. begun: it had met the other ranks. hashes: of its state after each step; empty where it hashes
    nothing."""

    end: Literal["finished", "nan", "crash", "hang"]
    begun: bool = True
    hashes: tuple[str, ...] = ()
    detail: str = ""
