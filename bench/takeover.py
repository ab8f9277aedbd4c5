"""How long a job has no controller when its leader is killed: kill -9 until the follower holds the lease, on SQLite or by URL.

python bench/takeover.py --runs 10 [--ledger postgresql://...]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAITS = """
import sys, threading
from minder.act.controller.lease import Leadership
Leadership(sys.argv[1], "bench").lead(threading.Event(), lambda line: print("waits", flush=True))
print("leads", flush=True)
threading.Event().wait()
"""


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WAITS, url], stdout=subprocess.PIPE, text=True)


def say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline().strip()) != word:
        assert line, "the process ended"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ledger")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.ledger or str(Path(folder) / "ledger.db")
        leader, seconds = start(url), []
        say(leader, "leads")
        for _ in range(options.runs):
            follower = start(url)
            say(follower, "waits")
            time.sleep(1.0)
            begun_s = time.monotonic()
            leader.kill()
            say(follower, "leads")
            seconds.append(time.monotonic() - begun_s)
            leader.wait()
            leader = follower
        leader.kill()
        leader.wait()
    print(f"runs {len(seconds)}, seconds without a leader: median {statistics.median(seconds):.2f}, most {max(seconds):.2f}")


if __name__ == "__main__":
    main()
