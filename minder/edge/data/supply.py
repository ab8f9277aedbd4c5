"""The training process's side: one loader process at work, shadows that wait, and the change from one to the other."""

from __future__ import annotations

import logging
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import util
from typing import Any, Protocol

from minder.edge.data.channel import Channel, Packet, channel_pair
from minder.edge.data.patience import Patience, Stage
from minder.edge.data.position import Position
from minder.edge.data.process import BATCH, END, READY, SNAPSHOT, START, Snapshot, Start, load_units
from minder.edge.data.recipe import Fetched, Recipe
from minder.model.errors import DataError

__all__ = ["Loader", "LoaderProcess", "Supply"]

_log = logging.getLogger("minder.data")
_ATTEMPTS = 5


class Loader(Protocol):
    """What brings units in their order, once it was started."""

    def start(self, start: Start, ahead: int) -> None:
        """From a unit on; `ahead` units may lie ready."""

    def receive(self, timeout_s: float) -> Packet | None:
        """The next packet; None where none came in time, or none will come any more."""

    def grant(self) -> None:
        """One more unit may lie ready."""

    def is_alive(self) -> bool:
        """False once it has ended."""

    def end(self) -> str:
        """End it, whatever it does. Says how it was found: "hung", "killed by signal 9", "ended with status 1"."""


class LoaderProcess:
    """A process of a rank that reads data. It stays in the rank's process group, so that what ends a rank ends it too."""

    def __init__(self, recipe: Recipe, inherited: tuple[Channel, ...] = ()) -> None:
        self.channel, theirs = channel_pair()
        context: Any = multiprocessing.get_context(recipe.context)
        forked = context.get_start_method() == "fork"
        by_main = threading.current_thread() is threading.main_thread()
        others = (self.channel, *inherited) if forked else ()
        self._process = context.Process(target=load_units, args=(theirs, others, by_main, recipe), name="minder-loader")
        self._process.start()
        theirs.close()
        self.pid: int = self._process.pid
        self._gone = os.pidfd_open(self.pid)
        self._closed = False
        # multiprocessing waits for its processes when the interpreter ends: this one would wait for us
        self._finalizer: Any = util.Finalize(self, _kill, args=(self.pid,), exitpriority=10)

    def start(self, start: Start, ahead: int) -> None:
        try:
            self.channel.send(START, start.first, 0.0, start)
        except OSError:
            return  # gone: the next `receive` says so
        for _ in range(ahead):
            self.channel.grant()

    def receive(self, timeout_s: float) -> Packet | None:
        # What was sent before the end still counts, so the channel is asked first. Its end is no sign: workers hold a copy of it.
        if not self.channel.is_ready(timeout_s, self._gone):
            return None
        try:
            packet = self.channel.receive()
        except ConnectionError:
            packet = None
        self._closed = packet is None
        return packet

    def grant(self) -> None:
        self.channel.grant()

    def is_alive(self) -> bool:
        return not self._is_gone(0)

    def end(self) -> str:
        if self._finalizer is None:
            return "ended"
        gone = self._is_gone(1000 if self._closed else 0)  # a process that ends closes its files first
        _kill(self.pid)
        self._process.join()
        self._finalizer.cancel()
        self._finalizer = None
        os.close(self._gone)
        self.channel.close()
        code = self._process.exitcode or 0
        if not gone:
            return "hung"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def _is_gone(self, wait_ms: int) -> bool:
        poll = select.poll()
        poll.register(self._gone, select.POLLIN)
        return bool(poll.poll(wait_ms))


class Supply:
    """Units in the planned order, whatever happens to the processes that read them.

    make: a new process that waits for its start. shadows: how many wait. replaced: called with the unit's number and how a process ended.
    """

    def __init__(
        self, make: Callable[[], Loader], shadows: int, patience: Patience, ahead: int, replaced: Callable[[int, str], None] | None = None
    ) -> None:
        self._make, self._shadows, self._patience, self._ahead = make, shadows, patience, ahead
        self._replaced = replaced
        self._active: Loader | None = None
        self._waiting: list[Loader] = []
        self._snapshot: Snapshot | None = None
        self._position = Position()
        self._stage: Stage = "answer"
        self._started_s = 0.0

    def begin(self, first: int, position: Position, snapshot: Snapshot | None = None) -> None:
        """The next unit that is taken is number `first`."""
        self.end()
        self._position, self._snapshot = position, snapshot
        self._bring_up(first)

    @property
    def processes(self) -> list[Loader]:
        """The one at work first, then the shadows."""
        return ([self._active] if self._active is not None else []) + self._waiting

    def snapshot(self) -> Snapshot | None:
        """The newest one, of a dataset that keeps a state."""
        return self._snapshot

    def take(self, number: int) -> Fetched | None:
        """Unit `number`, which follows the one that was taken last. None after the plan's last one.

        Raises DataError where several processes in a row bring it not.
        """
        ends: list[str] = []
        while True:
            assert self._active is not None
            packet = self._active.receive(self._patience.limit_s(len(ends), self._stage))
            if packet is None or (packet.kind in (BATCH, END) and packet.number != number):
                ends.append(self._active.end())
                self._replace(number, ends)
            elif packet.kind == READY:
                self._patience.learn(time.monotonic() - self._started_s, self._stage)
                self._stage = "first"
            elif packet.kind == SNAPSHOT:
                self._snapshot = packet.value
            else:
                return self._accept(packet)

    def end(self) -> None:
        """End all processes."""
        for each in self.processes:
            each.end()
        self._active, self._waiting = None, []

    def _accept(self, packet: Packet) -> Fetched | None:
        assert self._active is not None
        if packet.kind == END:
            return None
        assert packet.kind == BATCH
        self._patience.learn(packet.seconds, self._stage)
        self._stage = "usual"
        self._active.grant()
        self._renew_shadows(packet.number)
        found: Fetched = packet.value
        return found

    def _renew_shadows(self, number: int) -> None:
        """One that died while it waited is of no use when it is needed."""
        for place, shadow in enumerate(self._waiting):
            if not shadow.is_alive():
                end = shadow.end()
                self._waiting[place] = self._make()
                self._report(number, f"shadow {end}")

    def _replace(self, number: int, ends: list[str]) -> None:
        self._active = None
        if len(ends) >= _ATTEMPTS:
            self.end()
            raise DataError(
                f"{_ATTEMPTS} loader processes in a row ended before a batch came (the last one {ends[-1]}): look at what they wrote on "
                "standard error, at this machine's memory (SIGKILL is often its lack) and at the storage of the data"
            )
        self._report(number, ends[-1])
        self._bring_up(number)

    def _report(self, number: int, end: str) -> None:
        _log.warning("loader process of this rank replaced: %s", end)
        if self._replaced is not None:
            self._replaced(number, end)

    def _bring_up(self, first: int) -> None:
        self._active = self._waiting.pop(0) if self._waiting else self._make()
        self._stage, self._started_s = "answer", time.monotonic()
        self._active.start(Start(first, self._position, self._snapshot), self._ahead)
        while len(self._waiting) < self._shadows:
            self._waiting.append(self._make())


def _kill(pid: int) -> None:
    """Its workers end with it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
