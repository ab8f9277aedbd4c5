"""Python's tracebacks, with the innermost frame last: plain ones, pystack's, and the dumps of all threads that scripts write themselves.

Such a script goes over `sys._current_frames()`: before each thread's frames stands a line of its own, which holds the word "thread".
"""

from __future__ import annotations

import re

from minder.diagnose.stacks.records import Frame, Thread, make_frame, native_frame, newest_run

__all__ = ["ended_with", "has_frames", "parse_traceback", "parse_tracebacks"]

# pystack:  (Python) File "/app/train.py", line 3, in main     (C) File "???", line 0, in poll (/usr/lib/libc.so.6)
_FRAME = re.compile(
    r'^\s*(?:\((?P<kind>Python|C|Cython)\) )?File:? "(?P<file>[^"]*)", line (?P<line>\d+|\?+)(?:,)? in (?P<name>.+?)'
    r"(?: \((?P<library>[^()\s]*(?:/|\.so)[^()\s]*)\))?\s*$"
)
_THREAD = re.compile(r"^(?!\s*(?:\(\w+\) )?File\b).*\bthread\b.*$", re.IGNORECASE)
_NUMBER = re.compile(r"\b\d{3,}\b")
_LAST = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: .*)?$")
_INTERRUPTS = frozenset({"KeyboardInterrupt", "SignalException"})  # what a signal raises in whatever the process stands in


def has_frames(text: str) -> bool:
    """Whether a line of the text is a frame of a traceback, below a line that names a thread."""
    return '"' in text and any(_FRAME.match(line) for line in text.splitlines()) and any(map(_THREAD.match, text.splitlines()))


def parse_tracebacks(text: str) -> tuple[Thread, ...]:
    """Threads of the newest dump. The main thread is the one that is called so, else the one that began in a module."""
    blocks: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        found = _FRAME.match(line)
        if found is not None and blocks:
            blocks[-1][1].append(_frame(found))
        elif found is None and _THREAD.match(line) and not (blocks and not blocks[-1][1] and line.startswith(" ")):
            blocks.append((line, []))
    newest = newest_run([block for block in blocks if block[1]], name=lambda block: block[0])
    return tuple(_thread(header, tuple(reversed(frames))) for header, frames in newest)


def _thread(header: str, frames: tuple[Frame, ...]) -> Thread:
    number = _NUMBER.search(header)
    is_main = "MainThread" in header or any(frame.function == "<module>" for frame in frames)
    return Thread(frames, "MainThread" if "MainThread" in header else "", int(number[0]) if number else None, is_main)


def _frame(found: re.Match[str]) -> Frame:
    line = int(found["line"]) if found["line"].isdigit() else 0
    return native_frame(found["name"], found["library"] or "") if found["kind"] == "C" else make_frame(found["name"], found["file"], line)


def ended_with(text: str) -> str:
    """The exception below the last traceback of a text; "" where that is the interruption of a process, or no exception stands there.

    Such a traceback shows how a program failed, not where one stands.

    >>> ended_with('Traceback (most recent call last):\\n  File "a.py", line 3, in main\\nKeyError: 7\\n')
    'KeyError: 7'
    """
    _, _, below = text.rpartition(_LAST)
    line = next((line for line in below.splitlines()[1:] if line[:1].strip()), "") if _LAST in text else ""
    found = _EXCEPTION.match(line)
    return "" if found is None or found["type"].rpartition(".")[2] in _INTERRUPTS else line


def parse_traceback(text: str) -> tuple[Thread, ...]:
    """One thread from the last `Traceback (most recent call last):`, or from gdb's `py-bt` (most recent call first)."""
    text = text[max(text.rfind("Traceback (most recent call"), 0) :]
    frames = tuple(_frame(found) for line in text.splitlines() if (found := _FRAME.match(line)))
    return (Thread(frames if "most recent call first" in text else frames[::-1], main=True),) if frames else ()
