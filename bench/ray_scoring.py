"""What scoring on a Ray cluster costs and gives: python bench/ray_scoring.py [--rows 120] [--jobs 4] [--address HOST:PORT]

Jobs that are scored at the same time: one after the other's row in this process, and by an actor each. Without --address on two nodes
of this machine, which are started here, on loopback, and ended here. Rows are sent one by one, as live; data are made beforehand.
`row_ms`: the median wait for one row. `back_s`: from kill -9 of an actor to its next score, its past given to it again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from detector import make_rows

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.load_detector import detector_maker, open_model
from minder.diagnose.scoring.ray_scoring import RayScoring
from minder.diagnose.scoring.remote import Patience, RemoteDetector
from minder.model.telemetry import Window

WAITS = Patience(300.0)
# detector, machines of a job, rows at most
SIZES = (("default", 32, 1000), ("default", 1500, 1000), ("minder", 32, 1000), ("minder", 1500, 25))


@contextmanager
def two_nodes() -> Iterator[str]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 2, "node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        cluster.add_node(**size)
        yield cluster.address
    finally:
        cluster.shutdown()


def run(detector: Detector, rows: Sequence[Window]) -> list[float]:
    """Seconds of each row."""
    taken = []
    for row in rows:
        begun_s = time.perf_counter()
        detector.score(row)
        detector.learn(row, frozenset())
        taken.append(time.perf_counter() - begun_s)
    return taken


def measure(make: Callable[[str], Detector], jobs: int, rows: Sequence[Window], threads: int) -> dict[str, float]:
    detectors = [make(f"job {number}") for number in range(jobs)]
    for detector in detectors:
        run(detector, rows[:5])  # actors have to start
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        taken = list(pool.map(lambda detector: run(detector, rows[5:]), detectors))
    lasted_s = time.perf_counter() - begun_s
    row_ms = statistics.median(each for job in taken for each in job) * 1e3
    return {"rows_per_s": round(jobs * (len(rows) - 5) / lasted_s, 1), "row_ms": round(row_ms, 2)}


def back_s(detector: RemoteDetector, rows: Sequence[Window]) -> float:
    run(detector, rows[:-1])
    assert detector.place is not None
    os.kill(detector.place[1], signal.SIGKILL)
    return round(run(detector, rows[-1:])[0], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--address", help="a Ray head")
    given = parser.parse_args()
    with contextmanager(lambda: iter([given.address]))() if given.address else two_nodes() as address:
        for name, machines, most in SIZES:
            model, rows = open_model(name), make_rows(min(given.rows, most), machines)
            here = measure(lambda job, make=detector_maker(model): make({}), given.jobs, rows, 1)  # type: ignore[misc]
            with closing(RayScoring(address, 0.1, WAITS)) as scoring:
                there = measure(lambda job, scoring=scoring, model=model: scoring.maker(job, model)({}), given.jobs, rows, given.jobs)  # type: ignore[misc]
                killed = back_s(RemoteDetector(scoring.bridge, "killed", model, {}, WAITS), rows)
            row = {"detector": name, "machines": machines, "jobs": given.jobs, "process": here, "ray": there, "back_s": killed}
            print(json.dumps({**row, "load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main()
