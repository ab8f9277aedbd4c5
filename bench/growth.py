"""How a detector's work grows with metrics, and with machines: python bench/growth.py [--turns 5] [--detectors default minder]

Processor seconds of one thread, data made beforehand (as in bench/detector.py). The default's tick is taken in turns over all sizes, so
that what else the machine does falls on all of them, and the fastest of the turns' medians is shown; the other detectors get `--rows` rows
of a batch of 15 minutes. "Growth" is the exponent between two columns: 1 where twice as much takes twice as long, below 1 where a fixed
part weighs. Sets of metrics: the first N of the catalogue's gauges that the default reads; "x 3": with the smallest and the largest device
of each machine beside its mean.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded: one core for everybody

import argparse
import math

import numpy as np
from detector import run  # bench/detector.py: the same ticks

from minder.diagnose.detectors.choose import choose_detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.weights import Weights, shapes
from minder.diagnose.detectors.traits import trait_of
from minder.model.errors import MinderError
from minder.model.metrics import CATALOGUE
from minder.model.telemetry import Window

READ = tuple(metric.name for metric in CATALOGUE if not metric.counter and trait_of(metric.name).weight > 0)  # that the default reads
METRICS = (4, 8, 15, len(READ))
MACHINES = (375, 750, 1500, 6000, 25_000)
BATCH_ROWS, WARM = 900, 4


def make_windows(rows: int, machines: int, metrics: tuple[str, ...], devices: bool = False) -> list[Window]:
    """Windows of one row each with lively values in plausible places; with `devices` their extremes too."""
    rng = np.random.default_rng(machines)
    level_K = np.array([10.0 ** rng.uniform(-1, 0) if name.endswith("ratio") else 10.0 ** rng.uniform(2, 10) for name in metrics])
    names, present_TM = tuple(f"m{m:05d}" for m in range(machines)), np.ones((1, machines), dtype=bool)
    found = []
    for t in range(rows):
        values_TMK = level_K * (1 + 0.02 * rng.standard_normal((1, machines, len(metrics))))
        extremes = {"low_TMK": 0.98 * values_TMK, "high_TMK": 1.02 * values_TMK} if devices else {}
        found.append(Window(np.array([float(t)]), names, metrics, values_TMK, present_TM, **extremes))
    return found


def default_ticks(turns: int, rows: int = 24) -> dict[tuple[int, str], float]:
    """(machines, set of metrics) to milliseconds of a tick."""
    sets = {str(count): (READ[:count], False) for count in METRICS} | {f"{len(READ)} x 3": (READ, True)}
    found: dict[tuple[int, str], float] = {}
    for _ in range(turns):
        for machines in MACHINES:
            for name, (metrics, devices) in sets.items():
                windows = make_windows(rows if machines < 10_000 else 10, machines, metrics, devices)
                tick_ms = 1000.0 * float(np.median(run(DefaultDetector(), windows)[WARM:]))
                found[machines, name] = min(tick_ms, found.get((machines, name), np.inf))
    return found


def untrained(metrics: tuple[str, ...]) -> Weights:
    rng = np.random.default_rng(0)
    arrays = {part: rng.uniform(-0.5, 0.5, shape).astype(np.float32) for part, shape in shapes(len(metrics), 1, 4, 8).items()}
    limits = {metric: (0.0, 1.0 if metric.endswith("ratio") else 1e11) for metric in metrics}
    return Weights(tuple((metric,) for metric in metrics), metrics, limits, arrays)


def batch_s(name: str, metrics: tuple[str, ...], machines: int, rows: int) -> float:
    """Seconds of 15 minutes at 1 Hz, reckoned from so many rows after as many warm ones."""
    detector = choose_detector(name, lambda _: untrained(metrics), config=SimilarityConfig(metrics=metrics, refit_s=1.0))
    single = make_windows(2 * rows, machines, metrics)
    joined = []
    for first in (0, rows):
        values_TMK = np.concatenate([window.values_TMK for window in single[first : first + rows]])
        present_TM = np.ones((rows, machines), dtype=bool)
        joined.append(Window(np.arange(first, first + rows, dtype=float), single[0].machines, metrics, values_TMK, present_TM))
    detector.score(joined[0])
    return sum(run(detector, joined[1:])) * BATCH_ROWS / rows


def exponent(amounts: tuple[float, ...], taken: list[float]) -> str:
    """Between the first and the last, and between the last two."""
    whole, end = (math.log(taken[-1] / taken[k]) / math.log(amounts[-1] / amounts[k]) for k in (0, -2))
    return f"{whole:.2f}, {end:.2f}"


def report_default(turns: int) -> None:
    ticks = default_ticks(turns)
    sets = [name for machines, name in ticks if machines == MACHINES[0]]
    amounts = (*map(float, METRICS), 3.0 * len(READ))
    print(f"Tick of the default, ms:\n\n| machines | {' | '.join(f'{name} metrics' for name in sets)} | growth with metrics: whole, last |")
    print("|---" * (len(sets) + 2) + "|")
    for machines in MACHINES:
        taken = [ticks[machines, name] for name in sets]
        print(f"| {machines:,} | {' | '.join(f'{ms:.2f}' for ms in taken)} | {exponent(amounts, taken)} |")
    grown = [exponent(tuple(map(float, MACHINES)), [ticks[machines, name] for machines in MACHINES]) for name in sets]
    print(f"| growth with machines: whole, last | {' | '.join(grown)} | |")


def report_others(names: list[str], rows: int, machines: int) -> None:
    print(f"\nBatch of {machines:,} machines, 15 minutes at 1 Hz, s, reckoned from {rows} rows:\n")
    print(
        f"| detector | {' | '.join(f'{count} metrics' for count in METRICS)} | growth: whole, last |\n" + "|---" * (len(METRICS) + 2) + "|"
    )
    for name in names:
        try:
            taken = [batch_s(name, READ[:count], machines, rows) for count in METRICS]
        except MinderError as error:
            print(f"| {name} | left out: {error} |")
            continue
        print(f"| {name} | {' | '.join(f'{s:.1f}' for s in taken)} | {exponent(tuple(map(float, METRICS)), taken)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=5, help="of the default's ticks")
    parser.add_argument("--rows", type=int, default=4, help="of the batch that the other detectors are given")
    parser.add_argument("--detectors", nargs="*", default=["default", "minder", "mahalanobis", "pca", "ecod", "knn"])
    arguments = parser.parse_args()
    if "default" in arguments.detectors:
        report_default(arguments.turns)
    others = [name for name in arguments.detectors if name != "default"]
    if others:
        report_others(others, arguments.rows, 1500)


if __name__ == "__main__":
    main()
