"""What a checkpoint at every step costs the lab's job: real gloo processes, with checkpoints and without.

    python bench/checkpoint.py [--ranks 6] [--steps 60] [--step-seconds 0.2] [--no-sync]

Prints JSON: step time (median, 99th percentile) and processor time per step and rank for both runs, and how long `save` blocked
the training loop of rank 0.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch

from minder import Checkpointer
from minder.simulate.lab import train

_SKIPPED = 5  # first steps: caches fill, buffers are made


def measure(options: argparse.Namespace, every: int) -> dict[str, Any]:
    """One run of all ranks; what rank 0 saw."""
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(rank, options, every, Path(folder)) for rank in range(options.ranks)]
        if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
            raise SystemExit("a rank failed: see above")
        seen: dict[str, Any] = json.loads((Path(folder) / "seen.json").read_text())
        times_s = [json.loads(line)["time"] for line in (Path(folder) / "losses.jsonl").read_text().splitlines()]
    steps_s = [after - before for before, after in zip(times_s[_SKIPPED:], times_s[_SKIPPED + 1 :], strict=False)]
    result = {
        "step_median_ms": _ms(statistics.median(steps_s)),
        "step_p99_ms": _ms(sorted(steps_s)[int(0.99 * (len(steps_s) - 1))]),
        "cpu_per_step_and_rank_ms": _ms(seen["cpu_s"] / options.steps),
    }
    if every:
        blocked_s = sorted(seen["blocked_s"][_SKIPPED:])
        result["save_blocked_median_ms"] = _ms(statistics.median(blocked_s))
        result["save_blocked_p99_ms"] = _ms(blocked_s[int(0.99 * (len(blocked_s) - 1))])
    return result


def _fork(rank: int, options: argparse.Namespace, every: int, folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks), MINDER_RUN_DIR=str(folder / "run"))
        blocked_s = _time_saves()
        arguments = ["--output", str(folder), "--steps", str(options.steps), "--step-seconds", str(options.step_seconds)]
        arguments += ["--checkpoint-every", str(every), "--init-method", f"file://{folder}/meet"]
        before_s = _cpu_s()
        train.main(train.parse(arguments + (["--no-sync"] if options.no_sync else [])))
        if rank == 0:
            (folder / "seen.json").write_text(json.dumps({"cpu_s": _cpu_s() - before_s, "blocked_s": blocked_s}))
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _time_saves() -> list[float]:
    blocked_s: list[float] = []
    save = Checkpointer.save

    def timed(self: Checkpointer, step: int, state: Any) -> None:
        started_s = time.monotonic()
        save(self, step, state)
        blocked_s.append(time.monotonic() - started_s)

    Checkpointer.save = timed  # type: ignore[method-assign]
    return blocked_s


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Blocking cost of a checkpoint at every step.")
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--no-sync", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # load what torch loads late once, before the forks
    import minder.simulate.lab.watched  # noqa: F401

    result = {"ranks": options.ranks, "steps": options.steps, "step_seconds": options.step_seconds, "sync": not options.no_sync}
    print(json.dumps({**result, "without": measure(options, 0), "with": measure(options, 1)}, indent=2))


if __name__ == "__main__":
    main()
