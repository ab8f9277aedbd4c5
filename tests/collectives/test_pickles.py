"""A dump is read as plain data: nothing in it is ever run, and no few bytes can ask for gigabytes."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.flight_recorder.pickles import UntrustedDataError, load_plain_pickle

PLAIN = {"version": "2.9", "entries": [{"a": 1, "b": (2, "x"), "c": [None, True, 1.5, -3, 1 << 62]}], "text": "p" * 70000, "é": []}


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back_in_every_protocol(protocol: int) -> None:
    assert load_plain_pickle(pickle.dumps(PLAIN, protocol)) == PLAIN


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_asks_for_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(UntrustedDataError, match="code to run"):
        load_plain_pickle(pickle.dumps({"entries": [Runs(mark)]}, protocol))
    assert not mark.exists()


def test_a_persistent_object_is_refused() -> None:
    with pytest.raises(UntrustedDataError):
        load_plain_pickle(b"Psomewhere\n.")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of 16 GiB
        b"\x80\x02B" + struct.pack("<I", 0xFFFFFFFF) + b"x.",  # four gigabytes announced
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
        b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"x.",  # an integer of a gigabyte
        b"\x80\x02" + b"]" * 5_000_000 + b".",
    ],
)
def test_few_bytes_cannot_ask_for_much_memory(data: bytes) -> None:
    with pytest.raises(ValueError):
        load_plain_pickle(data)


@pytest.mark.parametrize("keep", [1, 10, 100, 0.5, 0.99])
def test_a_pickle_that_is_cut_off_says_so(keep: float) -> None:
    data = pickle.dumps(PLAIN, 2)
    with pytest.raises(ValueError, match="cut off"):
        load_plain_pickle(data[: int(keep if keep >= 1 else keep * len(data))])


def test_deep_nesting_is_data_like_any_other_or_refused() -> None:
    depth = 100_000
    try:
        load_plain_pickle(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")
    except ValueError:
        pass


def test_noise_is_refused() -> None:
    with pytest.raises(ValueError):
        load_plain_pickle(bytes(range(256)) * 10)


CODE = {
    "GLOBAL": b"cposix\nsystem\n",
    "STACK_GLOBAL": b"\x8c\x05posix\x8c\x06system\x93",
    "REDUCE": b"NN\x85R",
    "INST": b"(iposix\nsystem\n",
    "OBJ": b"(No",
    "NEWOBJ": b"N)\x81",
    "NEWOBJ_EX": b"N)}\x92",
    "BUILD": b"N}b",
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "PERSID": b"Pelsewhere\n",
    "BINPERSID": b"NQ",
}
PLACES = {
    "at once": b"\x80\x02%s.",
    "inside": b"\x80\x02}X\x07\x00\x00\x00entries]%sas.",
    "after a small number that looks like an end": b"\x80\x02K.%s.",
    "after a float that looks like an end": b"\x80\x02G.......\x2e%s.",
    "after the end": b"\x80\x02}.%s.",
    "after the end and a newline": b"\x80\x02}.\n%s.",
    "in a second pickle": b"\x80\x02}.\x80\x02}%s.",
    "in a third pickle": b"\x80\x02}.\x80\x04N.\x80\x02%s.",
    "before it is cut off": b"\x80\x02}%s]",
    "in a frame of another length": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}%s.",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("opcode", CODE)
def test_code_is_refused_wherever_it_stands(opcode: str, place: str) -> None:
    with pytest.raises(UntrustedDataError, match="code to run"):
        load_plain_pickle(PLACES[place] % CODE[opcode])


@pytest.mark.parametrize("before", [b"", b"K.", b"M..", b"J....", b"G........", b"\x8a\x01.", b"X\x01\x00\x00\x00.", b"I46\n", b"}q."])
@pytest.mark.parametrize("memo", [b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\xff", b"r\x00\x00\x40\x00", b"p99999999\n"])
def test_no_memo_index_can_ask_for_gigabytes_whatever_stands_before_it(before: bytes, memo: bytes) -> None:
    """A number whose last byte is that of the end of a pickle once hid what came after it."""
    with pytest.raises(ValueError, match=r"byte|cut off"):
        load_plain_pickle(b"\x80\x02" + before + memo + b".")


def test_only_blanks_may_follow_the_end() -> None:
    assert load_plain_pickle(b"\x80\x02}.\n") == {}
    for rest in (b"\x80\x02}.", b"}", b"garbage", b"\x00"):
        with pytest.raises(ValueError):
            load_plain_pickle(b"\x80\x02}." + rest)
