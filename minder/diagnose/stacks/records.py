"""What a stack dump says, whatever tool wrote it.

Frames that mean the same are written the same: versions, addresses, install paths and template arguments do not split a group.

One text may hold several dumps: `faulthandler` on a timer, py-spy in a loop and a gdb that is run again append to one file, so the order in
the text is the order in time. A new dump begins where a thread appears that the current one holds already, whatever stands between:
banners, times, log lines (`newest_run`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

__all__ = ["Capture", "Frame", "Kind", "Process", "Thread", "make_frame", "native_frame", "newest_run"]

Kind = Literal["collective", "point to point", "data loading", "checkpoint", "compute", "idle", "other"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One function on a stack, normalised (minder.diagnose.stacks.records). `native`: compiled code, not Python. line 0: not known."""

    function: str
    file: str = ""
    line: int = 0
    native: bool = False


@dataclass(frozen=True, slots=True)
class Thread:
    """Frames innermost first. `main`: the dump itself says so. `active`: on a processor; None: unknown."""

    frames: tuple[Frame, ...]
    name: str = ""
    ident: int | None = None
    main: bool = False
    active: bool | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job. `state` is the kernel's letter (R, S, D, T, Z), "" where it is unknown. `problem`: why there is no stack.
    `child`: a training process started it, so that it is none itself. `title`: its command line, where the dump shows it. `counted`: its
    rank is the number of a scheduler's task, which may be a machine's."""

    machine: str
    pid: int | None = None
    rank: int | None = None
    state: str = ""
    threads: tuple[Thread, ...] = ()
    problem: str = ""
    file: str = ""
    child: bool = False
    title: str = ""
    counted: bool = False

    @property
    def name(self) -> str:
        """As docs/stacks.md writes it: machine:pid4100, or machine:rank3.

        >>> Process("node-1", pid=7, rank=3).name
        'node-1:pid7'
        """
        if self.pid is not None:
            return f"{self.machine}:pid{self.pid}"
        return f"{self.machine}:rank{self.rank}" if self.rank is not None else self.machine

    def with_rank(self, rank: int) -> Process:
        return replace(self, rank=rank)


@dataclass(frozen=True, slots=True)
class Capture:
    """All dumps of one moment. time_s is None where the folder's name is no time. `ignored`: files that are no dumps."""

    processes: tuple[Process, ...]
    time_s: float | None = None
    name: str = ""
    ignored: tuple[str, ...] = ()


_INSTALL = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python\d[\d.]*)/")
_FROZEN = re.compile(r"^<frozen (.+)>$")
_ADDRESS = re.compile(r"^(?:0x[0-9a-f]+|\?\?|<unknown function>|\[unknown\])$", re.IGNORECASE)
_CLONE = re.compile(r"\s*\[clone [^\]]*\]|@@?[A-Z]+_[\w.]+|\.(?:constprop|isra|part|cold|lto_priv)\.\d+")
_SOURCE = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|rs|S)$|\.so(?:\.[\d.]+)?$|^(?:.*/)?python[\d.]*$")


@functools.lru_cache(maxsize=65536)
def make_frame(function: str, file: str, line: int = 0) -> Frame:
    """A frame as a dump writes it. Frames of compiled code are known by their file.

    >>> make_frame("_time_logger.<locals>.wrapper", "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 97)
    Frame(function='wrapper', file='torch/distributed/c10d_logger.py', line=97, native=False)
    """
    if _SOURCE.search(file) or (not file and "::" in function) or _ADDRESS.match(function):
        return native_frame(function, file)
    name = function.strip()
    if "." in name and not name.startswith("<"):  # newer interpreters give qualified names: Class.method, outer.<locals>.inner
        name = name.rsplit(".", 1)[1] or name
    return Frame(name, _place(file), line)


def _place(file: str) -> str:
    frozen = _FROZEN.match(file)
    if frozen:
        return frozen.group(1)
    return _INSTALL.sub("", file.replace("\\", "/"))


@functools.lru_cache(maxsize=65536)
def native_frame(function: str, library: str = "") -> Frame:
    """A frame of compiled code; an address without a name becomes "??".

    >>> native_frame("c10d::(anonymous namespace)::Op<std::vector<int> >::run(int) [clone .constprop.0]").function
    'c10d::Op::run'
    """
    name = function.strip()
    if _ADDRESS.match(name) or not name:
        return Frame("??", library.rsplit("/", 1)[-1], native=True)
    name = _CLONE.sub("", name).replace("(anonymous namespace)::", "").replace("::__cxx11", "")
    if "<" in name or "(" in name:
        name = _without_brackets(name)
    name = name.split("::{lambda")[0].strip().removesuffix(" const")
    if " " in name and "operator" not in name:  # a return type in front of a template's name
        name = name.rsplit(" ", 1)[1]
    return Frame(name or "??", library.rsplit("/", 1)[-1], native=True)


def _without_brackets(name: str) -> str:
    """Drops template arguments and argument lists, to any depth."""
    kept: list[str] = []
    depth = 0
    for index, letter in enumerate(name):
        if letter in "<(" and not name[:index].endswith("operator"):
            depth += 1
        elif letter in ">)" and depth:
            depth -= 1
        elif not depth:
            kept.append(letter)
    return "".join(kept)


_T = TypeVar("_T")


def newest_run(items: Sequence[_T], name: Callable[[_T], object], ends: Callable[[_T], bool] = lambda _: False) -> list[_T]:
    """The last items in which no name appears twice. None is no name. ends: a dump is complete with this item.

    >>> newest_run(["a1", "b1", "a2", "b2"], name=lambda item: item[0])
    ['a2', 'b2']
    """
    begin, seen, is_complete = 0, set[object](), False
    for index, item in enumerate(items):
        own = name(item)
        if is_complete or (own is not None and own in seen):
            begin, seen = index, set()
        seen.add(own)
        is_complete = ends(item)
    return list(items[begin:])
