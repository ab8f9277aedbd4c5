"""One worker process as the launcher sees it: its state, its channel, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minder.edge.launcher.code import code_version
from minder.edge.launcher.settings import LaunchSettings
from minder.edge.launcher.spawn import restore_priority, spawn_worker

__all__ = ["Exit", "WorkerProcess"]

_GROUP_SHARE = 0.75  # of the grace: so long the rank has its process group to itself
State = Literal["starting", "waiting", "running", "interrupted", "exited", "ended"]


@dataclass(frozen=True, slots=True)
class Exit:
    """How and when (wall clock, at reaping) a process ended. code is None if a signal ended it, and the reverse."""

    time_s: float
    code: int | None
    signal: int | None


class WorkerProcess:
    """Started on construction, with the program that `settings` name. `on_message(worker, message)` and `on_exit(worker, exit)` are called
    in the event loop."""

    def __init__(
        self,
        settings: LaunchSettings,
        heartbeat: Path,
        log: Path,
        on_message: Callable[[WorkerProcess, Mapping[str, Any]], None],
        on_exit: Callable[[WorkerProcess, Exit], None],
        low_priority: bool = False,
        slot: int = 0,
    ) -> None:
        self.heartbeat = heartbeat
        self.state: State = "starting"
        self.generation = -1
        self.rank: int | None = None
        self.in_place = settings.barrier == "script"  # until it says so itself
        self.reaping = False
        self.finished = False  # said that its part of the job is done
        self.reached_barrier = False
        self.end_wanted = False  # its end, or its way back to the barrier, is our own doing
        self._on_message, self._on_exit = on_message, on_exit
        self._low_priority = low_priority
        self._buffer = b""
        self._end_asked = False
        self._kill_time_s = math.inf  # of the event loop's clock
        self._timers: list[asyncio.TimerHandle] = []
        self._loop = asyncio.get_running_loop()
        self.program = settings
        self.code_version = code_version(settings.command, settings.env, settings.update, settings.update_env, settings.code_root)
        self.exception_heard = False  # said what it raised
        self.log_start_bytes = log.stat().st_size if log.exists() else 0
        spawned = spawn_worker(settings, heartbeat, log, low_priority, self.code_version, slot)
        self.pid = spawned.process.pid
        self._process, self._channel, self._pidfd = spawned.process, spawned.channel, spawned.pidfd
        self._loop.add_reader(self._channel, self._read)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def alive(self) -> bool:
        return self.state not in ("exited", "ended")

    def assign(self, generation: int, env: Mapping[str, str], heartbeat: Path) -> None:
        """Give a waiting worker its rank."""
        if self._low_priority:
            restore_priority(self.pid)
        rank = env.get("RANK", "")
        self.generation, self.rank = generation, int(rank) if rank.isdigit() else None
        self.heartbeat, self.state, self.end_wanted = heartbeat, "running", False
        self._send({"kind": "assign", "generation": generation, "env": {**env, "MINDER_HEARTBEAT_FILE": str(heartbeat)}})

    def interrupt(self, grace_s: float) -> None:
        """Back to the barrier within grace_s, or killed: a script without minder.run is ended, since it cannot come back."""
        if self.state == "interrupted":
            return
        self.end_wanted = True
        if not self.in_place or grace_s <= 0:
            self.end(grace_s)
            return
        self.state = "interrupted"
        self._send({"kind": "interrupt", "generation": self.generation, "deadline_s": grace_s})
        self._kill_after(grace_s)

    def end(self, grace_s: float) -> None:
        """SIGTERM to the rank, to its whole process group after three quarters of grace_s, SIGKILL after grace_s; 0 is SIGKILL at once.

        The rank comes first and alone: one that saves on SIGTERM still needs its data loaders. Asked again, no signal is sent twice; only
        a shorter grace counts.
        """
        if not self.alive:
            return
        self.end_wanted = True
        if grace_s <= 0:
            self.kill_group(signal.SIGKILL)
            return
        first, self._end_asked = not self._end_asked, True
        if first:
            self.state = "interrupted"
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)
        if first or self._loop.time() + grace_s < self._kill_time_s:
            self._kill_after(grace_s)
            self._timers.append(self._loop.call_later(_GROUP_SHARE * grace_s, self.kill_group, signal.SIGTERM))

    def tell_step(self, step: int, loss: float | None, grad_norm: float | None) -> None:
        """A step read in the log, for the worker to write into its own page."""
        self._send({"kind": "step", "step": step, "loss": loss, "grad_norm": grad_norm})

    def back_at_barrier(self) -> None:
        self._cancel_kill()
        self._end_asked = False
        self.state, self.reached_barrier, self.end_wanted = "waiting", True, False

    def kill_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _kill_after(self, grace_s: float) -> None:
        self._cancel_kill()
        self._kill_time_s = self._loop.time() + grace_s
        self._timers = [self._loop.call_later(grace_s, self.kill_group, signal.SIGKILL)]

    def _cancel_kill(self) -> None:
        self._kill_time_s = math.inf
        while self._timers:
            self._timers.pop().cancel()

    def _send(self, message: Mapping[str, Any]) -> None:
        """A worker that reads nothing (stopped) fills its buffer in thousands of messages: what does not fit is dropped."""
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._channel)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # half a message of a process that died while it wrote
            if isinstance(message, dict):
                self._on_message(self, message)

    def _reap(self) -> None:
        """Read its last words, end what is left of its group while its number is still taken, then reap it."""
        time_s = time.time()
        self.reaping = True
        self._loop.remove_reader(self._pidfd)
        self._read()
        self._loop.remove_reader(self._channel)
        self._cancel_kill()
        self.kill_group(signal.SIGKILL)
        code = self._process.wait()
        os.close(self._pidfd)
        self._channel.close()
        self.state = "ended" if self.end_wanted else "exited"
        self._on_exit(self, Exit(time_s, code if code >= 0 else None, -code if code < 0 else None))
