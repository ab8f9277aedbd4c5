"""How fast the default detector is, and what it holds: python bench/detector.py [--json]

Batch: 15 minutes of 1,500 machines x 19 metrics at 1 Hz, row by row as live. Streaming: one tick of 1,500 machines in one job,
and of 25,000 machines in many jobs (one detector each). One core; data are made beforehand and not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from minder.detectors.default import DefaultDetector
from minder.metrics import CATALOGUE
from minder.types import Window

METRICS = tuple(
    metric.name for metric in CATALOGUE if metric.family in ("host", "gpu", "interconnect", "network") and not metric.counter
)[:19]  # fmt: skip


def make_rows(rows: int, machines: int, seed: int = 0) -> list[Window]:
    """Windows of one row each with lively values in plausible places."""
    rng = np.random.default_rng(seed)
    level_K = np.array([10.0 ** rng.uniform(-1, 0) if "ratio" in name else 10.0 ** rng.uniform(2, 10) for name in METRICS])
    names = tuple(f"m{m:05d}" for m in range(machines))
    present_TM = np.ones((1, machines), dtype=bool)
    return [
        Window(np.array([float(t)]), names, METRICS, level_K * (1 + 0.02 * rng.standard_normal((1, machines, len(METRICS)))), present_TM)
        for t in range(rows)
    ]


def run(detector: DefaultDetector, windows: list[Window]) -> list[float]:
    """Seconds of each tick: score and learn."""
    taken = []
    for window in windows:
        start = time.perf_counter()
        detector.score(window)
        detector.learn(window, frozenset())
        taken.append(time.perf_counter() - start)
    return taken


def stages(machines: int, pipeline: int = 8) -> dict[str, int]:
    return {f"m{m:05d}": m * pipeline // machines for m in range(machines)}


def measure(batch_rows: int = 900) -> dict[str, float]:
    found: dict[str, float] = {}
    windows = make_rows(60, 1500)
    batch = run(DefaultDetector(), [windows[t % 60] for t in range(20)])  # warm
    moved = [
        Window(np.array([float(t)]), w.machines, w.metrics, w.values_TMK, w.present_TM)
        for t in range(batch_rows)
        for w in [windows[t % 60]]
    ]
    batch = run(DefaultDetector(), moved)
    found["batch_1500x19x900_s"] = sum(batch)
    found["tick_1500_one_stage_ms"] = 1000 * float(np.median(batch))
    found["tick_1500_eight_stages_ms"] = 1000 * float(np.median(run(DefaultDetector(stages(1500)), moved[:60])))
    jobs = [(DefaultDetector(stages(size)), make_rows(8, size, size)) for size in [1500] * 10 + [256] * 30 + [64] * 36]
    total = sum(size for size in [1500] * 10 + [256] * 30 + [64] * 36)
    ticks = np.zeros(8)
    for detector, rows in jobs:
        ticks += np.array(run(detector, rows))
    found["tick_25000_in_76_jobs_ms"] = 1000 * float(np.median(ticks[2:])) * 25_000 / total
    one = run(DefaultDetector(), make_rows(8, 25_000))
    found["tick_25000_one_job_ms"] = 1000 * float(np.median(one[2:]))
    found["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure()
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<32} {value:10.2f}")


if __name__ == "__main__":
    main()
