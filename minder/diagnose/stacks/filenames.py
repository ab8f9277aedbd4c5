"""Whose dump a file is, by its name, or by the folder of a machine that it lies in."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Owner", "machine_in", "read_name"]

_NAME = re.compile(r"^(?P<machine>.+?)(?:[_-]pid[_-]?(?P<pid>\d+)|[-_]rank[_-]?(?P<rank>\d+))(?=$|[._-])")
_EXACT = re.compile(  # as docs/stacks.md has it, to the end of the name: a machine's own name may hold "rank" or "pid" and a number
    r"^(?P<machine>.+?)(?:_pid(?P<pid>\d+)(?:[_-]rank\d+)?|-rank(?P<rank>\d+)(?:[_-]pid\d+)?)(?:\.[A-Za-z]\w*)*$"
)
_RANK_AT_END = re.compile(r"[_-]rank[_-]?(?P<rank>\d+)$")  # node-7_rank5_pid4211: no machine is called so
_RANK_ONLY = re.compile(r"^rank[_-]?(?P<rank>\d+)(?:[._-]pid[_-]?(?P<pid>\d+))?(?:\.\w+)*$")
_ALONE = re.compile(r"(?:^|[._-])(?:(?P<kind>pid|rank)[_-]?)?(?P<number>\d+)(?=$|[._-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a file is, as far as its name says."""

    machine: str
    pid: int | None = None
    rank: int | None = None


def read_name(name: str, folder: str = "") -> Owner | None:
    """None where the name says nothing of a process. folder: of a machine, where each has one of its own.

    >>> read_name("node-0007_rank12_pid4211.txt")
    Owner(machine='node-0007', pid=4211, rank=12)
    >>> read_name("rank3.txt", folder="node-0007")
    Owner(machine='node-0007', pid=None, rank=3)
    """
    if folder:
        return _in_folder(name, folder)
    only = _RANK_ONLY.match(name)
    if only is not None:  # the job's ranks say which machine that is; without them each stands for itself
        return Owner(f"rank{only['rank']}", _number(only["pid"]), int(only["rank"]))
    found = _EXACT.match(name) or _NAME.match(name)
    if found is None:
        return None
    machine, pid, rank = found["machine"], _number(found["pid"]), _number(found["rank"])
    inner = _RANK_AT_END.search(machine) if pid is not None else None
    return Owner(machine, pid, rank) if inner is None or not inner.start() else Owner(machine[: inner.start()], pid, int(inner["rank"]))


def _in_folder(name: str, folder: str) -> Owner | None:
    """A number that nothing calls a rank is a pid."""
    numbers = {(found["kind"] or "").lower(): int(found["number"]) for found in reversed(list(_ALONE.finditer(name)))}
    if not numbers:
        return None
    return Owner(folder, numbers.get("pid", None if "rank" in numbers else numbers.get("")), numbers.get("rank"))


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def machine_in(file: str, machines: Collection[str]) -> str | None:
    """The one machine of the job whose name stands in a file's name: tools and jobs put their own names before it."""
    found = {machine for machine in machines if re.search(rf"(?<![A-Za-z0-9]){re.escape(machine)}(?![A-Za-z0-9])", file)}
    return found.pop() if len(found) == 1 else None
