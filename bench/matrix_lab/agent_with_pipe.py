"""`agent_with_pipe.py PIPE agent ...`: `minder agent`, whose kernel log is a pipe instead of /dev/kmsg.

Only the kernel may write a machine's kernel log with authority, and the log of machines that share a host is one. Reading, parsing and
publishing are the agent's own.
"""

from __future__ import annotations

import os
import sys

from minder.cli import main
from minder.edge.agent.kernel import KernelFollower


def follow_pipe(follower: KernelFollower) -> None:
    # Both ends: a pipe without a writer would be at its end for ever.
    follower.follow(os.open(PIPE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))


if __name__ == "__main__":
    PIPE = sys.argv.pop(1)
    KernelFollower.start = follow_pipe  # type: ignore[method-assign]
    sys.exit(main())
