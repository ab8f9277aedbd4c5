"""A real Slurm of our own on this machine: munged, slurmctld and several slurmd, each with a name and a port, on loopback only.

Needs root (slurmd does) and Debian's slurmctld, slurmd, slurm-client and munge. Everything that it wrote or started ends with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from minder.act.actuators.slurm.commands import SlurmCommands
from minder.model.errors import ActuatorError, LabError
from minder.simulate.lab.daemons import LocalDaemons, free_ports
from minder.simulate.lab.lab import Lab

__all__ = ["LocalSlurm"]

_CONF = """\
ClusterName=lab
SlurmctldHost={host}({address})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout={slurmd_timeout}
KillWait=2
MailProg=/bin/true
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class LocalSlurm(LocalDaemons):
    """`with LocalSlurm(folder, nodes=4) as slurm`: nodes n1 to n4 are idle. unanswered: further nodes, x1 ..., that stand in the
    configuration and never register. lab: its machines are the nodes instead, each slurmd inside its machine. settings: further lines
    of slurm.conf. Raises LabError where it cannot be started."""

    MARK = "MINDER_LOCAL_SLURM"

    def __init__(self, folder: Path, nodes: int = 4, unanswered: int = 0, lab: Lab | None = None, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.nodes = tuple(f"n{index + 1}" for index in range(nodes)) if lab is None else tuple(item.name for item in lab.all_machines)
        self._unanswered = unanswered
        self._lab = lab
        self._settings = tuple(settings)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """For whatever shall speak with this Slurm; its jobs inherit it, and end with it."""
        return {**os.environ, **self._own_environment}

    @property
    def _own_environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf), self.MARK: self._mark}

    def commands(self, deadline_s: float = 20.0) -> SlurmCommands:
        return SlurmCommands(deadline_s, str(self.conf))

    def start_controller(self) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])

    def end_controller(self) -> None:
        """kill -9."""
        self._processes["slurmctld"].kill()
        self._processes.pop("slurmctld").wait()

    def signal_controller(self, number: int) -> None:
        self._processes["slurmctld"].send_signal(number)

    def await_states(self, states: Sequence[str], limit_s: float = 60.0) -> None:
        """Wait until every node that answers is in one of these states ("idle", ...)."""
        end_s, answer = time.monotonic() + limit_s, ""
        while time.monotonic() < end_s:
            try:
                answer = self.commands().call(["sinfo", "-h", "-N", "-n", ",".join(self.nodes), "-o", "%N %T"])
            except ActuatorError as error:
                answer = str(error)
            found = dict(line.split() for line in answer.splitlines() if len(line.split()) == 2)
            if all(found.get(node) in states for node in self.nodes):
                return
            time.sleep(0.2)
        raise LabError(f"Slurm's nodes are not {' or '.join(states)} after {limit_s:.0f} s: {' '.join(answer.split())[:300]}")

    def _start(self) -> None:
        missing = [name for name in ("munged", "slurmctld", "slurmd", "scontrol") if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            why = f"{missing[0]} is not on the PATH" if missing else "slurmd needs root"
            raise LabError(f"no Slurm can be started here: {why} (Debian: apt-get install slurmctld slurmd slurm-client munge)")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir(exist_ok=True)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self._write_conf(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mslurm-")))
        files = {
            "key-file": "munge.key",
            "socket": "munge.sock",
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munged.seed",
        }
        self._spawn("munged", ["munged", "-F", "-f", *(f"--{flag}={self.folder / name}" for flag, name in files.items())])
        self._await_socket()
        self.start_controller()
        for node in self.nodes:
            self._start_node(node)
        self.await_states(["idle"])

    def _start_node(self, node: str) -> None:
        command = ["slurmd", "-D", "-N", node, "-f", str(self.conf)]
        if self._lab is None:
            self._spawn(node, command)
            return
        machine = next(item for item in self._lab.all_machines if item.name == node)
        machine.spawn(command, self._own_environment, self.folder / f"{node}.out")

    def _await_socket(self, limit_s: float = 20.0) -> None:
        end_s = time.monotonic() + limit_s
        while not (self.folder / "munge.sock").exists():
            if time.monotonic() > end_s:
                raise LabError(f"munged did not start: see {self.folder / 'munged.out'}")
            time.sleep(0.05)

    def _write_conf(self, spool: str) -> None:
        """spool: a short path. A step's socket is in it, and a path of more than 107 characters fails every launch (seen)."""
        host = socket.gethostname().split(".")[0]
        ports = free_ports(len(self.nodes) + 1)
        addresses = ["127.0.0.1"] * len(self.nodes) if self._lab is None else [item.address for item in self._lab.all_machines]
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr={address} Port={port} CPUs=4 State=UNKNOWN"
            for node, address, port in zip(self.nodes, addresses, ports[1:], strict=True)
        ]
        names = ",".join(self.nodes)
        if self._unanswered:  # port 9 of loopback: refused at once
            lines.append(f"NodeName=x[1-{self._unanswered}] NodeHostname=nowhere NodeAddr=127.0.0.1 Port=9 CPUs=4 State=UNKNOWN")
            names += f",x[1-{self._unanswered}]"
        self.conf.write_text(
            _CONF.format(
                host=host,
                address=self._lab.controller_address if self._lab else "127.0.0.1",
                port=ports[0],
                folder=self.folder,
                spool=spool,
                slurmd_timeout=0 if self._unanswered else 300,
                nodes="\n".join([*self._settings, *lines]),
                names=names,
            )
        )
