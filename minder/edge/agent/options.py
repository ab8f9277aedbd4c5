"""An agent's options at its start."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path

from minder.edge.exporters.jobs import default_run_dir
from minder.edge.probes.contract import find_programs
from minder.model.errors import BadInputError
from minder.wire.tls import ServerTls
from minder.wire.token_files import Token

__all__ = ["AgentOptions", "parse_names", "parse_processes_of", "parse_retest_probes"]

DEFAULT_LISTEN = "127.0.0.1:9401"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """cgroup, processes_of: what the machine is, if not the whole host. discover: None means "where nothing narrower is said"; a
    run directory of its own counts as narrower, since several machines on one host have one each.

    logs: files in which a job that calls nothing of ours prints its steps; step_pattern: see minder.edge.signals.steps.StepReader.
    nccl_inspector: where NCCL's Inspector writes its JSON files (minder.edge.agent.nccl).
    retest: the site's test of this machine (minder.edge.agent.retest), none if empty; or retest_probes: probes of ours instead of it.
    probe_folder: where the disk probe writes, the system's temporary folder if not given.
    kernel_log: the device that is read, /dev/kmsg or the host's where a container has it elsewhere.
    processes_of is a pid, or "registry" for the trees of the launchers in run_dir. token None: no token asked for.
    metrics_token: opens /metrics and nothing else.
    """

    machine: str = field(default_factory=socket.gethostname)
    host: str = "127.0.0.1"
    port: int = 9401
    token: Token | None = None
    metrics_token: Token | None = None
    run_dir: Path = field(default_factory=default_run_dir)
    interval_s: float = 1.0
    cgroup: str | None = None
    processes_of: int | str | None = None
    pids: tuple[int, ...] = ()
    discover: bool | None = None
    interfaces: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    gpu: str = "auto"
    logs: tuple[Path, ...] = ()
    step_pattern: str | None = None
    nccl_inspector: Path | None = None
    retest: tuple[str, ...] = ()
    retest_probes: tuple[str, ...] = ()
    retest_deadline_s: float = 600.0
    probe_folder: Path | None = None
    kernel_log: Path = Path("/dev/kmsg")
    tls: ServerTls | None = None
    cgroup_root: Path = Path("/sys/fs/cgroup")
    infiniband_root: Path = Path("/sys/class/infiniband")

    @property
    def finds_jobs(self) -> bool:
        """Whether processes are recognised by their environment."""
        if self.discover is not None:
            return self.discover
        return not self.pids and self.processes_of is None and self.cgroup is None and self.run_dir == default_run_dir()


def parse_names(text: str | None) -> tuple[str, ...]:
    """Comma or space separated names; the `minder_` prefix may be written or left out."""
    return tuple(name.removeprefix("minder_") for name in (text or "").replace(",", " ").split())


def parse_processes_of(text: str | None) -> int | str | None:
    """A pid or "registry". Raises BadInputError."""
    if text is None or text == "registry":
        return text
    if not text.isdigit():
        raise BadInputError(f"--processes-of {text!r} is neither a pid nor the word registry")
    return int(text)


def parse_retest_probes(text: str | None, command: tuple[str, ...]) -> tuple[str, ...]:
    """Names of probes; none where none are named. Raises BadInputError for what is no probe, and beside a command."""
    names = tuple((text or "").replace(",", " ").split())
    if names and command:
        raise BadInputError("--retest and --retest-probes are two tests of one machine: give one of them")
    if "pair" in names:
        raise BadInputError("--retest-probes: the probe pair needs two machines, and a retest has one")
    return tuple(find_programs(names))
