"""A machine that is a real cgroup: the kernel kills in it, and its own agent, and no other, says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.model.evidence import Signal
from minder.wire.codec import from_json

MEMORY = Path("/sys/fs/cgroup/memory")
HOG = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
held = []
while True:
    held.append(bytearray(1 << 20))
"""


@pytest.fixture
def groups() -> Iterator[tuple[str, str]]:
    if os.geteuid() != 0 or not (MEMORY / "memory.limit_in_bytes").exists() or not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("needs root, a first-hierarchy memory controller and the kernel log")
    names = (f"minder-test-{uuid.uuid4().hex[:8]}", f"minder-test-{uuid.uuid4().hex[:8]}")
    for name in names:
        (MEMORY / name).mkdir()
    yield names
    for name in names:
        for _ in range(50):
            try:
                (MEMORY / name).rmdir()
                break
            except OSError:
                time.sleep(0.1)


@pytest.mark.root
def test_an_oom_kill_in_this_machine_and_not_in_its_neighbour(bench: Any, wait: Any, groups: tuple[str, str]) -> None:
    sick, well = groups
    for name in groups:
        (MEMORY / name / "memory.limit_in_bytes").write_text(str(64 << 20))
    log = ("--kernel-log", "/dev/kmsg")  # the kernel itself writes there what it killed
    ours, theirs = bench.agent("--cgroup", sick, *log), bench.agent("--cgroup", well, *log)
    assert ours.wait_metric("minder_oom_kills_total") == 0
    hog = subprocess.run([sys.executable, "-c", HOG, str(MEMORY / sick)], check=False)
    assert hog.returncode == -9
    assert ours.wait_metric("minder_oom_kills_total", lambda value: value > 0) == 1

    def found(agent: Any) -> list[Signal]:
        return [signal for signal in (from_json(Signal, item) for item in agent.signals()["signals"]) if signal.data.get("what") == "oom"]

    (signal,) = wait(lambda: found(ours), "the kernel's line")
    assert signal.data["cgroup"] == f"/{sick}"
    assert found(theirs) == []
    assert theirs.metrics()["minder_oom_kills_total"] == 0
