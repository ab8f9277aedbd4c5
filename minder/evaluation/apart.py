"""Recordings read in a process of their own: a rare damaged table makes the native Parquet reader end the process that it runs in.

One process reads them all, one after the other; if it ends, its recording is refused in a line and the next one gets another process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minder.errors import MinderError, RecordingError

if TYPE_CHECKING:
    from minder.types import Verdict

__all__ = ["replay_apart"]


def replay_apart(paths: Sequence[Path], until_s: float | None) -> Iterator[Iterator[Verdict]]:
    """The verdicts of each recording as they are found, in the given order. until_s: only what was known then (inclusive).

    Whoever takes them meets RecordingError for a recording that cannot be read, also where reading it ends the process.
    """
    with ExitStack() as stack:
        reader = stack.enter_context(_Reader())
        for path in paths:
            with closing(reader.replay(path, until_s)) as found:  # what was left of it is no answer to the next
                yield found


class _Reader:
    """A process that replays recordings, started when it is needed and again when it ended."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._process: Any = None
        self._ends: Connection

    def __enter__(self) -> _Reader:
        self._said = self._stack.enter_context(tempfile.NamedTemporaryFile(prefix="minder-replay-"))
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._stack.close()

    def replay(self, path: Path, until_s: float | None) -> Generator[Verdict]:
        """One recording's verdicts. Taken to the end, or the process is ended with what it had left."""
        self._start()
        done = False
        try:
            self._ends.send((path, until_s))
            while True:
                kind, what = self._ends.recv()
                if kind == "verdict":
                    yield what
                    continue
                done = True
                if kind == "refused":
                    raise what
                return
        except (EOFError, ConnectionError):
            raise self._why(path) from None
        finally:
            if not done:
                self._end()

    def _start(self) -> None:
        if self._process is not None:
            return
        start = multiprocessing.get_context("spawn")  # a fork of a process with native threads may never end
        self._ends, theirs = start.Pipe()
        self._process = start.Process(target=_read, args=(theirs, self._said.name), name="minder-replay", daemon=True)
        self._process.start()
        theirs.close()

    def _why(self, path: Path) -> Exception:
        """What ended the process."""
        self._process.join()
        code = self._process.exitcode
        if code >= 0:
            return RuntimeError(
                f"the reader of {path} ended with status {code}: this is a defect of minder, and its traceback stands above"
            )
        if code == -signal.SIGKILL:
            why = "its reader was killed, probably for its memory: replay a shorter recording, or on a larger machine"
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
    """The process: replays what it is told until nobody tells any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    _part_native_stderr(said)
    from minder.evaluation.replay import replay

    with suppress(EOFError, ConnectionError):
        while True:
            path, until_s = orders.recv()
            try:
                for verdict in replay(path, until_s):
                    orders.send(("verdict", verdict))
                answer: tuple[str, Any] = ("done", None)
            except MinderError as error:
                answer = ("refused", error)
            orders.send(answer)


def _part_native_stderr(said: str) -> None:
    """Warnings of ours go where they always went; what native code writes before it ends the process goes into a file."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    with open(said, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
