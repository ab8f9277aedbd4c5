"""A memory hog, run as a file of its own: takes memory in its cgroup until the kernel has killed somebody, then ends.

Arguments: the file whose line `oom_kill N` counts the kernel's kills, and the most bytes to take. Ends with 0 after a kill, 3 without one.
"""

from __future__ import annotations

import contextlib
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
    # The kernel must choose among the others: the hog is the cause, not the victim. Root without CAP_SYS_RESOURCE may not say so;
    # then it is enough that the injector has put the training processes first.
    with contextlib.suppress(PermissionError):
        Path("/proc/self/oom_score_adj").write_text("-1000", encoding="utf-8")
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
