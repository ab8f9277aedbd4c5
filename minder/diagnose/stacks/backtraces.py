"""Backtraces with the innermost frame first.

gdb: `thread apply all bt`, a single `bt`, `info threads`, with or without CPython's own gdb commands. lldb and eu-stack, which are read as
gdb would write the same. Python's `faulthandler`.
"""

from __future__ import annotations

import functools
import re

from minder.diagnose.stacks.records import Frame, Thread, make_frame, native_frame, newest_run

__all__ = ["as_gdb", "parse_faulthandler", "parse_gdb"]

# Thread 5 (Thread 0x7f27 (LWP 5299) "pt_autograd_0" (Exiting)):
_THREAD = re.compile(r"^Thread (?P<number>\d+) \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP (?P<lwp>\d+))?\)?(?P<rest>.*)\):?\s*$")
# * 1    Thread 0x7fc7 (LWP 52422) "python" select_poll_poll () at selectmodule.c.h:219
_ROW = re.compile(r'^[* ]\s*(?P<number>\d+)\s+Thread 0x[0-9a-f]+ \(LWP (?P<lwp>\d+)\) "(?P<name>[^"]*)"\s+(?P<frame>.+)$')
_FRAME = re.compile(r"^#(?P<level>\d+)\s+(?:0x[0-9a-f]+ in )?(?P<body>.+)$")
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
        header = _THREAD.match(f"Thread {line}")
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
    return _frames(own) if own else None, tuple((number, lwp, name, _frames(lines)) for number, lwp, name, lines in rows)


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


def _frames(lines: list[str]) -> tuple[Frame, ...]:
    python = [m for line in lines if not line.startswith("#") and (m := _PY_BT.match(line))]
    if python:  # py-bt beside bt: the Python frames say all, the native ones above them what the innermost one does
        native = [frame for line in lines if line.startswith("#") and (frame := _frame(line)) and frame.native]
        inner = native[: next((i for i, frame in enumerate(native) if frame.function.startswith("_PyEval")), len(native))]
        return (*inner, *(make_frame(m["name"], m["file"], int(m["line"])) for m in python))
    return tuple(frame for line in lines if (frame := _frame(line)))


def _frame(line: str) -> Frame | None:
    found = _FRAME.match(line)
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
    threads = [_thread(header, text[header.end() : end]) for header, end in newest]
    if threads and not any(thread.main for thread in threads):
        last = threads[-1]
        threads[-1] = Thread(last.frames, last.name, last.ident, True, last.active)
    return tuple(threads)


def _thread(header: re.Match[str], lines: str) -> Thread:
    frames = _python_frames(lines)
    ident = int(header["ident"], 16) if header["ident"] else None
    return Thread(frames, name=header["name"] or "", ident=ident, main=_is_rooted(frames))


def _is_rooted(frames: tuple[Frame, ...]) -> bool:
    return bool(frames) and frames[-1].function in ("<module>", "_run_module_as_main")


@functools.lru_cache(maxsize=16384)
def _python_frames(lines: str) -> tuple[Frame, ...]:
    found = (_PYTHON_FRAME.match(line) for line in lines.splitlines())
    return tuple(make_frame(m["name"], m["file"], int(m["line"]) if m["line"].isdigit() else 0) for m in found if m)
