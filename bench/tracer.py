"""What minder.trace_step costs a training loop: traced and untraced steps alternate in blocks of one run.

A step is 32 operations of a fixed amount of arithmetic. The blocks' order is shuffled, and their medians are compared in processor
time, which another job on the machine disturbs least; the writing thread's time is counted in.

    python bench/tracer.py [--blocks 12] [--operation-ms 1]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from minder.worker import tracer
from minder.worker.tracer import trace_step

OPERATIONS, STEPS = 32, 20
GOAL_PERCENT = 1.0


def work(count: int) -> int:
    total = 0
    for number in range(count):
        total += number * number
    return total


def plain(step: int, count: int) -> None:
    for _ in range(OPERATIONS):
        work(count)


def traced(step: int, count: int, folder: Path, sample: float) -> None:
    with trace_step(step, sample=sample, folder=folder) as trace:
        for microbatch in range(OPERATIONS):
            with trace.op("forward-compute", mb=microbatch, mc=0):
                work(count)


def calibrate(operation_s: float) -> int:
    begin_s = time.process_time()
    work(200_000)
    return max(1, int(200_000 * operation_s / max(time.process_time() - begin_s, 1e-6)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--operation-ms", type=float, default=1.0)
    options = parser.parse_args()
    count = calibrate(options.operation_ms / 1000)
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[int], None]] = {
            "untraced": lambda step: plain(step, count),
            "traced, 10 % of steps": lambda step: traced(step, count, Path(folder), 0.1),
            "traced, every step": lambda step: traced(step, count, Path(folder), 1.0),
        }
        seconds = measure(kinds, options.blocks)
        tracer.flush()
    base_s = statistics.median(seconds["untraced"])
    print("| loop | step (ms, median block) | overhead (%) |\n|---|---|---|")
    overhead = {}
    for kind, values in seconds.items():
        overhead[kind] = 100 * (statistics.median(values) / base_s - 1)
        print(f"| {kind} | {1000 * statistics.median(values):.2f} | {overhead[kind]:.2f} |")
    met = overhead["traced, 10 % of steps"] < GOAL_PERCENT
    print(f"goal: under {GOAL_PERCENT:g} % at 10 %: {'met' if met else 'MISSED'}; lost: {tracer.lost()}")
    return 0 if met else 1


def measure(kinds: dict[str, Callable[[int], None]], blocks: int) -> dict[str, list[float]]:
    """Processor seconds of a step, by kind of loop, one for each block."""
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    step = 0
    for _ in range(blocks):
        for kind in random.sample(list(kinds), len(kinds)):
            begin_s = time.process_time()
            for _ in range(STEPS):
                kinds[kind](step)
                step += 1
            seconds[kind].append((time.process_time() - begin_s) / STEPS)
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
