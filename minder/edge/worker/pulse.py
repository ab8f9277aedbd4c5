"""The heartbeat of a training loop: one call per step, some microseconds, and no way to break or block the job.

The page is at MINDER_HEARTBEAT_FILE (set by the launcher for its own worker, whose pid is in MINDER_HEARTBEAT_PID), or else
at `<run dir>/heartbeats/pid-<pid>`. Whatever goes wrong here is counted in `swallowed()` and never reaches the caller.
"""

from __future__ import annotations

import atexit
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from minder.edge.checkpoint import resumed
from minder.edge.worker.own_numbers import OwnNumbers
from minder.model.private import make_meeting, meeting_mode
from minder.wire.heartbeat import NONFINITE_LOCAL_GRADIENT, SAID_NAN, HeartbeatPage

__all__ = ["default_run_dir", "heartbeat", "phase", "swallowed"]

_SIZE_BYTES = 4096
_NAN = math.nan
_PAGE_ERRORS = (OSError, ValueError, struct.error)  # the disk, a page that was closed, a number that does not fit
_page: HeartbeatPage | None = None
_page_pid = 0
_failed_pid = 0  # the process in which opening the page failed: it stays silent
_forked = False  # the page is the parent's
_swallowed = 0
_own = OwnNumbers()
_not_by_script = 0  # records on the page that no heartbeat of the script wrote


def heartbeat(
    step: int,
    loss: float | None = None,
    grad_norm: float | None = None,
    *,
    samples: float | None = None,
    tokens: float | None = None,
    own_loss: float | None = None,
    own_grad_norm: float | None = None,
    **ignored: Any,
) -> None:
    """Say that `step` is done. Never raises and never blocks; unknown keywords are ignored.

    samples or tokens: the work of this step, of all ranks together, for relative MFU; tokens count where both are given.

    own_loss and own_grad_norm are this rank's, before anything is reduced: they tell one rank's wrong numbers from a batch that is bad for
    all. A loop with `install_gradient_guard` needs neither.

    loss and grad_norm are numbers or CPU tensors of one element. A tensor on an accelerator is not read, since reading it
    would wait for the device: pass `loss.item()` where the loop reads it anyway.
    """
    global _swallowed
    try:  # everything is checked before the page is touched
        if type(step) is not int:
            step = int(step)
        if type(loss) is not float:
            loss = _number(loss)
        elif loss != loss:
            loss = SAID_NAN
        if type(grad_norm) is not float:
            grad_norm = _NAN if grad_norm is None else _number(grad_norm)
        elif grad_norm != grad_norm:
            grad_norm = SAID_NAN
        if own_loss is not None or own_grad_norm is not None:
            _look_at_own(step, own_loss, own_grad_norm)
        _beat(step, loss, grad_norm)
        if tokens is not None or samples is not None:
            _add_work(tokens, samples)
    except Exception:  # noqa: BLE001 - a heartbeat must not be able to end a training step: counted, see swallowed()
        _swallowed += 1


def _add_work(tokens: float | None, samples: float | None) -> None:
    amount = _number(samples if tokens is None else tokens)
    if _page is not None and _page_pid == os.getpid() and 0.0 <= amount < math.inf:
        _page.work(amount, "samples" if tokens is None else "tokens")


def _look_at_own(step: int, loss: Any, grad_norm: Any) -> None:
    found = _own.look(step, *(None if _is_on_device(value) else value for value in (loss, grad_norm)))
    if found == "nonfinite":
        beat_nonfinite(step)
    elif found is not None:
        beat_spike(step, *found)


def _first_beat(step: int, loss: float, grad_norm: float) -> None:
    """The first heartbeat of this process: it opens the page."""
    page = _open()
    if page is not None:
        page.beat(step, loss, grad_norm)


_beat: Callable[[int, float, float], None] = _first_beat  # the open page's own: a step asks neither which page nor which process it is


class phase:  # it reads as a word of the user's script: `with minder.phase("checkpoint"):`
    """Mark a stretch of time (checkpoint, evaluation, compile) in which missing steps are no hang. May be nested."""

    __slots__ = ("_name", "_outer")
    _open_name = ""

    def __init__(self, name: str) -> None:
        self._name = str(name)
        self._outer = ""

    def __enter__(self) -> phase:
        self._outer, phase._open_name = phase._open_name, self._name
        _mark_phase(self._name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        phase._open_name = self._outer
        _mark_phase(self._outer)


def default_run_dir() -> Path:
    """Where agent, launcher and workers of one machine meet: MINDER_RUN_DIR, /run/minder as root, else a private folder."""
    chosen = os.environ.get("MINDER_RUN_DIR")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/minder")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "minder" if runtime else Path(f"/tmp/minder-{os.getuid()}")


def swallowed() -> int:
    """How many heartbeats could not be written, and were dropped in silence."""
    return _swallowed


def switch_page(path: str | None, rank: int, generation: int) -> None:
    """A worker got its place: write to that page from now on, as that rank. Called between generations, by the barrier.

    The page starts afresh even in the same file: an interrupt may have cut the last write of the old generation in two.
    """
    global _failed_pid, _swallowed, _not_by_script
    try:
        if path:
            stale = _page if _page_pid == os.getpid() else None
            page = _create(Path(path))
            _use(page)
            if stale is not None and stale.path != page.path:
                stale.path.unlink(missing_ok=True)
        _failed_pid, _not_by_script, phase._open_name = 0, 0, ""
        if _page is not None and _page_pid == os.getpid():
            _page.identify(rank, generation)
    except _PAGE_ERRORS:  # no page (read-only or full disk) must not stop the job: counted, see swallowed()
        _swallowed += 1


def tick() -> None:
    """The interpreter still runs: called by the background thread. Never opens a page."""
    page = _page
    if page is not None and _page_pid == os.getpid():
        page.alive()


def beat_from_log(step: int, loss: float | None, grad_norm: float | None) -> None:
    """A step that the launcher read in the log: written only while the script itself never beats."""
    global _not_by_script
    if _page is not None and _page_pid == os.getpid() and _page.count == _not_by_script:
        _page.beat(step, _number(loss), _number(grad_norm))
        _not_by_script += 1


def beat_nonfinite(step: int) -> None:
    """This rank's own gradient was not finite before the all-reduce."""
    global _swallowed, _not_by_script
    try:
        page = _page if _page_pid == os.getpid() else _open()
        if page is not None:
            page.beat(step, flags=NONFINITE_LOCAL_GRADIENT)
            _not_by_script += 1
    except _PAGE_ERRORS:  # reported over the control channel as well: counted, see swallowed()
        _swallowed += 1


def beat_spike(step: int, squared: float, usual: float) -> None:
    """This rank's own gradient was far above its past before the all-reduce: the sum of its squares, and their usual value."""
    global _swallowed
    try:
        page = _page if _page_pid == os.getpid() else _open()
        if page is not None:
            page.spike(step, squared, usual)
    except _PAGE_ERRORS:  # counted, see swallowed()
        _swallowed += 1


def last_step() -> int:
    """The newest step that this process wrote, or -1."""
    return -1 if _page is None or _page_pid != os.getpid() else _page.last_step()


def next_step() -> int:
    """The step under way: after the newest heartbeat, or after the checkpoint that this process went on from."""
    return max(last_step(), resumed.last()) + 1


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if _is_on_device(value):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan
    return SAID_NAN if number != number else number


def _is_on_device(value: Any) -> bool:
    """To read it would wait for the accelerator."""
    device = getattr(value, "device", None)
    return device is not None and getattr(device, "type", "cpu") != "cpu"


def _mark_phase(name: str) -> None:
    global _swallowed
    try:
        page = _page if _page_pid == os.getpid() else _open()
        if page is not None:
            page.phase(name)
    except _PAGE_ERRORS:  # counted, see swallowed()
        _swallowed += 1


def _open() -> HeartbeatPage | None:
    """The page of this very process: a forked or spawned child never writes its parent's page."""
    global _failed_pid, _swallowed
    pid = os.getpid()
    if _failed_pid == pid:
        _swallowed += 1
        return None
    _failed_pid = pid
    given = os.environ.get("MINDER_HEARTBEAT_FILE")
    owner = os.environ.get("MINDER_HEARTBEAT_PID", "" if _forked else str(pid))
    if given and owner == str(pid):
        path = Path(given)
        os.environ["MINDER_HEARTBEAT_PID"] = str(pid)  # so that a child that inherits the variable keeps off this page
    else:
        path = default_run_dir() / "heartbeats" / f"pid-{pid}"
        atexit.register(_remove, path, pid)
    page = _create(path)
    page.identify(_environment_number("RANK"), _environment_number("MINDER_GENERATION"))
    _use(page)
    _failed_pid = 0
    return page


def _use(page: HeartbeatPage) -> None:
    global _page, _page_pid, _beat, _not_by_script
    _page, _page_pid, _beat, _not_by_script = page, os.getpid(), page.beat, 0


def _leave_to_parent() -> None:
    """In a forked child."""
    global _beat, _forked
    _beat, _forked = _first_beat, _page is not None


os.register_at_fork(after_in_child=_leave_to_parent)


def _create(path: Path) -> HeartbeatPage:
    """Reserve the blocks before mapping them: a write into a hole of a full disk would kill the process (SIGBUS)."""
    make_meeting(path.parent.parent, path.parent.name)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, meeting_mode(path.parent))
    try:
        os.posix_fallocate(handle, 0, _SIZE_BYTES)
    finally:
        os.close(handle)
    return HeartbeatPage(path)


def _environment_number(name: str) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return -1


def _remove(path: Path, pid: int) -> None:
    if pid == os.getpid():
        path.unlink(missing_ok=True)
