"""One machine of the lab: where its processes live, how they are started, and how all of them are ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minder.model.errors import LabError
from minder.simulate.lab.cgroup import Cgroup
from minder.simulate.lab.network import LabNetwork
from minder.simulate.lab.processes import LAB_VARIABLE, MACHINE_VARIABLE, OWNER_VARIABLE, end_processes, marked_processes
from minder.simulate.lab.record import start_ticks

__all__ = ["KERNEL_LOG", "MEMORY", "LabMachine", "MachinePlace"]

MEMORY = Path("/dev/shm")
KERNEL_LOG = Path("/dev/kmsg")  # of all machines of the lab: their host's

# Joins the cgroups, enters the network namespace, becomes the program: the pid stays the same. `ip netns exec` is not used, as it
# mounts /sys anew and the cgroup files vanish from the program's sight.
_ENTER = """
space=$1; shift
while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done
shift
exec nsenter --net="$space" -- "$@"
"""


@dataclass(frozen=True, slots=True)
class MachinePlace:
    """What sets one machine apart from another. In process mode both addresses are one of 127.0.0.0/8 and data_interface is lo."""

    name: str
    label: str
    index: int
    run_id: str
    address: str
    data_address: str
    data_interface: str
    directory: Path


@dataclass(slots=True)
class LabMachine:
    """A machine: its place, and its namespace and cgroup (None in process mode)."""

    place: MachinePlace
    owner: str
    network: LabNetwork | None = None
    cgroup: Cgroup | None = None
    on_spawn: Callable[[int, int], None] | None = None  # called with (pid, start ticks) of every process group's leader
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    agent: subprocess.Popen[bytes] | None = None
    launcher: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """Unique per run, such as lab-3fa2-m0."""
        return self.place.name

    @property
    def address(self) -> str:
        """Where agent and launcher listen: the management network."""
        return self.place.address

    @property
    def data_address(self) -> str:
        """Where the job's own traffic goes."""
        return self.place.data_address

    @property
    def run_dir(self) -> Path:
        """The run directory that agent and launcher of this machine share."""
        return self.place.directory / "run"

    @property
    def scratch(self) -> Path:
        """Where the machine's probes write: its disk, as far as a lab's machine has one of its own."""
        return self.place.directory / "scratch"

    @property
    def memory_dir(self) -> Path:
        """Named memory of this machine: what its checkpoint cache holds. It goes when the machine dies."""
        return MEMORY / self.mark

    @property
    def mark(self) -> str:
        """The value of MINDER_LAB_MACHINE in the environment of all its processes."""
        return f"mdr{self.place.run_id}{self.place.label}"

    @property
    def environment(self) -> dict[str, str]:
        """What every process of this machine has in its environment, on top of our own."""
        return {
            LAB_VARIABLE: self.place.run_id,
            OWNER_VARIABLE: self.owner,
            MACHINE_VARIABLE: self.mark,
            "GLOO_SOCKET_IFNAME": self.place.data_interface,
        }

    def spawn(self, argv: Sequence[str], env: Mapping[str, str] | None = None, log_path: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a program on this machine, in its own session; `env` is added to our own environment and the machine's.

        Output goes to `log_path` (appended), or nowhere. Raises LabError if the program does not exist.
        """
        command = list(argv)
        if self.network is not None and self.cgroup is not None:
            space = f"/var/run/netns/{self.network.namespace(self.place.label)}"
            command = ["/bin/sh", "-c", _ENTER, "sh", space, *map(str, self.cgroup.member_files()), "--", *command]
        log = subprocess.DEVNULL if log_path is None else os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(
                command,
                env={**os.environ, **self.environment, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(f"cannot start {argv[0]} on {self.name}: {error.strerror}") from error
        finally:
            if log_path is not None:
                os.close(log)
        self.children.append(child)
        if self.on_spawn is not None:
            self.on_spawn(child.pid, start_ticks(child.pid) or 0)
        return child

    def pids(self) -> list[int]:
        """Every living process of this machine, grandchildren that moved to other sessions too."""
        found = set(marked_processes(MACHINE_VARIABLE, self.mark))
        if self.cgroup is not None:
            found.update(self.cgroup.pids())
        return sorted(pid for pid in found if start_ticks(pid) is not None)

    def kill_all(self, deadline_s: float = 5.0) -> bool:
        """SIGKILL everything on this machine and wait until nothing lives; False at the deadline. Its memory is empty then."""
        if self.cgroup is not None:
            self.cgroup.kill(deadline_s)
        else:
            self._kill_groups()
        gone = end_processes(self.pids, deadline_s)
        self._reap(deadline_s)
        shutil.rmtree(self.memory_dir, ignore_errors=True)
        return gone

    def destroy(self) -> None:
        """Kill everything, then delete the machine's links, namespace and cgroup. Raises LabError if something survives."""
        if not self.kill_all():
            raise LabError(f"{self.name}: processes {self.pids()} did not die of SIGKILL")
        if self.network is not None:
            self.network.remove_machine(self.place.label)
        if self.cgroup is not None:
            self.cgroup.remove()

    def _kill_groups(self) -> None:
        for child in self.children:
            if child.poll() is None:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def _reap(self, deadline_s: float) -> None:
        end_s = time.monotonic() + deadline_s
        for child in self.children:
            try:
                child.wait(timeout=max(0.01, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
