"""What C++ writes before it aborts."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.edge.launcher.last_words import LastWords, read_last_words

THROWN = "terminate called after throwing an instance of"
WATCHDOG = (
    "[rank3]:[E105 10:11:12.345678 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread terminated\n"
    f"{THROWN} 'c10::DistBackendError'\n  what():  [PG ID 0 Rank 3] Process group watchdog thread terminated with exception: [Rank 3] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, Timeout(ms)=600000)\n"
    "Exception raised from checkTimeout at /pytorch/x.cpp:632 (most recent call first):\nframe #0: c10::Error::Error\n"
)
ECC = f"{THROWN} 'c10::Error'\n  what():  CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronous\n"
ILLEGAL = f"[rank1]: step 12\n{THROWN} 'c10::AcceleratorError'\n  what():  CUDA error: an illegal memory access was encountered\n\nframe #0"
MONITOR = (
    "[rank5]:[F105 10:11:12.345678 ProcessGroupNCCL.cpp:1557] [PG ID 0 Rank 5] Terminating the process after attempting to dump debug "
    "info, due to ProcessGroupNCCL watchdog hang.\n"
)


def words(tmp_path: Path, text: str, since_bytes: int = 0, ended_by: int | None = 6) -> LastWords | None:
    log = tmp_path / "demo-0.log"
    log.write_text(text)
    return read_last_words(log, since_bytes, ended_by)


@pytest.mark.parametrize(
    ("text", "type_name", "fingerprint", "victim"),
    [
        (WATCHDOG, "DistBackendError", "DistBackendError|network:peer gone|", True),
        (ECC, "RuntimeError", "RuntimeError|device:uncorrectable ecc|", False),
        (ILLEGAL, "RuntimeError", "", False),
        (MONITOR, "RuntimeError", "RuntimeError|network:peer gone|", True),
        (f"{THROWN} 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)\n", "MemoryError", "MemoryError|memory:out of memory|", False),  # noqa: E501
        (f"{THROWN} 'std::out_of_range'\n  what():  vector::_M_range_check\n", "out_of_range", "", False),
        (f"{THROWN} 'int'\n", "int", "", False),
        ("libc++abi: terminating due to uncaught exception of type std::runtime_error: no idea\n", "RuntimeError", "", False),
    ],
    ids=["watchdog", "ecc", "illegal access", "monitor", "bad_alloc", "own", "no text", "libc++"],
)  # fmt: skip
def test_last_words(tmp_path: Path, text: str, type_name: str, fingerprint: str, victim: bool) -> None:
    found = words(tmp_path, "step 11 loss 2.5\n" + text)
    assert found is not None and (found.type, found.fingerprint, found.victim) == (type_name, fingerprint, victim)
    assert "frame #" not in found.message and "Exception raised from" not in found.message


def test_an_earlier_process_and_another_end_say_nothing(tmp_path: Path) -> None:
    assert words(tmp_path, ECC, since_bytes=len(ECC)) is None
    assert words(tmp_path, ECC, ended_by=9) is None and words(tmp_path, ECC, ended_by=None) is None
    assert words(tmp_path, "step 11 loss 2.5\n") is None
    assert words(tmp_path, ECC, since_bytes=10_000_000) is not None, "the log was copied away and emptied meanwhile"
    assert read_last_words(tmp_path / "none", 0, 6) is None
