"""Python's own stacks: `faulthandler` (innermost first), gdb's `py-bt`, and plain tracebacks (innermost last)."""

from __future__ import annotations

import functools
import re

from minder.diagnose.stacks.newest import newest_run
from minder.diagnose.stacks.normalise import make_frame
from minder.diagnose.stacks.records import Frame, Thread

__all__ = ["parse_faulthandler", "parse_traceback"]

# Current thread 0x00007f0a (most recent call first):   Thread 0x00007f0a [Thread-1 (_pin] (most recent call first):
_HEADER = re.compile(
    r"^(?:(?P<current>Current t|T)hread (?P<ident>0x[0-9a-fA-F]+)(?: \[(?P<name>.*?)\]?)?|Stack) \(most recent call first\):", re.MULTILINE
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?)(?:,)? in (?P<name>.+?)\s*$')


def parse_faulthandler(text: str) -> tuple[Thread, ...]:
    """Threads of the newest `faulthandler` dump in a text. Each dump names its newest thread first and its main thread last.

    The current thread is the one that a signal interrupted, which in Python is the main thread; a dump on a timer names none.
    """
    headers = list(_HEADER.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)] if headers else []
    blocks = list(zip(headers, ends, strict=True))
    newest = newest_run(
        blocks, name=lambda block: block[0]["ident"], ends=lambda block: _is_rooted(_frames(text[block[0].end() : block[1]]))
    )
    threads = [_thread(header, text[header.end() : end]) for header, end in newest]
    if threads and not any(thread.main for thread in threads):
        last = threads[-1]
        threads[-1] = Thread(last.frames, last.name, last.ident, True, last.active)
    return tuple(threads)


def _thread(header: re.Match[str], lines: str) -> Thread:
    frames = _frames(lines)
    ident = int(header["ident"], 16) if header["ident"] else None
    return Thread(frames, name=header["name"] or "", ident=ident, main=_is_rooted(frames))


def _is_rooted(frames: tuple[Frame, ...]) -> bool:
    return bool(frames) and frames[-1].function in ("<module>", "_run_module_as_main")


@functools.lru_cache(maxsize=16384)
def _frames(lines: str) -> tuple[Frame, ...]:
    found = (_FRAME.match(line) for line in lines.splitlines())
    return tuple(make_frame(m["name"], m["file"], int(m["line"]) if m["line"].isdigit() else 0) for m in found if m)


def parse_traceback(text: str) -> tuple[Thread, ...]:
    """One thread from the last `Traceback (most recent call last):`, or from gdb's `py-bt` (most recent call first)."""
    text = text[max(text.rfind("Traceback (most recent call"), 0) :]
    first = "most recent call first" in text
    frames = _frames(text)
    return (Thread(frames if first else frames[::-1], main=True),) if frames else ()
