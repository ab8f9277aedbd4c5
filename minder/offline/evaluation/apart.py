"""Recordings read in a process of their own: a rare damaged table makes the native Parquet reader end the process that it runs in.

A process reads one recording after the other; if it ends, its recording is refused in a line and the next one gets another process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minder.model.errors import MinderError, RecordingError
from minder.model.log import set_up_logging

if TYPE_CHECKING:
    from minder.model.evidence import Verdict

__all__ = ["answers_apart", "replay_apart"]


def replay_apart(paths: Sequence[Path], until_s: float | None) -> Iterator[Iterator[Verdict]]:
    """The verdicts of each recording as they are found, in the given order. until_s: only what was known then (inclusive).

    Taking them raises RecordingError for a recording that cannot be read, also where reading it ends the process.
    """
    from minder.offline.evaluation.replay import replay

    with ExitStack() as stack:
        reader = stack.enter_context(_Reader())
        for path in paths:
            with closing(reader.stream(path, replay, path, until_s)) as found:  # what was left of it is no answer to the next
                yield found


def answers_apart(
    task: Callable[..., Any], orders: Sequence[tuple[Path, tuple[Any, ...]]], jobs: int = 1
) -> Iterator[tuple[int, Any | RecordingError]]:
    """(number of the order, what the task answers) as answers come. orders: the recording that a refusal names, and the task's arguments.

    task: at the top of a module. jobs: processes. RecordingError in the answer's place where reading it ends the process, or raises one.
    """
    with ExitStack() as stack:
        free = [stack.enter_context(_Reader()) for _ in range(min(max(jobs, 1), len(orders)))]
        busy: dict[Any, tuple[int, _Reader]] = {}  # by what becomes readable when the reader answers
        for number, (path, arguments) in enumerate(orders):
            reader = free.pop()
            busy[reader.order(path, _once, task, *arguments)] = (number, reader)
            while busy and (not free or number == len(orders) - 1):
                for ready in wait(list(busy)):
                    answered, reader = busy.pop(ready)
                    free.append(reader)
                    yield answered, reader.answer()


def _once(task: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    yield task(*arguments)


class _Reader:
    """A process that reads recordings, started when it is needed and again when it ended."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._process: Any = None
        self._ends: Connection
        self._path = Path()

    def __enter__(self) -> _Reader:
        self._said = self._stack.enter_context(tempfile.NamedTemporaryFile(prefix="minder-replay-"))
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._stack.close()

    def order(self, path: Path, task: Callable[..., Iterator[Any]], *arguments: Any) -> Connection:
        """Begin it. Returns what becomes readable when it answers, or ends. path: the recording that a refusal names."""
        self._start()
        self._path = path
        with suppress(ConnectionError):  # it ended: taking the answer says why
            self._ends.send((task, arguments))
        return self._ends

    def stream(self, path: Path, task: Callable[..., Iterator[Any]], *arguments: Any) -> Generator[Any]:
        """All that one task yields. Taken to the end, or the process is ended with what it had left."""
        done = False
        self.order(path, task, *arguments)
        try:
            while True:
                kind, what = self._take()
                done = kind != "item"
                if kind == "refused":
                    raise what
                if done:
                    return
                yield what
        finally:
            if not done:
                self._end()

    def answer(self) -> Any | RecordingError:
        """What the ordered task yielded, once."""
        try:
            kind, what = self._take()
            if kind == "item":
                self._take()  # that it is done
        except RecordingError as error:
            self._end()
            return error
        if kind == "refused" and not isinstance(what, RecordingError):
            raise what
        return what

    def _take(self) -> tuple[str, Any]:
        try:
            kind, what = self._ends.recv()
        except (EOFError, ConnectionError):
            raise self._why() from None
        return kind, what

    def _start(self) -> None:
        if self._process is not None:
            return
        start = multiprocessing.get_context("spawn")  # a fork of a process with native threads may never end
        self._ends, theirs = start.Pipe()
        self._process = start.Process(target=_read, args=(theirs, self._said.name), name="minder-replay", daemon=True)
        self._process.start()
        theirs.close()

    def _why(self) -> Exception:
        """What ended the process."""
        path = self._path
        self._process.join()
        code = self._process.exitcode
        if code >= 0:
            return RuntimeError(
                f"the reader of {path} ended with status {code}: this is a defect of minder, and its traceback stands above"
            )
        if code == -signal.SIGKILL:
            why = "its reader was killed, probably for its memory: take a larger machine, fewer --jobs, or a shorter recording"
            return RecordingError(f"{path} cannot be read: {why}")
        first = Path(self._said.name).read_bytes()[:200].decode("utf-8", "replace").partition("\n")[0]
        how = f"{signal.Signals(-code).name}: {' '.join(first.split()) or 'it said nothing'}"
        return RecordingError(f"{path} cannot be read: a table there is damaged and ended its reader ({how}): write it again")

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        self._process.close()
        self._ends.close()
        self._process = None


def _read(orders: Connection, said: str) -> None:
    """The process: does what is ordered until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    _part_native_stderr(said)
    set_up_logging()
    with suppress(EOFError, ConnectionError):
        while True:
            task, arguments = orders.recv()
            try:
                for item in task(*arguments):
                    orders.send(("item", item))
                answer: tuple[str, Any] = ("done", None)
            except MinderError as error:
                answer = ("refused", error)
            orders.send(answer)


def _part_native_stderr(said: str) -> None:
    """Warnings of ours go where they always went; what native code writes before it ends the process goes into a file."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    with open(said, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
