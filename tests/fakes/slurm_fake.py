"""A Slurm in memory that prints what Debian's 22.05 prints, for tests: strict about what it is asked, and it can be slow or down.

`tests/actuators/slurm` runs one suite against this and the real commands: both are changed together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from minder.model.errors import ActuatorError, EngineUnavailableError

__all__ = ["FakeJob", "FakeNode", "FakeSlurm"]


@dataclass(slots=True)
class FakeNode:
    states: set[str] = field(default_factory=set)  # flags beside what its jobs make of it: DRAIN, DOWN, NOT_RESPONDING
    reason: str = ""


@dataclass(slots=True)
class FakeJob:
    nodes: list[str]
    state: str = "RUNNING"
    excluded: str = ""
    restarts: int = 0
    requeue: bool = True
    held: bool = False  # as Slurm holds what was requeued
    user: str = "root"
    script: str = "#!/bin/sh\nsrun python train.py\n"


class FakeSlurm:
    """commands.Commands. `calls` holds what it was asked. `silent`: this many further calls are not answered (after `answered` ones);
    `lost_answer`: the next update happens, and its answer is lost."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = {name: FakeNode() for name in nodes}
        self.jobs: dict[int, FakeJob] = {}
        self.calls: list[tuple[str, ...]] = []
        self.silent = 0
        self.lost_answer = False

    def call(self, words: Sequence[str]) -> str:
        self.calls.append(tuple(words))
        if self.silent:
            self.silent -= 1
            raise EngineUnavailableError(f"Slurm did not answer `{' '.join(words[:3])}` within 5 s")
        self._schedule()
        said = self._answer(list(words))
        if self.lost_answer and words[:2] == ["scontrol", "update"]:
            self.lost_answer = False
            raise EngineUnavailableError("Slurm did not answer `scontrol update` within 5 s")
        self._schedule()
        return said

    @property
    def changes(self) -> list[tuple[str, ...]]:
        """The calls that asked for a change."""
        return [call for call in self.calls if call[:2] in (("scontrol", "update"), ("scontrol", "requeue"))]

    def _answer(self, words: list[str]) -> str:
        match words:
            case ["scontrol", "show", "node", names]:
                return "".join(self._show_node(name) for name in _expand(names))
            case ["scontrol", "show", "job", number]:
                return self._show_job(int(number))
            case ["scontrol", "write", "batch_script", number, "-"]:
                return self._job(int(number)).script
            case ["scontrol", "show", "hostnames", text]:
                return "".join(f"{name}\n" for name in _expand(text))
            case ["sinfo", "-h", "-N", "-R", "-o", "%N|%T|%E"]:
                told = [(name, node) for name, node in self.nodes.items() if node.reason]
                return "".join(f"{name}|drained|{node.reason}\n" for name, node in told)
            case ["squeue", "-h", "-t", _, "-w", names, "-o", "%A|%u|%N"]:
                wanted = set(_expand(names))
                running = [(number, job) for number, job in self.jobs.items() if wanted & set(job.nodes) and job.state == "RUNNING"]
                return "".join(f"{number}|{job.user}|{','.join(job.nodes)}\n" for number, job in running)
            case ["scontrol", "requeue", number]:
                return self._requeue(int(number))
            case ["scontrol", "update", target, *changes]:
                return self._update(target, dict(change.split("=", 1) for change in changes))
        raise AssertionError(f"the fake Slurm does not know {words}")

    def _show_node(self, name: str) -> str:
        node = self._node(name)
        jobs = [job for job in self.jobs.values() if name in job.nodes and job.state == "RUNNING"]
        base = "DOWN" if "DOWN" in node.states else "ALLOCATED" if jobs else "IDLE"
        state = "+".join([base, *sorted(node.states - {"DOWN"})])
        reason = f"   Reason={node.reason} [root@1795342364]\n" if node.reason else ""
        return f"NodeName={name} Arch=x86_64 CoresPerSocket=1 \n   State={state} ThreadsPerCore=1 Owner=N/A\n   Partitions=all \n{reason}\n"

    def _show_job(self, number: int) -> str:
        job = self._job(number)
        reason = "BeginTime" if job.held else "None"
        return (
            f"JobId={number} JobName=train JobState=FAILED\n   JobState={job.state} Reason={reason} Dependency=(null)\n"
            f"   Requeue={int(job.requeue)} Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode=0:0\n   Partition=all AllocNode:Sid=x:1\n"
            f"   ReqNodeList=(null) ExcNodeList={job.excluded or '(null)'}\n   NodeList={','.join(job.nodes) or '(null)'}\n"
            f"   BatchHost={job.nodes[0] if job.nodes else '(null)'}\n   NumNodes={len(job.nodes) or 1} NumCPUs=4 NumTasks=1\n"
        )

    def _requeue(self, number: int) -> str:
        job = self._job(number)
        if job.state != "RUNNING":
            raise ActuatorError("Slurm refused `scontrol requeue`: Job is pending execution")
        job.state, job.held, job.restarts = "PENDING", True, job.restarts + 1
        self._wanted = {number: len(job.nodes)}
        job.nodes = []
        return ""

    def _update(self, target: str, changes: dict[str, str]) -> str:
        kind, name = target.split("=")
        if kind == "NodeName":
            node = self._node(name)
            match changes:
                case {"State": "DRAIN", "Reason": reason, **rest} if reason and not rest:
                    node.states.add("DRAIN")
                    node.reason = reason
                case {"State": "RESUME", **rest} if not rest:
                    node.states -= {"DRAIN", "DOWN"}
                    node.reason = ""
                case _:
                    raise AssertionError(f"the fake Slurm does not know {changes}")
            return ""
        job = self._job(int(name))
        match changes:
            case {"ExcNodeList": excluded, "StartTime": "now", **rest} if not rest:
                if job.state != "PENDING":
                    raise ActuatorError("Slurm refused `scontrol update`: Job is no longer pending execution")
                job.excluded, job.held = excluded, False
            case {"NodeList": staying, **rest} if not rest:
                job.nodes = _expand(staying)
            case _:
                raise AssertionError(f"the fake Slurm does not know {changes}")
        return ""

    def _schedule(self) -> None:
        """Waiting jobs go where there is room."""
        for number, job in self.jobs.items():
            if job.state != "PENDING" or job.held:
                continue
            busy = {name for other in self.jobs.values() for name in other.nodes}
            barred = set(_expand(job.excluded))
            free = [name for name, node in self.nodes.items() if not node.states and name not in busy | barred]
            count = getattr(self, "_wanted", {}).get(number, 1)
            if len(free) >= count:
                job.nodes, job.state = free[:count], "RUNNING"

    def _node(self, name: str) -> FakeNode:
        if name not in self.nodes:
            raise ActuatorError(f"Slurm refused `scontrol show node {name}`: Node {name} not found")
        return self.nodes[name]

    def _job(self, number: int) -> FakeJob:
        if number not in self.jobs:
            raise ActuatorError(f"Slurm refused `scontrol show job {number}`: slurm_load_jobs error: Invalid job id specified")
        return self.jobs[number]


def _expand(text: str) -> list[str]:
    """ "n[1-2,5]" and "n1,n2"."""
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        match = re.fullmatch(r"(.*)\[(.*)\]", part)
        if match is None:
            found.append(part)
            continue
        for piece in match[2].split(","):
            low, _, high = piece.partition("-")
            found += [f"{match[1]}{number}" for number in range(int(low), int(high or low) + 1)]
    return found
