"""Whose fault an out-of-memory kill is. The kernel ends the largest process, which on a training machine is a rank, at fault or not.

A kill accuses the machine only where the victim's processes had their usual size and others of the machine grew. Where they grew
themselves, or met the limit of their own cgroup, it is the program. Where neither is known, or not whose process it was, nothing is said
of the machine.

An agent adds to the kernel's line what it had sampled (minder/edge/agent/memory.py): of_job, if the victim is a training process or below
one; limited, whether a cgroup that is less than the machine met its limit; tree_bytes, the resident memory of the training
processes with all below them at the last sample before the kill; tree_usual_bytes, its median before; others_grew_bytes, by how much
the rest of the machine's used memory stood over its own median.

Files in memory (/dev/shm) count for no one: a rank may have written them, and they stay when it has ended. Not known: what was allocated
and ended between two samples, and other memory that is in no resident set (huge pages, kernel memory): it counts as the rest of the
machine. Of a recording that holds only the kernel's lines, no kill accuses a machine.
"""

from __future__ import annotations

from typing import Any

from minder.model.evidence import Signal

__all__ = ["event_of_kill", "is_limited"]

_USUAL_SHARE, _USUAL_BYTES = 1.15, 2 << 30  # a tree up to both over its median has its usual size
_GREW_BYTES = 4 << 30


def event_of_kill(signal: Signal) -> str:
    """The row of signal_rules.toml of an oom signal.

    >>> known = {"what": "oom", "of_job": True, "tree_bytes": 100 << 30, "tree_usual_bytes": 99 << 30, "others_grew_bytes": 60 << 30}
    >>> event_of_kill(Signal(1.0, "kernel", "m1", data=known))
    'oom.neighbour'
    """
    data, limited = signal.data, is_limited(signal)
    if data.get("of_job") is not True:
        return "oom"
    tree, usual, grew = (_number(data.get(name)) for name in ("tree_bytes", "tree_usual_bytes", "others_grew_bytes"))
    if tree is not None and usual is not None:
        if tree > max(_USUAL_SHARE * usual, usual + _USUAL_BYTES):
            return "oom.program"
        if grew is not None and grew >= _GREW_BYTES and not limited:
            return "oom.neighbour"
    return "oom.program" if limited else "oom"


def is_limited(signal: Signal) -> bool:
    """Whether a cgroup met its own limit while the machine had memory left. An agent whose machine is that cgroup says no."""
    limited = signal.data.get("limited")
    return limited if isinstance(limited, bool) else "CONSTRAINT_MEMCG" in signal.message or "emory cgroup out of memory" in signal.message


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
