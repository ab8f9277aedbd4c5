"""Which tool wrote a dump is seen from its content, never from the file's name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from minder.stacks.gdb import parse_gdb
from minder.stacks.labels import without_labels
from minder.stacks.pyspy import parse_json, parse_json_text, parse_text, process_sections
from minder.stacks.records import Thread
from minder.stacks.traceback import parse_faulthandler, parse_traceback

__all__ = ["Dump", "decode", "read_dumps"]

_SPY_THREAD = re.compile(r"^Thread(?: \w+)? \([a-z+ ]+\)|^Thread \d+ \(|^Process \d+: ", re.MULTILINE)
_SPY_FRAME = re.compile(r"^\s*\S.* \(\S+:\d+\)$", re.MULTILINE)
_GDB = re.compile(r"^#\d+\s+\S|^\(gdb\)|^[* ]\s*\d+\s+Thread 0x", re.MULTILINE)
_JSON = re.compile(r"\s*(?:\[\s*(?:\{|\]|$)|\{)")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|\x1b\(B")  # what a terminal was told, when its output was kept
_MOST_LETTERS = 160


@dataclass(frozen=True, slots=True)
class Dump:
    """One process of a dump file. pid: what the dump itself says. `problem` is "" where there is a stack."""

    threads: tuple[Thread, ...] = ()
    pid: int | None = None
    problem: str = ""

    @property
    def is_stack(self) -> bool:
        return not self.problem


def decode(content: bytes) -> str:
    """Text of a dump in any encoding that a terminal or an editor may have left; what cannot be read becomes a question mark."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    if content[:200].count(b"\0") > len(content[:200]) // 3:
        return content.decode("utf-16-le" if content[1:2] == b"\0" else "utf-16-be", errors="replace")
    text = content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    return _COLOUR.sub("", text) if "\x1b" in text else text


def read_dumps(content: bytes) -> tuple[Dump, ...]:
    """The processes in one dump file, at least one: where nothing can be read its `problem` says why."""
    text = decode(content)
    if not text.strip():
        return (Dump(problem="the dump is empty"),)
    if _JSON.match(text):
        return (_from_json(text),)
    text = without_labels(text)
    if text.startswith("Process ") and "\nThread " in text:
        return _from_spy(text)
    if "(most recent call first):" in text and re.search(r"hread 0x[0-9a-fA-F]+.*\(most recent call first\)", text):
        return (_checked(parse_faulthandler(text), text),)
    if _GDB.search(text):
        attached = re.search(r"\(process (\d+)\) detached", text)
        return (_checked(parse_gdb(text), text, int(attached.group(1)) if attached else None),)
    if "Traceback (most recent call" in text:
        return (_checked(parse_traceback(text), text),)
    if _SPY_THREAD.search(text):
        return _from_spy(text)
    if _SPY_FRAME.search(text):  # frames alone, as people paste them
        frames = "".join(f"    {line.strip()}\n" for line in text.splitlines() if line.strip() and not line.startswith("#"))
        return (_checked(parse_text(f'Thread (idle): "MainThread"\n{frames}'), text),)
    return (Dump(problem=_first_line(text)),)


def _from_spy(text: str) -> tuple[Dump, ...]:
    return tuple(_checked(parse_text(part, pid), part, pid) for pid, part in process_sections(text))


def _from_json(text: str) -> Dump:
    quick = parse_json_text(text)
    if quick is not None:
        return _checked(quick[0], "", quick[1])
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return Dump(problem="the dump is JSON that is cut off or broken")
    threads = parse_json(data)
    if threads is not None:
        pid = data[0].get("pid") if isinstance(data, list) and data else None
        return _checked(threads, "", pid if isinstance(pid, int) else None)
    if isinstance(data, dict) and isinstance(data.get("data"), str):  # the agent's own record of a process that could not be attached to
        return Dump(problem=data["data"][:_MOST_LETTERS])
    return Dump(problem="the dump is JSON, but not py-spy's")


def _checked(threads: tuple[Thread, ...], text: str, pid: int | None = None) -> Dump:
    if any(thread.frames for thread in threads):
        return Dump(threads, pid)
    told = re.search(r"^.*(?:[Ee]rror|denied|not permitted|[Ff]ailed|[Tt]imed out).*$", text, re.MULTILINE)
    return Dump(pid=pid, problem=told.group().strip()[:_MOST_LETTERS] if told else "the dump holds no frames")


def _first_line(text: str) -> str:
    line = next(line.strip() for line in text.splitlines() if line.strip())
    readable = "".join(letter for letter in line if letter.isprintable() and letter != "\ufffd")[:_MOST_LETTERS]
    known = re.search(r"[Ee]rror|denied|permitted|[Ff]ailed|[Tt]imed out|No such process", readable)
    return readable if known else "the file is no stack dump of py-spy, faulthandler or gdb"
