"""Needs no torch: says that it runs, then sleeps, prints steps, fails or ends, as its argument says."""

from __future__ import annotations

import os
import sys
import time

print("script runs as rank", os.environ.get("RANK"), "of generation", os.environ.get("MINDER_GENERATION"), flush=True)
what = sys.argv[1] if len(sys.argv) > 1 else "sleep"
if what == "sleep":
    time.sleep(600)
elif what == "log":
    for step in range(100_000):
        print(f"iter {step}: loss 2.5000, time 12.00ms", flush=True)
        time.sleep(0.02)
elif what == "fail":
    raise KeyError("the script's own mistake")
elif what == "exit":
    sys.exit(7)
elif what == "handled":
    try:
        {}["input_ids"]
    except KeyError:
        sys.exit(1)
elif what == "abort":
    print("terminate called after throwing an instance of 'c10::DistBackendError'", file=sys.stderr)
    print("  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91)", file=sys.stderr, flush=True)
    os.abort()
