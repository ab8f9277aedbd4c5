"""A memory hog, run as a file of its own: takes memory in its cgroup until the kernel has killed a process, then ends.

Arguments: the file whose line `oom_kill N` counts the kernel's kills, and the most bytes to take. Ends with 0 after a kill, 3 without one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_CHUNK_BYTES = 4 << 20


def kills(path: Path) -> int:
    """How many processes of the cgroup the kernel has killed for memory."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def main() -> int:
    """Take memory chunk by chunk; every page is written, as untouched pages are not charged."""
    counter, most_bytes = Path(sys.argv[1]), int(sys.argv[2])
    # Second in the row behind the training process that the injector has put first (1000). The kernel may look for another victim
    # before the first one's memory is free; had the hog the usual 0, that could be the agent.
    Path("/proc/self/oom_score_adj").write_text("900", encoding="utf-8")
    before = kills(counter)
    taken = []
    for _ in range(most_bytes // _CHUNK_BYTES + 1):
        taken.append(b"\1" * _CHUNK_BYTES)
        if kills(counter) > before:
            return 0
    for _ in range(100):
        time.sleep(0.02)
        if kills(counter) > before:
            return 0
    return 3


if __name__ == "__main__":
    sys.exit(main())
