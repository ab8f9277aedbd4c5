"""How fast detectors are, and what they hold: python bench/detector.py [--json] [--rows 900] [--others 4] [--detectors default ecod]

Batch: 15 minutes of 1,500 machines x 19 metrics at 1 Hz, the same data for every detector, in one run; processor seconds, one thread.
`default` goes row by row as live. The reference and the classical detectors are quadratic or refit a model to every window, so
they are given the first `--others` rows and the rest is reckoned: every row costs them the same, and the table says how many were
measured (--others 900 measures all). `minder` is shown in its two parts too: networks and distances. Streaming: one tick of the default of
1,500 machines in one job, and of 25,000 machines in many jobs (one detector each). Data are made beforehand and not counted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded: one core for everybody

import argparse
import json
import resource
import time

import numpy as np

from minder.diagnose.detectors.choose import choose_detector
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.learned.detector import LearnedDetector
from minder.diagnose.detectors.learned.model import LearnedModel
from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.weights import Weights, shapes
from minder.model.errors import MinderError
from minder.model.metrics import CATALOGUE, find_metric
from minder.model.resources import find_resource
from minder.model.telemetry import Window
from minder.record.registry.folder import read_model

METRICS = tuple(
    metric.name for metric in CATALOGUE if metric.family in ("host", "gpu", "interconnect", "network") and not metric.counter
)[:19]  # fmt: skip
MACHINES, ROWS = 1500, 900
OTHERS = ("minder", "mahalanobis", "ecod", "copod", "iforest", "lof", "knn", "pca", "autoencoder")


def make_rows(rows: int, machines: int, seed: int = 0) -> list[Window]:
    """Windows of one row each with lively values in plausible places."""
    rng = np.random.default_rng(seed)
    drawn_K = [10.0 ** rng.uniform(-1, 0) if "ratio" in name else 10.0 ** rng.uniform(2, 10) for name in METRICS]
    level_K = np.minimum(drawn_K, [0.5 * find_metric(name).high for name in METRICS])
    names = tuple(f"m{m:05d}" for m in range(machines))
    present_TM = np.ones((1, machines), dtype=bool)
    return [
        Window(np.array([float(t)]), names, METRICS, level_K * (1 + 0.02 * rng.standard_normal((1, machines, len(METRICS)))), present_TM)
        for t in range(rows)
    ]


def at_time(window: Window, t: int) -> Window:
    return Window(np.array([float(t)]), window.machines, window.metrics, window.values_TMK, window.present_TM)


def run(detector: Detector, windows: list[Window]) -> list[float]:
    """Processor seconds of each tick: score and learn."""
    taken = []
    for window in windows:
        start = time.process_time()
        detector.score(window)
        detector.learn(window, frozenset())
        taken.append(time.process_time() - start)
    return taken


def stages(machines: int, pipeline: int = 8) -> dict[str, int]:
    return {f"m{m:05d}": m * pipeline // machines for m in range(machines)}


def untrained(name: str) -> Weights:
    """Weights of the right shapes for these 19 metrics: what they are does not change the work."""
    rng = np.random.default_rng(0)
    arrays = {part: rng.uniform(-0.5, 0.5, shape).astype(np.float32) for part, shape in shapes(len(METRICS), 1, 4, 8).items()}
    limits = {metric: (0.0, 1.0 if "ratio" in metric else 1e11) for metric in METRICS}
    return Weights(tuple((metric,) for metric in METRICS), METRICS, limits, arrays)


def measure_other(name: str, windows: list[Window], rows: int) -> dict[str, float]:
    """One block of so many rows after a warm one, all 19 metrics, every window looked at."""
    config = SimilarityConfig(metrics=METRICS, refit_s=1.0)
    detector = choose_detector(name, untrained, config=config)
    joined = [
        Window(
            np.arange(first, first + rows, dtype=float), windows[0].machines, METRICS,
            np.concatenate([windows[t % len(windows)].values_TMK for t in range(first, first + rows)]),
            np.ones((rows, MACHINES), dtype=bool),
        )
        for first in (0, rows)
    ]  # fmt: skip
    detector.score(joined[0])
    taken_s = sum(run(detector, joined[1:]))
    return {f"batch_{name}_s": taken_s * ROWS / rows, f"batch_{name}_rows_measured": rows}


def measure_parts(rows: int = 12) -> dict[str, float]:
    """The reference's networks and distances apart: seconds for the whole batch."""
    from minder.diagnose.detectors.similarity import network
    from minder.diagnose.detectors.similarity.distances import summed_distances

    rows_LFSM = np.random.default_rng(0).random((len(METRICS), 1, rows + 7, MACHINES), dtype=np.float32)
    arrays = untrained("reference").arrays
    network.embed(arrays, rows_LFSM[:, :, :9], 8)
    start = time.process_time()
    vectors_LTMD = network.embed(arrays, rows_LFSM, 8)
    networks_s = time.process_time() - start
    start = time.process_time()
    for vectors_TMD in vectors_LTMD[:, :2]:
        summed_distances(vectors_TMD, np.ones((2, MACHINES), dtype=bool))
    distances_s = time.process_time() - start
    return {"batch_minder_networks_s": networks_s * ROWS / rows, "batch_minder_distances_s": distances_s * ROWS / 2}


def measure_default(windows: list[Window], rows: int) -> dict[str, float]:
    run(DefaultDetector(), [windows[t % len(windows)] for t in range(20)])  # warm
    batch = run(DefaultDetector(), [at_time(windows[t % len(windows)], t) for t in range(rows)])
    found = {"batch_default_s": sum(batch) * ROWS / rows, "batch_default_rows_measured": rows}
    found["tick_1500_one_stage_ms"] = 1000 * float(np.median(batch))
    few = [at_time(windows[t % len(windows)], t) for t in range(60)]
    found["tick_1500_eight_stages_ms"] = 1000 * float(np.median(run(DefaultDetector(stages(MACHINES)), few)))
    return found


def measure_streaming() -> dict[str, float]:
    sizes = [1500] * 10 + [256] * 30 + [64] * 36
    ticks = np.zeros(8)
    for size in sizes:
        ticks += np.array(run(DefaultDetector(stages(size)), make_rows(8, size, size)))
    one = run(DefaultDetector(), make_rows(8, 25_000))
    return {
        "tick_25000_in_76_jobs_ms": 1000 * float(np.median(ticks[2:])) * 25_000 / sum(sizes),
        "tick_25000_one_job_ms": 1000 * float(np.median(one[2:])),
    }


def measure_learned(windows: list[Window], rows: int) -> dict[str, float]:
    """The learned detector with the trees that ship: the batch, and ticks of 5 s, each of which ends a bin of every job."""
    trained = read_model(find_resource("models/default"))
    model = LearnedModel.of(trained.arrays, trained.network)
    run(LearnedDetector(model), [at_time(windows[t % len(windows)], t) for t in range(20)])  # warm
    batch = run(LearnedDetector(model), [at_time(windows[t % len(windows)], t) for t in range(rows)])
    ticks, sizes = np.zeros(8), [1500] * 10 + [256] * 30 + [64] * 36
    for size in sizes:
        made = [at_time(window, 5 * t) for t, window in enumerate(make_rows(8, size, size))]
        ticks += np.array(run(LearnedDetector(model, stages(size)), made))
    one = run(LearnedDetector(model), [at_time(window, 5 * t) for t, window in enumerate(make_rows(8, 25_000))])
    return {
        "batch_learned_s": sum(batch) * ROWS / rows,
        "tick_25000_in_76_jobs_learned_ms": 1000 * float(np.median(ticks[2:])) * 25_000 / sum(sizes),
        "tick_25000_one_job_learned_ms": 1000 * float(np.median(one[2:])),
    }


def measure(rows: int, others: int, detectors: tuple[str, ...]) -> dict[str, float]:
    windows = make_rows(60, MACHINES)
    found: dict[str, float] = {}
    if "default" in detectors:
        found |= measure_default(windows, rows) | measure_streaming()
    if "learned" in detectors:
        found |= measure_learned(windows, rows)
    found["peak_memory_default_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name in (name for name in OTHERS if name in detectors):
        try:
            found |= measure_other(name, windows, others)
            found |= measure_parts() if name == "minder" else {}
        except MinderError as error:
            print(f"{name} left out: {error}")
    found["peak_memory_all_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the default's batch")
    parser.add_argument("--others", type=int, default=4, help="rows of the batch that the other detectors are given")
    parser.add_argument("--detectors", nargs="*", default=["default", "learned", *OTHERS])
    arguments = parser.parse_args()
    found = measure(arguments.rows, arguments.others, tuple(arguments.detectors))
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<34} {value:10.2f}")


if __name__ == "__main__":
    main()
