"""Why a process aborted, by the last lines of its log: C++ prints its exception and raises SIGABRT, and no Python code runs any more.

The watchdog of NCCL, a check of a library and an exception in a thread of C++ end so. A bare SIGABRT has no identity; its text has one.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from minder.edge.signals.exceptions import classify_exception

__all__ = ["LastWords", "read_last_words"]

_READ_BYTES = 64 * 1024
_THROWN = re.compile(
    r"terminate called after throwing an instance of '(?P<type>[^']+)'(?:\s*\n[^\n]*?what\(\):\s*(?P<text>.*))?", re.DOTALL
)
_UNCAUGHT = re.compile(
    r"libc\+\+abi: terminating (?:due to|with) uncaught exception of type (?P<type>\w+(?:::\w+)*)(?::\s*(?P<text>.*))?", re.DOTALL
)
_LOGGED = re.compile(r"^(?:\[[^\]\n]*\]:?)?\[?F\d{3,8} [\d:.]+ +(?:\d+ +)?\S+:\d+\] (?P<text>[^\n]*)", re.MULTILINE)
_ENDS = re.compile(r"\n(?:Exception raised from |frame #|\*\*\* |\[|Fatal Python error|Aborted)|\n\n")


@dataclass(frozen=True, slots=True)
class LastWords:
    """fingerprint: type, library and code. "" where no rule knows whose it is: no frames of the script are known, and a code that has
    either cause, without them, is not the same bug on another machine."""

    type: str
    message: str
    fingerprint: str
    victim: bool


def read_last_words(log: Path, since_bytes: int, ended_by: int | None) -> LastWords | None:
    """What a process that SIGABRT ended wrote last; None for any other end, and where nothing is known. since_bytes: the log's size when
    the process started."""
    if ended_by != signal.SIGABRT:
        return None
    try:
        with log.open("rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(max(0 if size < since_bytes else since_bytes, size - _READ_BYTES))  # smaller: copied away and emptied since
            text = handle.read().decode(errors="replace")
    except OSError:
        return None
    return _parse(text)


def _parse(text: str) -> LastWords | None:
    at = max(text.rfind("terminate called after throwing"), text.rfind("libc++abi: terminating"))
    found = None if at < 0 else _THROWN.match(text, at) or _UNCAUGHT.match(text, at)
    if found is not None:
        return _words(found["type"].rsplit("::", 1)[-1], _ENDS.split(found["text"] or "", maxsplit=1)[0].strip())
    logged = list(_LOGGED.finditer(text))
    return _words("FatalLog", logged[0]["text"].strip()) if logged else None


def _words(type_name: str, message: str) -> LastWords:
    """The rules know torch's Python exceptions; C++ throws the same under other names."""
    name = _PYTHON_NAMES.get(type_name, type_name)
    whose = classify_exception(name, message)
    known = whose.code and whose.kind != "unknown"
    return LastWords(name, message, f"{name}|{whose.library}:{whose.code}|" if known else "", whose.kind == "victim")


_PYTHON_NAMES = {"Error": "RuntimeError", "runtime_error": "RuntimeError", "logic_error": "RuntimeError", "exception": "RuntimeError",
                 "system_error": "OSError", "bad_alloc": "MemoryError", "FatalLog": "RuntimeError", "AcceleratorError": "RuntimeError",
                 "EnforceNotMet": "RuntimeError", "IoException": "RuntimeError", "TimeoutException": "RuntimeError"}  # fmt: skip
