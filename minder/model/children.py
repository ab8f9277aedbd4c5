"""How a process that minder starts ends with the one that started it."""

from __future__ import annotations

import ctypes
import signal

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """In the child: the kernel sends it this signal when the thread that started it ends, even one that could not say so any more.

    A parent that ignores the signal (`trap '' TERM` of the script that began it) hands that down: here it ends the child again.
    """
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
