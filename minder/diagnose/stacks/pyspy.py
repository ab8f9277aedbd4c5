"""Dumps of py-spy: its text, and its JSON (`py-spy dump`, `--json`, `--native`, `--locals`), and what `py-spy record -f raw` counted."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from minder.diagnose.stacks.records import Frame, Thread, make_frame, newest_run

__all__ = [
    "holds_several",
    "is_collapsed",
    "json_documents",
    "parse_collapsed",
    "parse_json",
    "parse_json_text",
    "parse_text",
    "process_sections",
]

# Thread 4079 (active+gil): "MainThread", Thread 0x7F0A (idle), Thread (idle): "MainThread"
_THREAD = re.compile(r'^Thread(?: (?P<ident>0x[0-9a-fA-F]+|\d+))?(?: \((?P<state>[a-z+ ]+)\))?:?(?: "(?P<name>.*)")?\s*$')
_PROCESS = re.compile(r"^Process (\d+):", re.MULTILINE)
_JSON_HEADER = re.compile(
    r'\s*"pid": (?P<pid>\d+),\s*"thread_id": \d+,\s*"thread_name": (?:null|"(?P<name>[^"\\]*)"),'
    r'\s*"os_thread_id": (?:null|(?P<ident>\d+)),\s*"active": (?P<active>true|false),\s*"owns_gil": (?:true|false),\s*$'
)
_PLACE = re.compile(r"^(?P<file>.*?)(?::(?P<line>\d+))?\)$")


def process_sections(text: str) -> list[tuple[int | None, str]]:
    """(pid, text) of every process in a text: tools run in a loop write several into one file."""
    first = _PROCESS.match(text)
    if first is not None and text.find("\nProcess ", 1) < 0:  # the usual file, without a search through all of it
        return [(int(first.group(1)), text)]
    starts = list(_PROCESS.finditer(text))
    if not starts:
        return [(None, text)]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    return [(int(start.group(1)), text[start.start() : end]) for start, end in zip(starts, ends, strict=True)]


def parse_text(text: str, pid: int | None = None) -> tuple[Thread, ...]:
    """Threads of the newest dump, in its order; lines that are neither a thread nor a frame (locals, warnings) are passed over."""
    found: list[tuple[re.Match[str], str]] = []
    text = text.expandtabs(4) if "\t" in text else text
    body = text if text.startswith("Thread") else text.partition("\nThread")[2]
    for block in (body.removeprefix("Thread")).split("\nThread") if body else ():
        header, _, lines = block.partition("\n")
        if (match := _THREAD.match(f"Thread{header}")) is not None:
            found.append((match, lines))
    return tuple(_thread(header, lines, pid) for header, lines in newest_run(found, lambda item: item[0]["ident"] or item[0]["name"]))


def _thread(header: re.Match[str], lines: str, pid: int | None) -> Thread:
    name, number = header.group("name") or "", header.group("ident")
    ident = int(number, 0) if number else None
    state = header.group("state")
    return Thread(
        _frames(lines),
        name=name,
        ident=ident,
        main=name == "MainThread" or (ident is not None and ident == pid),
        active=None if state is None else state.startswith("active"),
    )


@functools.lru_cache(maxsize=16384)
def _frames(lines: str) -> tuple[Frame, ...]:
    """Thousands of processes stand in the same place: each list of lines is read once. Deeper lines are local variables."""
    frame_lines = (line for line in lines.splitlines() if line.startswith(" ") and not line.startswith("      "))
    return tuple(frame for line in frame_lines if (frame := _frame(line.strip())))


def _frame(text: str) -> Frame | None:
    """`all_reduce (torch/distributed/distributed_c10d.py:2806)`; the name itself may hold brackets."""
    cut = text.rfind(" (")
    if cut <= 0:
        return None
    place = _PLACE.match(text[cut + 2 :])
    if place is None:
        return None
    return make_frame(text[:cut], place.group("file"), int(place.group("line") or 0))


_COLLAPSED = re.compile(r"^[^;\n]+;[^\n]* \([^()\n;]+\) \d+$", re.MULTILINE)
_COLLAPSED_THREAD = re.compile(r"^thread \(?(?P<ident>0x[0-9a-fA-F]+|\d+)\)?(?::? ?\"?(?P<name>[^\"]*)\"?)?$")


def is_collapsed(text: str) -> bool:
    """Whether a text counts whole stacks, one a line: `main (train.py:55);step (train.py:50) 117`."""
    return ";" in text and _COLLAPSED.search(text) is not None


def parse_collapsed(text: str) -> tuple[Thread, ...]:
    """Each thread where it stood most often, outermost frame first in the text."""
    most: dict[str, tuple[int, tuple[Frame, ...]]] = {}
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not count.isdigit():
            continue
        thread, frames = "", []
        for part in stack.split(";"):
            named = _COLLAPSED_THREAD.match(part.strip())
            thread = (named["name"] or named["ident"]) if named else thread
            frames += [frame] if named is None and (frame := _frame(part.strip())) is not None else []
        if frames and int(count) > most.get(thread, (0,))[0]:
            most[thread] = (int(count), tuple(reversed(frames)))
    return tuple(
        Thread(frames, name, main=name == "MainThread" or (not name and frames[-1].function == "<module>"))
        for name, (_, frames) in most.items()
    )


def parse_json(data: Any) -> tuple[Thread, ...] | None:
    """Threads of `py-spy dump --json`; None if this is some other JSON. Local variables are never kept: they may be secret."""
    if isinstance(data, dict):
        data = data.get("threads", data.get("data"))
    if not isinstance(data, list) or not all(isinstance(item, dict) and isinstance(item.get("frames"), list) for item in data):
        return None
    return tuple(_json_thread(item) for item in data)


def parse_json_text(text: str) -> tuple[tuple[Thread, ...], int] | None:
    """(threads, pid) of a text laid out as py-spy lays it out; None for any other JSON, which `parse_json` reads.

    Frames that are the same in many processes, letter by letter, are parsed once: it is what takes the time in a large job.
    """
    first, *pieces = text.split('"frames": [')
    cuts = [piece.rfind('"process_info"') for piece in pieces]
    if not pieces or -1 in cuts or not text.rstrip().endswith("]"):
        return None
    tails = [first, *(piece[cut:] for piece, cut in zip(pieces[:-1], cuts[:-1], strict=True))]
    headers = [_JSON_HEADER.match(tail.rpartition("{")[2]) for tail in tails]
    try:
        frames = [_json_body(piece[:cut].rpartition("]")[0]) for piece, cut in zip(pieces, cuts, strict=True)]
    except (ValueError, RecursionError):
        return None
    threads = [_headed(header, found) for header, found in zip(headers, frames, strict=True) if header is not None]
    return (tuple(threads), int(headers[0]["pid"])) if headers[0] is not None and len(threads) == len(headers) else None


def _headed(header: re.Match[str], frames: tuple[Frame, ...]) -> Thread:
    name, ident = header["name"] or "", int(header["ident"] or 0)
    return Thread(frames, name, ident or None, name == "MainThread" or header["ident"] == header["pid"], header["active"] == "true")


@functools.lru_cache(maxsize=8192)
def _json_body(text: str) -> tuple[Frame, ...]:
    return _json_frames(json.loads(f"[{text}]"))


def _json_thread(item: dict[str, Any]) -> Thread:
    name = str(item.get("thread_name") or "")
    ident, pid = item.get("os_thread_id"), item.get("pid")
    active = item.get("active")
    return Thread(
        _json_frames(item["frames"]),
        name=name,
        ident=ident if isinstance(ident, int) and ident else None,
        main=name == "MainThread" or (isinstance(ident, int) and ident > 0 and ident == pid),
        active=active if isinstance(active, bool) else None,
    )


def _json_frames(frames: list[Any]) -> tuple[Frame, ...]:
    """A frame without a name is passed over; a line that is no number is 0."""
    named = [frame for frame in frames if isinstance(frame, dict) and isinstance(frame.get("name"), str)]
    files = [str(frame.get("short_filename") or frame.get("filename") or frame.get("module") or "") for frame in named]
    lines = [line if isinstance(line := frame.get("line"), int) else 0 for frame in named]
    return tuple(make_frame(frame["name"], file, line) for frame, file, line in zip(named, files, lines, strict=True))


_JSON_BEGIN = re.compile(r'(?:^[ \t]*|(?<=[\]}]))(?=\[\s*\{|\{\s*")', re.MULTILINE)


def holds_several(text: str) -> bool:
    """Whether a text that begins like a JSON document may hold more than that one."""
    return text.find("\n[", 1) >= 0 or text.find("\n{", 1) >= 0 or text.find("][") >= 0


def json_documents(text: str) -> Iterator[Any]:
    """JSON documents in a text, one after the other; what stands between them, and what is cut off, is passed over."""
    decoder, at = json.JSONDecoder(), 0
    while (found := _JSON_BEGIN.search(text, at)) is not None:
        try:
            document, at = decoder.raw_decode(text, found.end())
            yield document
        except (ValueError, RecursionError):
            at = text.find("\n", found.end()) + 1 or len(text)
