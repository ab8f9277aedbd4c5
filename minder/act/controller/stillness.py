"""Do the ranks of a job stand where they stood a moment ago? From two captures of their stacks.

The rules:

- A rank stands still while the thread that decides what it does is in the same functions, whatever the line: a loop that polls comes by
  several. One that polls with the help of a function of its own stands still too, so the innermost function alone may differ; but not
  where either capture shows it at a computation, whose outer functions are the same for as long as it lasts.
- In a job without GPUs a rank that runs inside a computation computes: nothing that it waits for looks like that. With one, it may be
  the launch of work for a device that stands.
- The job stands while no rank is seen to move. A rank of which one capture has no stack says nothing; where no rank says anything,
  it is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minder.diagnose.stacks import Accused, Capture, Finding, Group, Process, analyse
from minder.model.evidence import Suspect
from minder.model.topology import Topology

__all__ = ["name_ranks", "stands_still"]

_COMPUTES = "compute"


def stands_still(first: Capture, second: Capture, topology: Topology | None = None, gpus: bool = True) -> bool | None:
    """Whether no rank has moved between the two; None where no rank can be compared. gpus: whether the job may compute on any."""
    before, after = _places(first, topology), _places(second, topology)
    both = [name for name in before if name in after]
    if not both:
        return None
    return not any(_moves(before[name], after[name], gpus) for name in both)


def _places(capture: Capture, topology: Topology | None) -> dict[str, tuple[Group, Process]]:
    """Where each training process stands, by its name; helpers and processes without a stack are left out."""
    groups = analyse(capture, topology).groups
    return {process.name: (group, process) for group in groups for process in group.processes if not process.child and group.frames}


def _moves(before: tuple[Group, Process], after: tuple[Group, Process], gpus: bool) -> bool:
    one, other = before[0].frames, after[0].frames
    if one == other:
        return not gpus and before[0].kind == _COMPUTES and before[1].state[:1] == after[1].state[:1] == "R"
    if _COMPUTES in (before[0].kind, after[0].kind):
        return True
    return not (one[1:] == other or one == other[1:] or one[1:] == other[1:])


def name_ranks(suspects: Sequence[Suspect], finding: Finding) -> tuple[Suspect, ...]:
    """The suspects, each piece of evidence with the rank that it is about: of one machine's ranks only that tells them apart."""
    words = {(accused.machine, accused.reason): _who(accused) for accused in finding.suspects}
    return tuple(
        replace(
            suspect,
            evidence=tuple(
                replace(item, message=f"{words[item.machine or '', item.message]}: {item.message}")
                if words.get((item.machine or "", item.message))
                else item
                for item in suspect.evidence
            ),
        )
        for suspect in suspects
    )


def _who(accused: Accused) -> str:
    if accused.rank is not None:
        return f"rank {accused.rank}"
    return f"process {accused.pid}" if accused.pid is not None else ""
