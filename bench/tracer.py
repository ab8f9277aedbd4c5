"""What minder.trace_step costs a training loop, against the same loop without it in one run.

Loops of 32 hardly working operations a step take turns: untraced, a tenth of the steps traced, all traced. The difference of their best
blocks, in processor time with the writing thread's, is the tracer's cost per operation; it is set against an operation of a given length.

    python bench/tracer.py [--blocks 30] [--operation-ms 10]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from minder.edge.worker import tracer
from minder.edge.worker.tracer import trace_step

OPERATIONS, STEPS, COUNT = 32, 60, 10
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--operation-ms", type=float, default=10.0, help="length of an operation in the job that is thought of")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[int], None]] = {
            "untraced": lambda step: plain(step, COUNT),
            "traced, 10 % of steps": lambda step: traced(step, COUNT, Path(folder), 0.1),
            "traced, every step": lambda step: traced(step, COUNT, Path(folder), 1.0),
        }
        seconds = measure(kinds, options.blocks)
    base_s = min(seconds["untraced"])
    print(f"| loop | cost per operation (µs) | of an operation of {options.operation_ms:g} ms (%) |\n|---|---|---|")
    overhead = {}
    for kind, values in seconds.items():
        cost_us = 1e6 * (min(values) - base_s) / OPERATIONS
        overhead[kind] = cost_us / (1000 * options.operation_ms) * 100
        print(f"| {kind} | {cost_us:.2f} | {overhead[kind]:.4f} |")
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
            tracer.flush()
            seconds[kind].append((time.process_time() - begin_s) / STEPS)
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
