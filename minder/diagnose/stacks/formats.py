"""The formats of stack dumps: one reader for each tool that writes them.

**Tracebacks** of Python, with the innermost frame last: plain ones, pystack's, and the dumps of all threads that scripts write themselves.
Such a script goes over `sys._current_frames()`: before each thread's frames stands a line of its own, which holds the word "thread".

**py-spy**: its text, and its JSON (`py-spy dump`, `--json`, `--native`, `--locals`), and what `py-spy record -f raw` counted.

**Backtraces**, with the innermost frame first. gdb: `thread apply all bt`, a single `bt`, `info threads`, with or without CPython's own
gdb commands. lldb and eu-stack, which are read as gdb would write the same. Python's `faulthandler`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from minder.diagnose.stacks.records import Frame, Thread, make_frame, native_frame, newest_run

__all__ = [
    "as_gdb",
    "ended_with",
    "has_frames",
    "holds_several",
    "is_collapsed",
    "json_documents",
    "parse_collapsed",
    "parse_faulthandler",
    "parse_gdb",
    "parse_json",
    "parse_json_text",
    "parse_text",
    "parse_traceback",
    "parse_tracebacks",
    "process_sections",
]

# pystack:  (Python) File "/app/train.py", line 3, in main     (C) File "???", line 0, in poll (/usr/lib/libc.so.6)
_TRACEBACK_FRAME = re.compile(
    r'^\s*(?:\((?P<kind>Python|C|Cython)\) )?File:? "(?P<file>[^"]*)", line (?P<line>\d+|\?+)(?:,)? in (?P<name>.+?)'
    r"(?: \((?P<library>[^()\s]*(?:/|\.so)[^()\s]*)\))?\s*$"
)
_TRACEBACK_THREAD = re.compile(r"^(?!\s*(?:\(\w+\) )?File\b).*\bthread\b.*$", re.IGNORECASE)
_NUMBER = re.compile(r"\b\d{3,}\b")
_LAST = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: .*)?$")
_INTERRUPTS = frozenset({"KeyboardInterrupt", "SignalException"})  # what a signal raises in whatever the process stands in


def has_frames(text: str) -> bool:
    """Whether a line of the text is a frame of a traceback, below a line that names a thread."""
    return (
        '"' in text
        and any(_TRACEBACK_FRAME.match(line) for line in text.splitlines())
        and any(map(_TRACEBACK_THREAD.match, text.splitlines()))
    )


def parse_tracebacks(text: str) -> tuple[Thread, ...]:
    """Threads of the newest dump. The main thread is the one that is called so, else the one that began in a module."""
    blocks: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        found = _TRACEBACK_FRAME.match(line)
        if found is not None and blocks:
            blocks[-1][1].append(_traceback_frame(found))
        elif found is None and _TRACEBACK_THREAD.match(line) and not (blocks and not blocks[-1][1] and line.startswith(" ")):
            blocks.append((line, []))
    newest = newest_run([block for block in blocks if block[1]], name=lambda block: block[0])
    return tuple(_traceback_thread(header, tuple(reversed(frames))) for header, frames in newest)


def _traceback_thread(header: str, frames: tuple[Frame, ...]) -> Thread:
    number = _NUMBER.search(header)
    is_main = "MainThread" in header or any(frame.function == "<module>" for frame in frames)
    return Thread(frames, "MainThread" if "MainThread" in header else "", int(number[0]) if number else None, is_main)


def _traceback_frame(found: re.Match[str]) -> Frame:
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
    frames = tuple(_traceback_frame(found) for line in text.splitlines() if (found := _TRACEBACK_FRAME.match(line)))
    return (Thread(frames if "most recent call first" in text else frames[::-1], main=True),) if frames else ()


# Thread 4079 (active+gil): "MainThread", Thread 0x7F0A (idle), Thread (idle): "MainThread"
_PYSPY_THREAD = re.compile(r'^Thread(?: (?P<ident>0x[0-9a-fA-F]+|\d+))?(?: \((?P<state>[a-z+ ]+)\))?:?(?: "(?P<name>.*)")?\s*$')
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
        if (match := _PYSPY_THREAD.match(f"Thread{header}")) is not None:
            found.append((match, lines))
    return tuple(_pyspy_thread(header, lines, pid) for header, lines in newest_run(found, lambda item: item[0]["ident"] or item[0]["name"]))


def _pyspy_thread(header: re.Match[str], lines: str, pid: int | None) -> Thread:
    name, number = header.group("name") or "", header.group("ident")
    ident = int(number, 0) if number else None
    state = header.group("state")
    return Thread(
        _pyspy_frames(lines),
        name=name,
        ident=ident,
        main=name == "MainThread" or (ident is not None and ident == pid),
        active=None if state is None else state.startswith("active"),
    )


@functools.lru_cache(maxsize=16384)
def _pyspy_frames(lines: str) -> tuple[Frame, ...]:
    """Thousands of processes stand in the same place: each list of lines is read once. Deeper lines are local variables."""
    frame_lines = (line for line in lines.splitlines() if line.startswith(" ") and not line.startswith("      "))
    return tuple(frame for line in frame_lines if (frame := _pyspy_frame(line.strip())))


def _pyspy_frame(text: str) -> Frame | None:
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
            frames += [frame] if named is None and (frame := _pyspy_frame(part.strip())) is not None else []
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


# Thread 5 (Thread 0x7f27 (LWP 5299) "pt_autograd_0" (Exiting)):
_BACKTRACE_THREAD = re.compile(r"^Thread (?P<number>\d+) \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP (?P<lwp>\d+))?\)?(?P<rest>.*)\):?\s*$")
# * 1    Thread 0x7fc7 (LWP 52422) "python" select_poll_poll () at selectmodule.c.h:219
_ROW = re.compile(r'^[* ]\s*(?P<number>\d+)\s+Thread 0x[0-9a-f]+ \(LWP (?P<lwp>\d+)\) "(?P<name>[^"]*)"\s+(?P<frame>.+)$')
_BACKTRACE_FRAME = re.compile(r"^#(?P<level>\d+)\s+(?:0x[0-9a-f]+ in )?(?P<body>.+)$")
_NAME = re.compile(r'"([^"]*)"')
_LIBRARY = re.compile(r"\s+from (?P<library>\S+)\s*$")
_SOURCE = re.compile(r"\s+at (?P<source>\S+?)(?::\d+)?\s*$")
_PYTHON = re.compile(r"Frame 0x[0-9a-f]+, for file (?P<file>[^,]+), line (?P<line>\d+), in (?P<name>[\w<>.]+)")
_PY_BT = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<name>.+?)\s*$')
_VALUE = re.compile(r"0x(?<=[ =(]0x)[0-9a-f]+(?![\w/.-])")  # an address or a pointer, never a part of a name or a path
_C_NAME = re.compile(r"[\w.@?]+(?= \()")
_DETACHED = re.compile(r"^\[Inferior \d+ \(process \d+\) detached\]\n?", re.MULTILINE)
_ATTACHED = re.compile(r"\(process (?P<pid>\d+)\) detached")
_MODULE = re.compile(r"\s+- (?P<library>/\S+|\S+\.so\S*)(?:\s+\S+:\d+)?\s*$")  # eu-stack -m, -s
_LLDB_THREAD = re.compile(r"^[* ]*thread #(?P<number>\d+)(?:, name = '(?P<name>[^']*)')?.*$", re.MULTILINE)
_LLDB_FRAME = re.compile(
    r"^[* ]*frame #(?P<level>\d+): (?P<address>0x[0-9a-f]+) (?P<library>[^`\n]+)`(?P<name>[^\n]+?)(?: \+ \d+)?(?: at [^\n]+)?$",
    re.MULTILINE,
)
_EU_PROCESS = re.compile(r"^PID (\d+) - process\n", re.MULTILINE)
_EU_THREAD = re.compile(r"^TID (\d+):$", re.MULTILINE)


def as_gdb(text: str) -> str:
    """lldb's `bt all` and eu-stack's answer in gdb's form; any other text as it is.

    >>> as_gdb("* thread #1, name = 'python'\\n  * frame #0: 0x00007f12 libc.so.6`poll + 79").splitlines()
    ['Thread 1 ("python"):', '#0  0x00007f12 in poll () from libc.so.6']
    """
    if "`" in text and "frame #0: 0x" in text:
        text = _LLDB_FRAME.sub(_gdb_frame, text)
        return _LLDB_THREAD.sub(lambda found: f'Thread {found["number"]} ("{found["name"] or ""}"):', text)
    if "TID " in text and _EU_THREAD.search(text):
        pids = _EU_PROCESS.findall(text)
        named = _EU_THREAD.sub(r"Thread \1 (LWP \1):", _EU_PROCESS.sub("", text)).rstrip("\n")
        return f"{named}\n[Inferior 1 (process {pids[-1]}) detached]" if pids else named
    return text


def _gdb_frame(found: re.Match[str]) -> str:
    name = found["name"] if "(" in found["name"] else f"{found['name']} ()"
    return f"#{found['level']}  {found['address']} in {name} from {found['library']}"


def parse_gdb(text: str) -> tuple[Thread, ...]:
    """Threads of the newest backtrace, in gdb's order. The main thread is the one whose LWP is the process's pid, else number 1, else the
    only one."""
    threads: list[tuple[int, int | None, str, tuple[Frame, ...]]] = []
    text = _newest_visit(text)
    lines = "\n".join(text.splitlines()) if "\r" in text else text
    plain = _VALUE.sub("0x0", lines).rstrip("\n")
    last = plain.rpartition("\n")
    sections = _sections(last[0] if last[2].startswith("[") else plain)  # gdb's last word holds the pid
    for header, body in newest_run(sections, _thread_of):
        own, rows = _read_body(body)
        if header is not None:
            name = _NAME.search(header["rest"])
            lwp = int(header["lwp"]) if header["lwp"] else None
            threads.append((int(header["number"]), lwp, name.group(1) if name else "", own or ()))
        elif own is not None:
            threads.append((1, None, "", own))
        threads += rows
    pid = _ATTACHED.search(text)
    main = _main_number([(number, lwp) for number, lwp, _, _ in threads], int(pid["pid"]) if pid else None)
    return tuple(Thread(frames, name, lwp, number == main) for number, lwp, name, frames in threads)


def _newest_visit(text: str) -> str:
    """What gdb printed since it was last detached from a process, its last word included."""
    if text.count(" detached]") < 2 and text.rstrip().endswith("]"):
        return text
    visits = _DETACHED.split(text)
    with_frames = [number for number, visit in enumerate(visits) if "#" in visit]
    return (
        text if len(with_frames) < 2 else visits[with_frames[-1]] + "".join(_DETACHED.findall(text)[with_frames[-1] : with_frames[-1] + 1])
    )


def _thread_of(section: tuple[re.Match[str] | None, str]) -> object:
    """`bt` and `py-bt` may show every thread once each: that is one dump."""
    header, body = section
    return None if header is None else (header["number"], "#0" in body)


def _sections(text: str) -> list[tuple[re.Match[str] | None, str]]:
    """Each thread's header, and the lines below it; first, without a header, those that stand before all."""
    first, *pieces = f"\n{text}".split("\nThread ")
    sections: list[tuple[re.Match[str] | None, str]] = [(None, first)]
    for piece in pieces:
        line, _, body = piece.partition("\n")
        header = _BACKTRACE_THREAD.match(f"Thread {line}")
        if header is None:  # a line that begins like one
            sections[-1] = (sections[-1][0], f"{sections[-1][1]}\nThread {piece}")
        else:
            sections.append((header, body))
    return sections


@functools.lru_cache(maxsize=8192)
def _read_body(body: str) -> tuple[tuple[Frame, ...] | None, tuple[tuple[int, int, str, tuple[Frame, ...]], ...]]:
    """Frames of the lines below a header (None: there are no such lines), and (number, LWP, name, frames) of each row of `info threads`.

    Thousands of processes stand in the same place: once addresses are taken out, each place is read once.
    """
    own: list[str] = []
    rows: list[tuple[int, int, str, list[str]]] = []
    for line in _joined(body):
        if line.startswith("#") or _PY_BT.match(line):
            (rows[-1][3] if rows else own).append(line)
        elif row := _ROW.match(line):
            rows.append((int(row["number"]), int(row["lwp"]), row["name"], ["#0 " + row["frame"]]))
    return _backtrace_frames(own) if own else None, tuple(
        (number, lwp, name, _backtrace_frames(lines)) for number, lwp, name, lines in rows
    )


def _joined(body: str) -> list[str]:
    """gdb breaks long frames over several lines, which begin with blanks."""
    lines: list[str] = []
    for line in body.split("\n"):
        if lines and line.startswith("    ") and lines[-1].startswith("#") and not _PY_BT.match(line) and not _ROW.match(line):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    return lines


def _main_number(threads: list[tuple[int, int | None]], pid: int | None) -> int | None:
    by_pid = [number for number, lwp in threads if pid is not None and lwp == pid]
    numbers = [number for number, _ in threads]
    return by_pid[0] if by_pid else (1 if 1 in numbers else (numbers[-1] if numbers else None))


def _backtrace_frames(lines: list[str]) -> tuple[Frame, ...]:
    python = [m for line in lines if not line.startswith("#") and (m := _PY_BT.match(line))]
    if python:  # py-bt beside bt: the Python frames say all, the native ones above them what the innermost one does
        native = [frame for line in lines if line.startswith("#") and (frame := _backtrace_frame(line)) and frame.native]
        inner = native[: next((i for i, frame in enumerate(native) if frame.function.startswith("_PyEval")), len(native))]
        return (*inner, *(make_frame(m["name"], m["file"], int(m["line"])) for m in python))
    return tuple(frame for line in lines if (frame := _backtrace_frame(line)))


def _backtrace_frame(line: str) -> Frame | None:
    found = _BACKTRACE_FRAME.match(line)
    if found is None:
        return None
    body = found["body"]
    python = _PYTHON.search(body)
    if python:  # CPython's pretty printers name the Python function that this call of the interpreter runs
        return make_frame(python["name"], python["file"], int(python["line"]))
    library, source = _LIBRARY.search(body) or _MODULE.search(body), _SOURCE.search(body)
    body = _MODULE.sub("", _LIBRARY.sub("", _SOURCE.sub("", body)))
    return native_frame(_function(body), library["library"] if library else (source["source"] if source else ""))


def _function(body: str) -> str:
    """`c10d::Work::wait(std::chrono::duration<long>) (this=0x1)`: the last bracket holds values, the one before it types."""
    plain = _C_NAME.match(body)  # a C name; values in its brackets may hold brackets
    if plain:
        return plain.group()
    cut = body.rfind(" (")
    return body[:cut] if cut > 0 else body


# Current thread 0x00007f0a (most recent call first):   Thread 0x00007f0a [Thread-1 (_pin] (most recent call first):
_HEADER = re.compile(
    r"^(?:(?P<current>Current t|T)hread (?P<ident>0x[0-9a-fA-F]+)(?: \[(?P<name>.*?)\]?)?|Stack) \(most recent call first\):", re.MULTILINE
)
_PYTHON_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?)(?:,)? in (?P<name>.+?)\s*$')


def parse_faulthandler(text: str) -> tuple[Thread, ...]:
    """Threads of the newest `faulthandler` dump in a text. Each dump names its newest thread first and its main thread last.

    The current thread is the one that a signal interrupted, which in Python is the main thread; a dump on a timer names none.
    """
    headers = list(_HEADER.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)] if headers else []
    blocks = list(zip(headers, ends, strict=True))
    newest = newest_run(
        blocks, name=lambda block: block[0]["ident"], ends=lambda block: _is_rooted(_python_frames(text[block[0].end() : block[1]]))
    )
    threads = [_backtrace_thread(header, text[header.end() : end]) for header, end in newest]
    if threads and not any(thread.main for thread in threads):
        last = threads[-1]
        threads[-1] = Thread(last.frames, last.name, last.ident, True, last.active)
    return tuple(threads)


def _backtrace_thread(header: re.Match[str], lines: str) -> Thread:
    frames = _python_frames(lines)
    ident = int(header["ident"], 16) if header["ident"] else None
    return Thread(frames, name=header["name"] or "", ident=ident, main=_is_rooted(frames))


def _is_rooted(frames: tuple[Frame, ...]) -> bool:
    return bool(frames) and frames[-1].function in ("<module>", "_run_module_as_main")


@functools.lru_cache(maxsize=16384)
def _python_frames(lines: str) -> tuple[Frame, ...]:
    found = (_PYTHON_FRAME.match(line) for line in lines.splitlines())
    return tuple(make_frame(m["name"], m["file"], int(m["line"]) if m["line"].isdigit() else 0) for m in found if m)
