"""Room in a folder, by the file system's own word."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minder.edge.probes import space

PLENTY = {"f_bavail": 1 << 20, "f_frsize": 4096, "f_files": 1000, "f_favail": 900, "f_flag": 0}


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({}, "measured", ""),
        ({"f_bavail": 10}, "failed", "the disk is full"),
        ({"f_favail": 0}, "failed", "no inode is left"),
        ({"f_files": 0, "f_favail": 0}, "measured", ""),  # a file system that does not count them
        ({"f_flag": os.ST_RDONLY}, "failed", "read-only"),
    ],
)
def test_a_folder_without_room_is_a_fault(
    changes: dict[str, int], state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Any = SimpleNamespace(**{**PLENTY, **changes})
    monkeypatch.setattr(space.os, "statvfs", lambda folder: answer)
    found = space.measure({"folder": str(tmp_path)})
    assert found.state == state and said in found.detail
    assert found.measures[0].value == answer.f_bavail * 4096


def test_a_folder_that_is_not_there_says_that_the_order_is_wrong(tmp_path: Path) -> None:
    found = space.measure({"folder": str(tmp_path / "none")})
    assert found.state == "not_applicable" and "No such file" in found.detail
