"""What one heartbeat costs a training loop: `python bench/heartbeat.py [--calls N] [--rounds N]`; one JSON line.

The call is timed as a script writes it (`minder.heartbeat(step=..., loss=..., grad_norm=...)`), alone and with a reader that
looks at the page all the time. Figures are microseconds per call: median and worst round in processor time (which a busy
machine does not inflate), and median and 99.9th percentile of single calls on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=20_000, help="calls per round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINDER_HEARTBEAT_FILE"] = str(Path(folder) / "page")
        quiet = _measure(options.calls, options.rounds)
        pid = _start_reader(os.environ["MINDER_HEARTBEAT_FILE"])
        try:
            read = _measure(options.calls, options.rounds)
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    print(json.dumps({"bench": "heartbeat", "unit": "us", "alone": quiet, "with_reader": read}))


def _measure(calls: int, rounds: int) -> dict[str, float]:
    import minder

    minder.heartbeat(step=0)
    means, single_us = [], []
    for _ in range(rounds):
        start = time.thread_time_ns()
        for step in range(calls):
            minder.heartbeat(step=step, loss=2.5, grad_norm=1.25)
        means.append((time.thread_time_ns() - start) / calls / 1e3)
    for step in range(calls):
        start = time.perf_counter_ns()
        minder.heartbeat(step=step, loss=2.5, grad_norm=1.25)
        single_us.append((time.perf_counter_ns() - start) / 1e3)
    single_us.sort()
    return {
        "cpu_median_round": round(statistics.median(means), 2),
        "cpu_worst_round": round(max(means), 2),
        "clock_median_call": round(statistics.median(single_us), 2),
        "clock_p999_call": round(single_us[int(0.999 * (len(single_us) - 1))], 2),
    }


def _start_reader(page: str) -> int:
    """Another process that reads the page as fast as it can."""
    pid = os.fork()
    if pid == 0:
        from minder.model.errors import WireError
        from minder.wire.heartbeat import read_heartbeat

        while True:
            try:
                read_heartbeat(page)
            except WireError:
                continue
    return pid


if __name__ == "__main__":
    main()
