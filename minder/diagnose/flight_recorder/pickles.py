"""Reads a pickle of plain data without trusting it.

Two locks. The first goes over all of the bytes before anything is built: only opcodes of plain data pass, nothing may follow the
end, and there are no more containers than a dump can need, so that a few bytes cannot ask for gigabytes. The second is the unpickler
itself, which resolves no global at all.
"""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
import re
import struct
from collections.abc import Iterator
from typing import Any, NoReturn

__all__ = ["MAX_CONTAINERS", "UntrustedDataError", "collector_paused", "load_plain_pickle"]

MAX_CONTAINERS = 4_000_000
_ASK_FOR_CODE = {0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
                 0x62: "BUILD", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4"}  # fmt: skip
# Opcodes whose arguments have a fixed size. A memo index (r, j, p, g) above four million has no place in a dump: the memo is an
# array, and one such index would make it that long.
_FIXED = re.compile(
    rb"(?:[\]})(\x85\x86\x87\x88\x89Nuasetld\x940]|[qhK].|M..|J....|[rj]..[\x00-\x3f]\x00|\x8a\x08.{8}|G.{8}|\x80.|\x95.{8}"
    rb"|I[-\d]{1,20}\n|L[-\d]{1,25}L?\n|F[-+.\deEnaif]{1,40}\n|[pg]\d{1,6}\n)*+",
    re.DOTALL,
)
_SIZED = {0x58: "<I", 0x8C: "<B", 0x8D: "<Q", 0x8A: "<B", 0x43: "<B", 0x42: "<I"}  # strings, bytes and integers: length, then data
_MAX_INTEGER_BYTES = 16
_LONGEST_FIXED = 42
_STOP = 0x2E
_AT_ONCE = 1 << 20  # bytes: without a buffer the unpickler asks the stream for every opcode


class UntrustedDataError(ValueError):
    """The bytes are not plain data, or ask for more memory than they can need."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise UntrustedDataError(f"it asks for {module_name}.{global_name}: a dump holds plain data only")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UntrustedDataError("it asks for an object stored elsewhere: a dump holds plain data only")


def load_plain_pickle(data: bytes) -> Any:
    """The object in `data`: dicts, lists, tuples, strings, numbers, None.

    Raises UntrustedDataError where the bytes ask for anything else, ValueError where they are cut off or no pickle.
    """
    _check_opcodes(data)
    try:
        with collector_paused():
            return _PlainUnpickler(io.BufferedReader(io.BytesIO(data), _AT_ONCE)).load()
    except UntrustedDataError:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(f"it is cut off or damaged ({error})") from error
    except (MemoryError, OverflowError, RecursionError) as error:
        raise UntrustedDataError(f"it asks for too much memory ({type(error).__name__})") from error


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Plain data holds no cycles: to look for some after every few hundred new lists and dictionaries takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_opcodes(data: bytes) -> None:
    if len(data) > MAX_CONTAINERS and sum(data.count(opcode) for opcode in (b"}", b"]", b"(")) > MAX_CONTAINERS:
        raise UntrustedDataError(f"it holds more than {MAX_CONTAINERS} containers")
    at = _check_one(data, 0)
    rest = data[at:].strip()
    end, at = at, len(data) - len(data[at:].lstrip())
    while rest and at < len(data):  # what stands behind the end is not built, but a file that hides something there is no dump
        at = _check_one(data, at)
    if rest:
        raise ValueError(f"{len(rest)} bytes follow its end at byte {end}")


def _check_one(data: bytes, at: int) -> int:
    """The place after the STOP of the pickle that begins at `at`."""
    while True:
        found = _FIXED.match(data, at)
        at = found.end() if found else at
        if at >= len(data):
            raise ValueError("it is cut off")
        if data[at] == _STOP:
            return at + 1
        at = _skip_sized(data, at)


def _skip_sized(data: bytes, at: int) -> int:
    """The place after a string, bytes or integer at `at`."""
    opcode = data[at]
    if opcode == 0x56:  # UNICODE: a line
        end = data.find(b"\n", at)
        if end < 0:
            raise ValueError("it is cut off")
        return end + 1
    layout = _SIZED.get(opcode)
    if layout is None:
        if opcode in _ASK_FOR_CODE:
            raise UntrustedDataError(f"it asks for code to run ({_ASK_FOR_CODE[opcode]} at byte {at}): a dump holds plain data only")
        if len(data) - at < _LONGEST_FIXED and opcode in b"qhKMJrjG\x80\x95ILFpg":
            raise ValueError("it is cut off")
        raise ValueError(f"byte {at} is no part of a dump")
    start = at + 1 + struct.calcsize(layout)
    if start > len(data):
        raise ValueError("it is cut off")
    (length,) = struct.unpack_from(layout, data, at + 1)
    if opcode == 0x8A and length > _MAX_INTEGER_BYTES:
        raise UntrustedDataError("it holds an integer of absurd size")
    if start + length > len(data):
        raise ValueError("it is cut off")
    return int(start + length)
