"""A program of an entry, run on one folder: a process group of its own, a time limit, and a copy of the input for it alone.

The limit is processor time, so that a busy host does not change a result; one that only sleeps is ended after ten times as long.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from minder.model.errors import BadInputError
from minder.offline.benchmark.answers import Answer, read_answer
from minder.offline.benchmark.card import TIMED

__all__ = ["Program", "parse_program"]

_PATIENCE = 10.0
_MOST_BYTES = 1_000_000  # of standard output


@dataclass(frozen=True, slots=True)
class Program:
    """words: the command, to which the folder is added. name: what a table calls it."""

    words: tuple[str, ...]
    name: str

    def answer(self, folder: Path, part: str, limit_s: float) -> Answer:
        """What it says of this input. A program that fails, prints nonsense or takes too long has not answered; that is no error here."""
        with _copied(folder) as copy, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            environment = {"OMP_NUM_THREADS": "1", **os.environ}
            try:
                child = subprocess.Popen(
                    [*self.words, str(copy)], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
                )  # fmt: skip
            except OSError as error:  # such as a script without a first line that names its interpreter
                return Answer((), f"it could not be started: {error.strerror}")
            status, seconds = _wait(child, limit_s)
            for file in (out, err):
                file.seek(0)
            text, said = out.read(_MOST_BYTES + 1), err.read().decode(errors="replace")
        problem = _problem(status, limit_s, len(text), said)
        if problem is not None:
            return Answer((), problem, seconds)
        try:
            lines = read_answer(text.decode(errors="replace"), folder.name, part in TIMED, part == "dumps")
        except BadInputError as error:
            return Answer((), str(error), seconds)
        return Answer(lines, None, seconds)


def parse_program(command: str) -> Program:
    """A command as one types it. Raises BadInputError for one that cannot be started."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInputError(f"--program {command!r} is no command ({error}): mend its quotes") from error
    if not words or shutil.which(words[0]) is None:
        missing = f"no program {words[0] if words else ''!r} is on the PATH"
        if words and Path(words[0]).is_file():
            missing = f"{words[0]!r} is a file that may not be executed, or a name without ./ in front"
        raise BadInputError(f"--program {command!r} cannot be started: {missing}")
    return Program(tuple(words), " ".join(words))


@contextlib.contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    """The input in a folder that holds nothing else, under its own name."""
    with tempfile.TemporaryDirectory(prefix="minder-benchmark-") as scratch:
        copy = Path(scratch) / folder.name
        shutil.copytree(folder, copy)
        yield copy


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> tuple[int | None, float]:
    """Its exit status (None where it had to be ended), and the processor time of it and its children. What it has started ends with it."""
    end_s = time.monotonic() + _PATIENCE * limit_s
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s) + 5))
    status, used, pause_s = None, None, 0.01
    while used is None and time.monotonic() < end_s:
        pid, code, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            status, used = os.waitstatus_to_exitcode(code), usage.ru_utime + usage.ru_stime
        else:
            time.sleep(pause_s)
            pause_s = min(0.1, 1.5 * pause_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    if used is None:
        _, _, usage = os.wait4(child.pid, 0)
        used = usage.ru_utime + usage.ru_stime
    child.returncode = -signal.SIGKILL if status is None else status
    return (None if status == -signal.SIGXCPU else status), used


def _problem(status: int | None, limit_s: float, size: int, errors: str) -> str | None:
    if status is None:
        return f"it took longer than {limit_s:g} s of processor time, or {_PATIENCE * limit_s:g} s in all, and was ended"
    if status:
        lines: Sequence[str] = errors.strip().splitlines() or ["it printed no error"]
        how = f"it was ended by signal {-status}" if status < 0 else f"exit status {status}"
        return f"{how}: {lines[-1].strip()[:200]}"
    return f"it printed more than {_MOST_BYTES} bytes" if size > _MOST_BYTES else None
