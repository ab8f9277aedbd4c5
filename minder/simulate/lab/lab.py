"""The lab itself: builds the machines, and takes all of it away again whatever happens."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from types import FrameType, TracebackType
from typing import Any, Literal, NoReturn, Self

from minder.model.errors import BadInputError, LabError
from minder.model.private import make_private
from minder.simulate.lab.capabilities import Capabilities, find_capabilities
from minder.simulate.lab.cgroup import Cgroup, find_layout
from minder.simulate.lab.clean import remove_lab
from minder.simulate.lab.machine import KERNEL_LOG, LabMachine, MachinePlace
from minder.simulate.lab.network import CONTROLLER_HOST, LabNetwork, find_free_subnets
from minder.simulate.lab.processes import LAB_VARIABLE, OWNER_VARIABLE
from minder.simulate.lab.record import RUN_ID, LabRecord, Owner, default_state_dir, read_records

__all__ = ["Lab"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Lab:
    """A lab of real processes on this machine. Use it as a context manager.

    mode: "namespaces" (root; raises BadInputError with the reason where that cannot be had), "processes" (no privileges), or "auto": the
    first that works. Machines are called m0.., standbys s0..; their names carry the run id. Nothing of it outlives the `with` block:
    exceptions, Ctrl-C, SIGTERM and SIGHUP all end in the same teardown. After kill -9, `minder lab clean` does it.
    """

    def __init__(
        self,
        machines: int = 6,
        standbys: int = 2,
        *,
        root_dir: Path,
        run_id: str | None = None,
        mode: Literal["auto", "namespaces", "processes"] = "auto",
        state_dir: Path | None = None,
    ) -> None:
        if machines < 1 or standbys < 0 or machines + standbys > 200:
            raise BadInputError(f"a lab needs 1 to 200 machines, standbys included; got {machines} and {standbys}")
        if run_id is not None and not RUN_ID.match(run_id):
            raise BadInputError(f"a lab's run id is four hex digits such as 3fa2; got {run_id!r}")
        self._labels = [*(f"m{i}" for i in range(machines)), *(f"s{i}" for i in range(standbys))]
        self._standbys = standbys
        self._wanted_mode = mode
        self._run_id = run_id
        self.root_dir = Path(root_dir).absolute()
        self._state_dir = state_dir or default_state_dir()
        self._lock = threading.Lock()
        self._handlers: dict[int, Any] = {}
        self.record: LabRecord | None = None
        self.network: LabNetwork | None = None
        self.capabilities = Capabilities()
        self.all_machines: list[LabMachine] = []
        self.controller_address = ""

    @property
    def machines(self) -> list[LabMachine]:
        """The machines that train at first."""
        return self.all_machines[: len(self._labels) - self._standbys]

    @property
    def standbys(self) -> list[LabMachine]:
        return self.all_machines[len(self._labels) - self._standbys :]

    @property
    def run_id(self) -> str:
        """Four hex digits that all names of this lab carry."""
        return "" if self.record is None else self.record.run_id

    @property
    def mark(self) -> dict[str, str]:
        """Environment of a process that serves this lab from outside its machines, and that `minder lab clean` shall find."""
        return {} if self.record is None else {LAB_VARIABLE: self.run_id, OWNER_VARIABLE: self.record.owner}

    @property
    def mode(self) -> str:
        """namespaces or processes."""
        return "" if self.record is None else self.record.mode

    def __enter__(self) -> Self:
        self._watch_signals()
        with contextlib.ExitStack() as half_built:
            half_built.callback(self.close)
            self._build()
            half_built.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start_agent(
        self, machine: LabMachine, token_file: Path, port: int, flags: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Popen[bytes]:
        """Start `minder agent <flags>` on a machine, listening on its management address, its view narrowed to the machine. env: what its
        environment holds on top."""
        # Without a namespace the interfaces are the host's, and a machine's metrics must be its own: it has none of that name.
        view = ["--cgroup", machine.cgroup.name] if machine.cgroup else ["--processes-of", "registry", "--interface", "none"]
        view += ["--kernel-log", str(KERNEL_LOG)]  # where faults write, whatever the environment names
        machine.agent = self._start_minder("agent", machine, token_file, port, [*view, *flags], env)
        return machine.agent

    def start_launcher(self, machine: LabMachine, token_file: Path, port: int, arguments: Sequence[str]) -> Popen[bytes]:
        """Start `minder launch <arguments>` on a machine, listening on its management address; arguments begin with --job."""
        machine.launcher = self._start_minder("launch", machine, token_file, port, arguments)
        return machine.launcher

    def close(self) -> None:
        """End every process, delete every namespace, link and cgroup. May be called twice."""
        with self._undisturbed():
            if self.record is not None:
                with ThreadPoolExecutor(8) as pool:
                    list(pool.map(lambda machine: machine.kill_all(), self.all_machines))
                remove_lab(self.record.run_id, self.record)
                self.record.remove(self._state_dir)
                self.record = None
        self._restore_signals()

    def _start_minder(
        self, verb: str, machine: LabMachine, token_file: Path, port: int, arguments: Sequence[str], env: Mapping[str, str] | None = None
    ) -> Popen[bytes]:
        own = ["--machine", machine.name, "--listen", f"{machine.address}:{port}", "--token-file", str(token_file)]
        folders = ["--run-dir", str(machine.run_dir), "--probe-folder", str(machine.scratch)]
        command = [sys.executable, "-m", "minder", verb, *own, *folders, *arguments]
        return machine.spawn(command, env, log_path=machine.place.directory / f"{verb}.log")

    def _build(self) -> None:
        mode = self._choose_mode()
        owner = str(Owner.current())
        self.record = self._claim(mode, owner)
        places = self._places(mode)
        if mode == "processes":
            self.all_machines = [LabMachine(place, owner, on_spawn=self._note_process) for place in places]
        else:
            self.network = LabNetwork(self.run_id, *map(ipaddress.IPv4Network, self.record.subnets))
            self.network.build(self._labels, owner)
            layout = find_layout()
            for place in places:
                cgroup = Cgroup(f"mdr{self.run_id}{place.label}", layout)
                cgroup.create()
                self.all_machines.append(LabMachine(place, owner, self.network, cgroup, self._note_process))
        for machine in self.all_machines:
            make_private(machine.run_dir)
            make_private(machine.scratch)

    def _choose_mode(self) -> Literal["namespaces", "processes"]:
        if self._wanted_mode == "processes":
            return "processes"
        self.capabilities = find_capabilities()
        reason = self.capabilities.refused.get("namespaces") or self.capabilities.refused.get("cgroups")
        if reason is None:
            return "namespaces"
        if self._wanted_mode == "namespaces":
            raise BadInputError(f"machines cannot be network namespaces here: {reason}; use --mode processes")
        return "processes"

    def _claim(self, mode: str, owner: str) -> LabRecord:
        taken = [subnet for record in read_records(self._state_dir) for subnet in record.subnets]
        subnets = [str(network) for network in find_free_subnets(2, taken)] if mode == "namespaces" else []
        for _ in range(50):
            run_id = self._run_id or secrets.token_hex(2)
            record = LabRecord(run_id, mode, owner, str(self.root_dir), list(self._labels), subnets)
            if record.create(self._state_dir):
                return record
            if self._run_id:
                raise BadInputError(f"a lab with run id {run_id} exists already: `minder lab clean` removes it if its owner is gone")
        raise LabError(f"no free run id: {self._state_dir / 'labs'} is full; run `minder lab clean`")

    def _places(self, mode: str) -> list[MachinePlace]:
        assert self.record is not None
        if mode == "processes":
            base = int(ipaddress.IPv4Address("127.1.0.0")) + (int(self.run_id, 16) << 8) % (254 << 16)
            management = data = ipaddress.IPv4Network((base, 24))
            interface = "lo"
        else:
            management, data = map(ipaddress.IPv4Network, self.record.subnets)
            interface = "data0"
        self.controller_address = str(management[CONTROLLER_HOST])
        return [
            MachinePlace(
                name=f"lab-{self.run_id}-{label}",
                label=label,
                index=index,
                run_id=self.run_id,
                address=str(management[index + 1]),
                data_address=str(data[index + 1]),
                data_interface=interface,
                directory=self.root_dir / f"lab-{self.run_id}-{label}",
            )
            for index, label in enumerate(self._labels)
        ]

    def _note_process(self, pid: int, ticks: int) -> None:
        with self._lock:
            if self.record is not None:
                self.record.processes.append((pid, ticks))
                self.record.save(self._state_dir)

    def _watch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            # A program that has set a handler of its own has its own way of ending, which must lead to `close` as well.
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, _leave)

    def _restore_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Teardown takes a moment; a second Ctrl-C in it must not leave half a lab behind."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, signal.SIG_IGN) for number in (*_SIGNALS, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
