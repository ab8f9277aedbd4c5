"""The standby barrier and the in-place restart: `minder.run(main)` calls main once per generation, in one process.

Without a launcher (plain python, torchrun) `run(main)` is main().
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from minder.edge.worker import pulse
from minder.edge.worker.cause import errno_of, said, speaking
from minder.edge.worker.connections import cut_connections, open_sockets
from minder.edge.worker.control import Assignment, Control, current
from minder.edge.worker.device import abort_device_groups, allocated_bytes
from minder.edge.worker.failures import Interrupted, NonFiniteGradient, disk_of, fingerprint, is_victim, traceback_tail
from minder.edge.worker.teardown import tear_down

__all__ = ["apply_environment", "report_exception", "run"]

T = TypeVar("T")
_AGAIN_S = 1.0  # an Interrupted that the script swallowed is raised again after this
_CUT_EVERY_S = 0.25
_EXIT_CANNOT_RESTART = 75  # the old generation could not be torn down: a fresh process is needed
_assigned_names: set[str] = set()


def run(main: Callable[[], T]) -> T | None:
    """Stand at the barrier until this process has a rank, set the environment, call main().

    When the launcher interrupts the generation, or main raises (a peer's death breaks its collective, or a fault of its own),
    what happened is reported, torch.distributed is torn down, and the process waits for its next generation. Returns what main
    returns; None if the job ended while this process was waiting.
    """
    control = current()
    if control is None:
        return main()
    generation = _Generation(control)
    done = -1
    while True:
        assignment = control.next_assignment(done)
        if assignment is None:
            return None
        apply_environment(assignment)
        control.send("running", generation=assignment.generation, in_place=generation.in_place)
        finished, result = generation.attempt(main, assignment.generation)
        if finished:
            control.send("done", generation=assignment.generation)
            return result
        done = assignment.generation


class _Generation:
    """One attempt at main, and the way out of it. `active` is the generation whose user code runs, or None."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._signal = _interrupt_signal()
        self._keep: frozenset[str] = frozenset()
        self._memory_before = 0
        self._armed = False
        self._raised_at_s = 0.0
        self.active: int | None = None
        self.in_place = threading.current_thread() is threading.main_thread()

    def attempt(self, main: Callable[[], T], generation: int) -> tuple[bool, T | None]:
        """(True, result) if main came to its end, (False, None) if it must be tried again in a later generation."""
        if self.in_place:
            signal.signal(self._signal, self._handle)
        self._keep, self._memory_before = open_sockets(), allocated_bytes()
        self._raised_at_s = 0.0
        self.active = generation
        self._control.on_interrupt(self._interrupt)
        error: BaseException | None = None
        try:
            try:
                self._armed = True
                self._raise_if_stopped()
                result = main()
                self._armed = False
                return True, result
            finally:
                self._armed = False
                self.active = None
        except SystemExit as end:
            if end.code in (None, 0):
                self._control.send("done", generation=generation)
            elif speaking(end) is not end and generation > self._control.stopped_generation:
                report_exception(self._control, end, generation)  # sys.exit(1) where an exception was handled
            raise
        except KeyboardInterrupt:
            raise
        except (Exception, Interrupted) as caught:  # noqa: BLE001 - entry point: whatever main raises is reported, never lost
            if generation > self._control.stopped_generation:
                report_exception(self._control, caught, generation)
            error = caught
        self._leave(error)
        return False, None

    def _leave(self, error: BaseException | None) -> None:
        """Of the generation nothing stays, or nothing of the process: half torn down it must not join the next one. A fresh one does."""
        is_down = False
        try:
            tear_down(error, self._keep, _EXIT_CANNOT_RESTART, self._memory_before)
            is_down = True
        finally:
            if not is_down:  # it walks through torch's own state, which may raise anything: printed, and the process ends
                traceback.print_exc()
                os._exit(_EXIT_CANNOT_RESTART)

    def _raise_if_stopped(self) -> None:
        if self.active is not None and self.active <= self._control.stopped_generation:
            raise Interrupted

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._armed and now_s - self._raised_at_s >= _AGAIN_S:
            self._raised_at_s = now_s
            self._raise_if_stopped()

    def _interrupt(self, generation: int, deadline_s: float) -> None:
        """In the background thread: bring the main thread out of user code, whatever it is waiting for."""
        until_s = time.monotonic() + deadline_s
        while self.active is not None and self.active <= generation and time.monotonic() < until_s:
            main_thread = threading.main_thread().ident
            if self.in_place and main_thread is not None:
                signal.pthread_kill(main_thread, self._signal)
            abort_device_groups()
            cut_connections(self._keep)
            pulse.tick()
            time.sleep(_CUT_EVERY_S)


def apply_environment(assignment: Assignment) -> None:
    """Become the assigned rank: its variables are set, those of the former place are removed."""
    for name in _assigned_names - set(assignment.env):
        os.environ.pop(name, None)
    _assigned_names.update(assignment.env)
    os.environ.update(assignment.env)
    rank = assignment.env.get("RANK", "-1")
    pulse.switch_page(os.environ.get("MINDER_HEARTBEAT_FILE"), int(rank) if rank.isdigit() else -1, assignment.generation)


def report_exception(control: Control, error: BaseException, generation: int) -> None:
    """Report to the launcher what main raised, and mark it so that the bootstrap does not report it again. Of a chain or a group the
    exception that speaks."""
    cause = speaking(error)
    name, message = said(cause)
    fields: dict[str, Any] = {"time_s": time.time(), "generation": generation, "step": pulse.last_step()}
    if isinstance(cause, NonFiniteGradient) and not cause.reported:
        control.send("nonfinite", what="gradient", message=message, **fields)
    control.send(
        "exception",
        type=name,
        message=message[:2000],
        fingerprint=fingerprint(cause),
        victim=is_victim(name, message),
        errno=errno_of(cause),
        disk=disk_of(cause),
        traceback_tail=traceback_tail(error)[-4000:],
        **fields,
    )
    with contextlib.suppress(AttributeError):
        error.__minder_reported__ = True  # type: ignore[attr-defined]


def _interrupt_signal() -> signal.Signals:
    name = os.environ.get("MINDER_INTERRUPT_SIGNAL", "SIGUSR2")
    return getattr(signal.Signals, name, signal.SIGUSR2)
