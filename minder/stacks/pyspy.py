"""Dumps of py-spy: its text, and its JSON (`py-spy dump`, `--json`, `--native`, `--locals`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from minder.stacks.normalise import make_frame
from minder.stacks.records import Frame, Thread

__all__ = ["parse_json", "parse_text", "process_sections"]

# Thread 4079 (active+gil): "MainThread", Thread 0x7F0A (idle), Thread (idle): "MainThread"
_THREAD = re.compile(r'^Thread(?: (?P<ident>0x[0-9a-fA-F]+|\d+))?(?: \((?P<state>[a-z+ ]+)\))?:?(?: "(?P<name>.*)")?\s*$')
_PROCESS = re.compile(r"^Process (\d+):", re.MULTILINE)
_PLACE = re.compile(r"^(?P<file>.*?)(?::(?P<line>\d+))?\)$")


def process_sections(text: str) -> list[tuple[int | None, str]]:
    """(pid, text) of every process in a text: tools run in a loop write several into one file."""
    starts = list(_PROCESS.finditer(text))
    if not starts:
        return [(None, text)]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    return [(int(start.group(1)), text[start.start() : end]) for start, end in zip(starts, ends, strict=True)]


def parse_text(text: str) -> tuple[Thread, ...]:
    """Threads in the dump's order; lines that are neither a thread nor a frame (locals, warnings) are passed over."""
    pid = process_sections(text)[0][0]
    threads: list[Thread] = []
    header: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("Thread") and (found := _THREAD.match(line)):
            if header is not None:
                threads.append(_thread(header, tuple(lines), pid))
            header, lines = found, []
        elif header is not None and line.startswith(" "):
            lines.append(line)
    if header is not None:
        threads.append(_thread(header, tuple(lines), pid))
    return tuple(threads)


def _thread(header: re.Match[str], lines: tuple[str, ...], pid: int | None) -> Thread:
    name, told = header.group("name") or "", header.group("ident")
    ident = int(told, 0) if told else None
    state = header.group("state")
    return Thread(
        _frames(lines),
        name=name,
        ident=ident,
        main=name == "MainThread" or (ident is not None and ident == pid),
        active=None if state is None else state.startswith("active"),
    )


@functools.lru_cache(maxsize=16384)
def _frames(lines: tuple[str, ...]) -> tuple[Frame, ...]:
    """Thousands of processes stand in the same place: each list of lines is read once."""
    return tuple(frame for line in lines if not line.startswith("      ") and (frame := _frame(line.strip())))


def _frame(text: str) -> Frame | None:
    """`all_reduce (torch/distributed/distributed_c10d.py:2806)`; the name itself may hold brackets."""
    cut = text.rfind(" (")
    if cut <= 0:
        return None
    place = _PLACE.match(text[cut + 2 :])
    if place is None:
        return None
    return make_frame(text[:cut], place.group("file"), int(place.group("line") or 0))


def parse_json(data: Any) -> tuple[Thread, ...] | None:
    """Threads of `py-spy dump --json`; None if this is some other JSON. Local variables are never kept: they may be secret."""
    if isinstance(data, Mapping):
        data = data.get("threads", data.get("data"))
    if not isinstance(data, list) or not all(isinstance(item, Mapping) and isinstance(item.get("frames"), list) for item in data):
        return None
    return tuple(_json_thread(item) for item in data)


def _json_thread(item: Mapping[str, Any]) -> Thread:
    name = str(item.get("thread_name") or "")
    ident, pid = item.get("os_thread_id"), item.get("pid")
    active = item.get("active")
    return Thread(
        _json_frames(item["frames"]),
        name=name,
        ident=ident if isinstance(ident, int) else None,
        main=name == "MainThread" or (isinstance(ident, int) and ident == pid),
        active=active if isinstance(active, bool) else None,
    )


def _json_frames(frames: Sequence[Any]) -> tuple[Frame, ...]:
    found: list[Frame] = []
    for frame in frames:
        if isinstance(frame, Mapping) and isinstance(frame.get("name"), str):
            line = frame.get("line")
            file = frame.get("short_filename") or frame.get("filename") or frame.get("module") or ""
            found.append(make_frame(frame["name"], str(file), line if isinstance(line, int) else 0))
    return tuple(found)
