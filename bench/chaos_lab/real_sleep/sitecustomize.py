"""For a process whose wall clock libfaketime sets ahead, and whose monotonic clock it leaves alone.

Its clock_nanosleep, which Python's time.sleep calls since 3.11, takes the offset of the wall clock off a monotonic time then, and fails
("Invalid argument"). select knows no such time.
"""

import select
import time


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = _sleep
