"""Processes by the program that they run: trainers and inference on one machine, monitors, notebooks, drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from minder.diagnose.stacks.records import Process
from minder.diagnose.stacks.roles import Role
from minder.diagnose.stacks.threads import program_of

__all__ = ["Member", "find_guests"]


@dataclass(frozen=True, slots=True)
class Member:
    """One process and what it does."""

    process: Process
    role: Role

    @property
    def machine(self) -> str:
        return self.process.machine


def find_guests(members: Sequence[Member]) -> tuple[tuple[Member, ...], ...]:
    """Processes of other programs, by program, beside a machine's full number of the job's own. All ranks of a job run one program, and
    every machine runs as many; a process that is known to be a rank is one."""
    programs = [program_of(member.process) for member in members]
    program = _own_program(members, programs)
    if not program:
        return ()
    per_machine = Counter(member.machine for member, own in zip(members, programs, strict=True) if own == program)
    usual, machines = Counter(per_machine.values()).most_common(1)[0]
    if machines * 2 <= len(per_machine) or len(per_machine) < 2:
        return ()
    ranks = Counter((member.machine, member.process.rank) for member in members)
    found: dict[str, list[Member]] = {}
    for member, own in zip(members, programs, strict=True):
        is_rank = member.process.rank is not None and ranks[member.machine, member.process.rank] == 1
        if own not in ("", program) and per_machine[member.machine] == usual and not is_rank:
            found.setdefault(own, []).append(member)
    return tuple(tuple(guests) for guests in found.values())


def _own_program(members: Sequence[Member], programs: Sequence[str]) -> str:
    """The program with most processes; of equals, and where the largest only idles, the one that is at work. "" where there is one only."""
    counts = Counter(program for program in programs if program)
    if len(counts) < 2:
        return ""
    working = Counter(own for member, own in zip(members, programs, strict=True) if own and member.role.stance not in ("idle", "none"))
    (first, _), *_ = counts.most_common(1)
    return first if working[first] * 2 > counts[first] or not working else working.most_common(1)[0][0]
