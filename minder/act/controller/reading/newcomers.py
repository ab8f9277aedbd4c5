"""Machines that begin to give samples while a job is watched, and that its configuration does not name."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["Newcomers"]

_SETTLED_S = 10.0  # machines that come one by one are one line
_SHOWN = 4


class Newcomers:
    """A Prometheus of a whole cluster always has machines of other jobs, which come and go: where it had some when the watch attached,
    nothing is said. Where it had the job's alone, a new one has most likely joined the job."""

    def __init__(self) -> None:
        self._named: set[str] = set()
        self._of_job_alone = False
        self._since_s: dict[str, float] = {}
        self._said: set[str] = set()

    def begin(self, heard: Collection[str], named: Collection[str]) -> None:
        """The watch attached. heard: machines with samples so far; named: those of the configuration."""
        self._named |= set(named)
        self._of_job_alone = set(heard) <= self._named

    def look(self, monotonic_s: float, heard: Collection[str], named: Collection[str]) -> list[str]:
        """Lines to be said now; monotonic_s: a monotonic clock. One that leaves and comes again is said once."""
        self._named |= set(named)
        if not self._of_job_alone:
            return []
        new = set(heard) - self._named - self._said
        self._since_s = {machine: self._since_s.get(machine, monotonic_s) for machine in new}
        if not new or monotonic_s - max(self._since_s.values()) < _SETTLED_S:
            return []
        self._said |= new
        shown = ", ".join(sorted(new)[:_SHOWN]) + (f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else "")
        verb, it = ("gives", "it") if len(new) == 1 else ("give", "them")
        does = f"{shown} {verb} samples too, and job.toml does not name {it}"
        return [f"{does}: what joined the job is to be added there, and the watch started again"]
