"""This machine alone, without a configuration: an agent (and for `minder run` a launcher) of our own beside the controller."""

from __future__ import annotations

import fcntl
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from minder.config import JobConfig, LocalHandle, MachineConfig
from minder.model.children import end_with_parent
from minder.model.errors import BadInputError, MinderError, MissingExtraError
from minder.model.log import say, words_of
from minder.model.names import check_job_name
from minder.model.private import make_private, open_private
from minder.model.resources import default_state_dir
from minder.wire.machine_tokens import give_token

__all__ = ["SoloAgent", "SoloMachine", "machine_name", "run_here", "script_words"]

_START_S = 60.0
_END_S = 20.0  # longer than a launcher's own grace for its workers


class _Alone:
    """The processes that we start on loopback, and their common state. A context manager: all of them end with it, and with us."""

    def __init__(self, name: str, state_dir: Path | None = None) -> None:
        """Raises BadInputError for a name that a job may not have."""
        check_job_name("the job's name", name)
        self.state_dir = (state_dir or default_state_dir()) / "jobs" / name
        self.run_dir = self.state_dir / "run"
        self._tokens = self.state_dir / "tokens"
        self._name = name
        self._stack = ExitStack()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        self.ended = False

    def _open(self) -> None:
        """Raises BadInputError if the same job runs already."""
        make_private(self.run_dir)
        lock = self._stack.enter_context(open_private(self.state_dir / "lock"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInputError(f"a job named {self._name} is already run or watched from here: give this one another name") from None
        give_token(self._tokens, machine_name(), exchange=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.ended = True
        self._stack.close()

    def failure(self) -> str:
        """One line if a process of ours has ended although it should not, else ""."""
        for part, child in self._children.items():
            if child.poll() is not None:
                return f"the {part} ended with status {child.returncode}: {self._last_line(part)}"
        return ""

    def _spawn(self, part: str, arguments: Sequence[str]) -> None:
        port = _free_port()
        common = ["--machine", machine_name(), "--token-file", str(self._tokens / machine_name()), "--run-dir", str(self.run_dir)]
        command = [sys.executable, "-m", "minder", arguments[0], *common, "--listen", f"127.0.0.1:{port}", *arguments[1:]]
        with open_private(self.state_dir / f"{part}.log", "wb") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=partial(end_with_parent, signal.SIGTERM),  # a launcher takes its workers along
            )  # fmt: skip
        self._children[part], self._ports[part] = child, port
        self._stack.callback(_end, child)

    def _await_ports(self) -> None:
        """Raises MinderError with what a process said that did not come up."""
        end_s = time.monotonic() + _START_S
        for part, port in self._ports.items():
            while not _listens(port):
                if failure := self.failure():
                    raise MinderError(failure)
                if time.monotonic() > end_s:
                    raise MinderError(f"the {part} did not listen within {_START_S:.0f} s: {self._last_line(part)}")
                time.sleep(0.05)

    def _last_line(self, part: str) -> str:
        path = self.state_dir / f"{part}.log"
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return (words_of(lines[-1]) if lines else "it said nothing") + f" (see {path})"

    def _config(self, ranks: int, **fields: Any) -> JobConfig:
        urls: dict[str, Any] = {part: f"http://127.0.0.1:{port}" for part, port in self._ports.items()}
        machine = MachineConfig(name=machine_name(), local=LocalHandle(run_dir=str(self.run_dir)), **urls)
        return JobConfig(
            name=self._name,
            machines=(machine,),
            ranks_per_machine=ranks,
            machine_token_dir=str(self._tokens),
            state_dir=str(self.state_dir),
            **fields,
        )


class SoloMachine(_Alone):
    """Runs a script: agent, launcher, and the JobConfig that names them. `logs` is where each rank's output goes."""

    def __init__(
        self, name: str, script: Sequence[str], *, ranks: int, in_place: bool, policy: Mapping[str, Any] | None = None,
        state_dir: Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, state_dir)
        self.logs = {rank: self.state_dir / "logs" / f"{name}-{rank}.log" for rank in range(ranks)}
        self._script = list(script)
        self._in_place = in_place
        self._policy = dict(policy or {})
        self.step_pattern: str | None = None  # of the lines that the script prints, if minder does not know them

    def __enter__(self) -> JobConfig:
        """Raises MinderError if agent or launcher do not come up."""
        with ExitStack() as half_started:
            half_started.callback(self._stack.close)
            config = self._start()
            half_started.pop_all()
        return config

    def _start(self) -> JobConfig:
        from minder.act.recovery.rendezvous import RendezvousHost

        MissingExtraError.demand("torch", "torch")
        self._open()
        for path in self.logs.values():
            path.unlink(missing_ok=True)
        self._stack.callback(RendezvousHost(self.state_dir, "127.0.0.1").stop)
        self._spawn("agent", ["agent"])
        barrier = "script" if self._in_place else "bootstrap"
        flags = ["--job", self._name, "--slots", str(len(self.logs)), "--log-dir", str(self.state_dir / "logs"), "--barrier", barrier]
        self._spawn("launcher", ["launch", *flags, *_pattern_flag(self.step_pattern), "--", *self._script])
        RendezvousHost.ensure(self.state_dir, "127.0.0.1", ends_with_us=True)  # a killed run is not taken up: nothing of it may stay
        self._await_ports()
        return self._config(len(self.logs), policy=self._policy)


class SoloAgent(_Alone):
    """Watches processes: an agent that looks at these pids, and the JobConfig that names it."""

    def __init__(
        self, name: str, pids: Sequence[int], *, logs: Sequence[Path] = (), step_pattern: str | None = None, state_dir: Path | None = None
    ) -> None:  # fmt: skip
        super().__init__(name, state_dir)
        self._pids = tuple(pids)
        self._flags = [f"--log={path}" for path in logs] + _pattern_flag(step_pattern)

    def __enter__(self) -> JobConfig:
        """Raises BadInputError for a pid that is not there, MinderError if the agent does not come up."""
        missing = [pid for pid in self._pids if not Path(f"/proc/{pid}").exists()]
        if missing:
            raise BadInputError(f"no process {missing[0]} on this machine: give the numbers of running training processes")
        with ExitStack() as half_started:
            half_started.callback(self._stack.close)
            self._open()
            self._spawn("agent", ["agent", "--pids", ",".join(map(str, self._pids)), *self._flags])
            self._await_ports()
            config = self._config(len(self._pids))
            half_started.pop_all()
        return config


def _pattern_flag(pattern: str | None) -> list[str]:
    return [] if pattern is None else [f"--step-pattern={pattern}"]


def script_words(words: Sequence[str]) -> list[str]:
    """The script and its arguments, without the interpreter that many type before it. Raises BadInputError.

    >>> script_words(["python3", "-u", "-m", "package.train", "--steps", "3"])
    ['-m', 'package.train', '--steps', '3']
    """
    rest = list(words)
    if rest and re.fullmatch(r"python[0-9.]*", Path(rest[0]).name):
        rest = rest[1:]
        while rest and rest[0] in ("-u", "-B", "-O"):
            rest = rest[1:]
    if len(rest) > 1 and rest[0] == "-m":
        return rest
    if not rest or not Path(rest[0]).is_file():
        raise BadInputError(f"no script {rest[0] if rest else '(none)'} here: give the path of a Python file, or -m MODULE, after --")
    return rest


def run_here(machine: SoloMachine) -> int:
    """Run the script to its end; the exit status. What it prints goes to standard output, what minder does to standard error.

    SIGINT and SIGTERM end everything and are raised as KeyboardInterrupt. Main thread only.
    """
    from minder.app.build import build
    from minder.edge.launcher.tail import OutputTail
    from minder.record.incidents import Ledger, find_ledger

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    ledger_path = find_ledger()
    with machine as config:
        _end_former_run(config.name, ledger_path)
        app = build(config, act=True, ledger=Ledger(ledger_path))  # its machine is all there is: acting is to restart in place
        app.controller.on_say = _say
        try:
            with OutputTail({f"[rank {rank}] ": path for rank, path in machine.logs.items()}, lambda line: print(line, flush=True)):
                threading.Thread(target=_interrupt_on_failure, args=(machine,), daemon=True).start()
                app.begin()
                app.run(threading.Event())
        except KeyboardInterrupt:
            if not machine.failure():
                _say(f"interrupted: ends job {config.name}; its output stays in {machine.state_dir / 'logs'}")
                raise
        finally:
            app.close()
        phase, because = app.state.phase, machine.failure() or app.state.ended_because
    if phase == "finished":
        return 0
    _say(f"job {config.name} failed: {because}; its output is in {machine.state_dir / 'logs'}")
    return 1


def _say(message: str) -> None:
    say(f"minder: {message}")


def _interrupt(number: int, frame: object) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # a second one must not cut the ending short
    raise KeyboardInterrupt


def _interrupt_on_failure(machine: SoloMachine) -> None:
    """Without agent or launcher there is no job any more, wherever the controller waits just now."""
    while not machine.failure():
        time.sleep(0.5)
        if machine.ended:
            return
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _end_former_run(name: str, ledger_path: str) -> None:
    """A run that was killed cannot be taken up: its workers went with it. It must not look like one that still runs."""
    from minder.act.controller.state import fold_job
    from minder.record.incidents import Ledger
    from minder.record.incidents.endings import end_run

    with Ledger(ledger_path) as ledger:
        former = fold_job(name, ledger.events(job=name))
        if former.run and former.phase not in ("finished", "failed"):
            end_run(ledger, name, "failed", "it ended with its `minder run`")


def machine_name() -> str:
    """This machine's short host name."""
    return socket.gethostname().split(".")[0] or "localhost"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
