"""A finding as docs/stacks.md writes it, and for reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minder.diagnose.stacks.finding import Finding
from minder.diagnose.stacks.records import Process

__all__ = ["to_document", "to_rows"]


def to_document(finding: Finding) -> dict[str, Any]:
    """The JSON document; `because`, `without_stack`, `ignored` and `captures` are additions to the format."""
    return {
        "groups": [
            {"size": len(group.processes), "kind": group.kind, "frames": list(group.frames), "processes": [p.name for p in group.processes]}
            for group in finding.groups
        ],
        "suspects": [
            {"machine": s.machine, "pid": s.pid, "rank": s.rank, "reason": s.reason, "confidence": s.confidence} for s in finding.suspects
        ],
        "evict": {"machines": list(finding.evict), "group": finding.group},
        "blame": finding.blame,
        "because": finding.because,
        "without_stack": [{"process": process.name, "problem": process.problem} for process in finding.without_stack],
        "ignored": list(finding.ignored),
        "captures": finding.captures,
    }


def to_rows(finding: Finding) -> tuple[list[list[str]], list[str]]:
    """Rows of the table of groups (the first is its header), and lines below it."""
    rows = [["size", "kind", "innermost frames", "processes"]]
    rows += [[str(len(g.processes)), g.kind, " < ".join(g.frames[:3]) or "-", _names(g.processes)] for g in finding.groups]
    lines = [f"suspect  {s.machine}{_who(s.pid, s.rank)}: {s.reason} ({s.confidence:.2f})" for s in finding.suspects] or ["suspect  nobody"]
    lines += [f"no stack {process.name}: {process.problem}" for process in finding.without_stack]
    evict = ", ".join(finding.evict) or "nobody"
    lines += [f"evict    {evict}{f' (group {finding.group})' if finding.group else ''}", f"blame    {finding.blame}"]
    return rows, [*lines, f"because  {finding.because}"] if finding.because else lines


def _who(pid: int | None, rank: int | None) -> str:
    return (f" pid {pid}" if pid is not None else "") + (f" rank {rank}" if rank is not None else "")


def _names(processes: Sequence[Process]) -> str:
    names = [process.name for process in processes[:3]]
    return ", ".join(names) + (f" and {len(processes) - 3} more" if len(processes) > 3 else "")
