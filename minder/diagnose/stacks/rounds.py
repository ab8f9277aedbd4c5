"""One capture of a job that moves, for a vote over several (ByteRobust, arXiv 2509.16293)."""

from __future__ import annotations

from dataclasses import replace

from minder.diagnose.stacks.blame import analyse
from minder.diagnose.stacks.finding import Finding
from minder.diagnose.stacks.records import Capture
from minder.diagnose.stacks.scene import Member, set_scene
from minder.model.topology import Topology

__all__ = ["judge_round"]

_SEEN_WAITING = 0.5  # of the others
_HELD = ("D", "T")


def judge_round(capture: Capture, topology: Topology | None = None) -> Finding:
    """As `analyse`, without an eviction of whoever others cannot be seen to wait for.

    Where a job hangs, an outlier among those that wait has missed what its peers are in. Where it moves, it is as likely the one that is
    early: one rank that is quick among slow ones waits alone, in every round. So who is accused must be at work itself, or in the
    hands of the kernel, or in what may be either (its device, the backward pass) while all others are in a collective for certain.
    """
    finding = analyse(capture, topology)
    if not finding.evict:
        return finding
    scene = set_scene(capture, topology)
    accused = {(suspect.machine, suspect.pid) for suspect in finding.suspects}
    ours = [member for member in scene.members if _name(member) in accused]
    others = [member for member in scene.members if _name(member) not in accused]
    busy = {_name(member) for member in scene.busy} | {_name(member) for member in scene.members if member.process.state[:1] in _HELD}
    waiting = [member for member in others if member.role.stance in ("waits", "may wait")]
    all_wait = all(member.role.stance == "waits" for member in others)
    telling = all(_name(member) in busy or (member.role.stance == "may wait" and all_wait) for member in ours)
    if telling and len(waiting) >= _SEEN_WAITING * len(others):
        return finding
    early = "who stands out may as well be early: the job moves, and nobody is seen to wait for it"
    return replace(finding, suspects=(), evict=(), group=None, blame="unknown", because=early)


def _name(member: Member) -> tuple[str, int | None]:
    return member.machine, member.process.pid
