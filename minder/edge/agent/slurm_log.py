"""Where a Slurm job's output goes, as Slurm itself says it: StdOut and StdErr of `scontrol show job`.

Asked in a thread of its own, once a job, and again after a minute where Slurm did not answer. The file is followed on the batch host
only, whose slurmstepd writes it: another node would see it late through the file server, and its ranks would look behind.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from minder.edge.exporters.jobs import JobProcess

__all__ = ["SlurmOutput", "SlurmOutputs", "find_output"]

_DEADLINE_S = 10.0
_AGAIN_S = 60.0
_FIELD = re.compile(r"^\s*(?P<key>StdOut|StdErr)=(?P<value>.*)$", re.MULTILINE)
_HOST = re.compile(r"\bBatchHost=(\S+)")
_PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>[A-Za-z%])")


@dataclass(frozen=True, slots=True)
class SlurmOutput:
    """paths: the files that this node should follow, none on other nodes than the batch host. problem: why there are none, or ""."""

    paths: tuple[Path, ...] = ()
    problem: str = ""


def find_output(text: str, nodes: Collection[str] = ()) -> SlurmOutput:
    """From what `scontrol show job ID` prints. nodes: the names that Slurm has for this machine, none where they are unknown."""
    named = [match["value"].strip() for match in _FIELD.finditer(text)]
    host = _HOST.search(text)
    files = [name for name in dict.fromkeys(named) if name and name not in ("(null)", "/dev/null")]
    if not files or host is None:
        return SlurmOutput(problem="the Slurm job has no output file (salloc, or an interactive srun): follow one with --log")
    if nodes and host[1] not in nodes:
        return SlurmOutput()
    paths = [_expand(name, host[1]) for name in files]
    vague = [name for name, path in zip(files, paths, strict=True) if path is None]
    if vague:
        return SlurmOutput(problem=f"this Slurm gives the output file as {vague[0]}, which is a pattern: name the file with --log")
    return SlurmOutput(tuple(path for path in paths if path is not None))


def _expand(name: str, batch_host: str) -> Path | None:
    """What scontrol leaves of a file name's pattern (seen with 22.05): the node's name, and the batch step's node and task, which are 0.
    None where something else is left."""
    host = socket.gethostname().split(".")[0]
    found = [_fill(name, node) for node in dict.fromkeys((host, batch_host))]
    vague = any(match["letter"] not in ("%", "N", "n", "t") for match in _PATTERN.finditer(name))
    return None if vague else next((path for path in found if path.exists()), found[-1])


def _fill(name: str, node: str) -> Path:
    return Path(_PATTERN.sub(lambda match: _place(match, node), name))


def _place(match: re.Match[str], node: str) -> str:
    letter = match["letter"]
    return "%" if letter == "%" else node if letter == "N" else "0".zfill(int(match["width"] or 0))


def show_job(job_id: str) -> str:
    """`scontrol show job ID`. Raises OSError or SubprocessError."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCONTROL_")} | {"LC_ALL": "C"}
    done = subprocess.run(
        ["scontrol", "show", "job", job_id], capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, check=True,
        stdin=subprocess.DEVNULL, env=environment, cwd="/",
    )  # fmt: skip
    return done.stdout


class SlurmOutputs:
    """`follow` the processes of a machine; `found` then says where the output of their Slurm jobs goes. Any thread may call both."""

    def __init__(self, show: Callable[[str], str] = show_job) -> None:
        self._show = show
        self._known: dict[str, SlurmOutput] = {}
        self._asked_s: dict[str, float] = {}
        self._asking: threading.Thread | None = None

    def follow(self, processes: Iterable[JobProcess], now_s: float) -> None:
        """Ask Slurm about jobs that are new here; it returns at once."""
        nodes: dict[str, set[str]] = {}
        for process in processes:
            if process.slurm_job is not None:
                nodes.setdefault(process.slurm_job, set()).update({process.node} if process.node else ())
        self._known = {job: found for job, found in self._known.items() if job in nodes}
        due = [job for job in nodes if not self._is_settled(job) and now_s - self._asked_s.get(job, -_AGAIN_S) >= _AGAIN_S]
        if due and (self._asking is None or not self._asking.is_alive()):
            self._asked_s = {job: time_s for job, time_s in self._asked_s.items() if job in nodes} | dict.fromkeys(due, now_s)
            self._asking = threading.Thread(target=self._ask, args=({job: nodes[job] for job in due},), name="minder-slurm", daemon=True)
            self._asking.start()

    def found(self) -> dict[str, SlurmOutput]:
        return dict(self._known)

    def _is_settled(self, job: str) -> bool:
        return job in self._known and not self._known[job].problem

    def _ask(self, nodes: dict[str, set[str]]) -> None:
        for job, names in nodes.items():
            try:
                self._known = {**self._known, job: find_output(self._show(job), names)}
            except FileNotFoundError:
                self._known = {**self._known, job: SlurmOutput(problem="scontrol is not on the agent's PATH: name the log with --log")}
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                why = f"scontrol show job {job}: {' '.join(str(said).split())[:200]}"
                self._known = {**self._known, job: SlurmOutput(problem=why)}
