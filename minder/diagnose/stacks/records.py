"""What a stack dump says, whatever tool wrote it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Capture", "Frame", "Kind", "Process", "Thread"]

Kind = Literal["collective", "point to point", "data loading", "checkpoint", "compute", "idle", "other"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One function on a stack, normalised (minder.diagnose.stacks.normalise). `native`: compiled code, not Python. line 0: not known."""

    function: str
    file: str = ""
    line: int = 0
    native: bool = False


@dataclass(frozen=True, slots=True)
class Thread:
    """Frames innermost first. `main`: the dump itself says so. `active`: on a processor; None: not told."""

    frames: tuple[Frame, ...]
    name: str = ""
    ident: int | None = None
    main: bool = False
    active: bool | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job. `state` is the kernel's letter (R, S, D, T, Z), "" where nobody told. `problem`: why there is no stack.
    `child`: a training process started it, so that it is none itself. `title`: its command line, where the dump shows it."""

    machine: str
    pid: int | None = None
    rank: int | None = None
    state: str = ""
    threads: tuple[Thread, ...] = ()
    problem: str = ""
    file: str = ""
    child: bool = False
    title: str = ""

    @property
    def name(self) -> str:
        """As docs/stacks.md writes it: machine:pid4100, or machine:rank3.

        >>> Process("node-1", pid=7, rank=3).name
        'node-1:pid7'
        """
        if self.pid is not None:
            return f"{self.machine}:pid{self.pid}"
        return f"{self.machine}:rank{self.rank}" if self.rank is not None else self.machine

    def with_rank(self, rank: int) -> Process:
        return replace(self, rank=rank)


@dataclass(frozen=True, slots=True)
class Capture:
    """All dumps of one moment. time_s is None where the folder's name is no time. `ignored`: files that are no dumps."""

    processes: tuple[Process, ...]
    time_s: float | None = None
    name: str = ""
    ignored: tuple[str, ...] = ()
