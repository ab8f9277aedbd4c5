"""Files that are packed, cut off or larger than what is worth reading: the newest dump stands at the end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from minder.diagnose.stacks import read_captures
from minder.diagnose.stacks.reader import read_end

DUMP = 'Process 4211: python train.py\nPython v3.11.2\n\nThread 4211 (idle): "MainThread"\n    read (data.py:7)\n    main (train.py:3)\n'
LINES = b"".join(b"line %d\n" % number for number in range(1000))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("most", [100, 5000, 1 << 20])
def test_the_end_is_the_same_packed_or_not(tmp_path: Path, packed: bool, most: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(LINES) if packed else LINES)
    end = read_end(path, most)
    assert LINES.endswith(end) and end.startswith(b"line ") and end.endswith(b"line 999\n") and len(end) <= most
    assert (end == LINES) == (most >= len(LINES))


def test_stacks_are_read_from_gzip(tmp_path: Path) -> None:
    (tmp_path / "node-0007_pid4211.txt.gz").write_bytes(gzip.compress(DUMP.encode()))
    (process,) = read_captures(tmp_path)[0].processes
    assert (process.machine, process.pid, process.problem) == ("node-0007", 4211, "")
    assert [frame.function for frame in process.threads[0].frames] == ["read", "main"]


def test_a_gzip_that_was_cut_off_is_read_as_far_as_it_goes_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(LINES, compresslevel=0)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    assert LINES.startswith(read_end(tmp_path / "cut", 1 << 20))
    (tmp_path / "node-0001_pid7.txt").write_text(DUMP)
    (tmp_path / "node-0002_pid8.txt.gz").write_bytes(b"\x1f\x8b" + b"\xff" * 50)
    problems = [process.problem for process in read_captures(tmp_path)[0].processes if process.machine == "node-0002"]
    assert len(problems) == 1 and "gzip is damaged" in problems[0]
