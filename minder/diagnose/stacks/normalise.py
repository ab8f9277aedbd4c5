"""Frames that mean the same are written the same: versions, addresses, install paths, template arguments do not split a group."""

from __future__ import annotations

import functools
import re

from minder.diagnose.stacks.records import Frame

__all__ = ["make_frame", "native_frame"]

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
    if "." in name and not name.startswith("<"):  # newer interpreters tell qualified names: Class.method, outer.<locals>.inner
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
