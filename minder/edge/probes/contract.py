"""What a probe is: a program of this folder with a name, a version, needs and a time limit, that measures and prints one JSON document.

The contract and the runner are light: they run in agents and launchers. A probe itself may load torch, since it is a process of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from minder.model.errors import BadInputError
from minder.model.probes import Measurement, ProbeState

__all__ = ["ALONE", "OF_LAUNCHERS", "PROBES", "Finding", "Need", "Probe", "Program", "find_program", "find_programs"]

# In the order in which they run: what is cheap and may explain the rest comes first.
ALONE = ("links", "clock", "space", "device_health", "dcgm", "memory", "loopback", "gemm", "all_to_all", "disk", "alignment")
PROBES = (*ALONE, "pair")  # the last is ordered on two machines at once
OF_LAUNCHERS = (*PROBES, "replay")  # the last runs the job itself, on a group of its machines: a launcher's work, and no agent's

Need = Literal["gpu", "peers", "root", "torch"]
_ID = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class Probe:
    """name: its id, and that of its file. version: raised when results are no longer comparable. needs: without them it answers
    "not_applicable". limit_s: it is ended after that. measures: name to what it says, with its unit. source: where the test is known
    from. disturbs: it slows down what else runs on the machine. changes: settings that it may change (minder.edge.probes.settings)."""

    name: str
    version: int
    says: str
    limit_s: float
    needs: tuple[Need, ...] = ()
    measures: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    disturbs: bool = True
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe's own code concluded: "measured", "failed" or "not_applicable" (a reason is then in detail), with its numbers.
    facts: what must be equal on machines that are compared. data: what is no number."""

    state: ProbeState
    detail: str = ""
    measures: tuple[Measurement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A probe with the file that is run."""

    probe: Probe
    path: Path

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def find_programs(names: tuple[str, ...] = PROBES) -> dict[str, Program]:
    """Name to program, of the probes that this package ships. Raises BadInputError for another name."""
    return {name: find_program(name) for name in names}


def find_program(name: str) -> Program:
    """Raises BadInputError for what is no probe of this package."""
    if name not in OF_LAUNCHERS or not _ID.fullmatch(name):
        raise BadInputError(f'no probe "{name}": this minder has {", ".join(PROBES)}')
    module = importlib.import_module(f"minder.edge.probes.{name}")
    return Program(module.PROBE, Path(str(module.__file__)))
