"""How many machines one Prometheus and one scorer hold: python bench/scale.py [--machines 200] [--minutes 15] [--tick 200 1000 4000]

Pull and score: a real Prometheus that holds so many minutes of so many machines x 19 metrics at 1 Hz, asked once for all of it; then
aligned and scored by the default detector, row by row, and by `minder` with the weights that ship. Hold: a Prometheus that holds 15 s
scrapes of so many machines, asked every 15 s as a controller does; what one tick takes of this process and of the Prometheus, and so how
many machines fit into 15 s of one core each. Scraping is Prometheus' own work and is not in it. Processor seconds; one thread of ours.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

import argparse
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
from detector import METRICS

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.load_detector import load_detector
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.windows import Aligner, rows_of
from minder.model.telemetry import Sample, Window
from minder.simulate.demo.prometheus import LabPrometheus

BLOCK = 60  # rows that `minder` scores at once


def names_of(machines: int) -> tuple[str, ...]:
    return tuple(f"m{m:05d}" for m in range(machines))


def series_of(metric: str) -> list[str]:
    """What our agent exports of it (minder/ingest/sources/mappings/minder.toml): rates as counters, traffic in both directions."""
    stem = metric.removesuffix("_per_second")
    if stem == metric or metric.startswith(("nvlink", "pcie")):
        return [f"minder_{metric}"]
    kind = stem.removesuffix("_throughput_bytes")
    return [f"minder_{stem}_total"] if kind == stem else [f"minder_{kind}_{way}_bytes_total" for way in ("receive", "transmit")]


@contextmanager
def holding(machines: int, seconds: int, interval_s: int) -> Iterator[tuple[LabPrometheus, int]]:
    """(a Prometheus that holds this, the newest scrape's time), written as storage blocks by promtool."""
    end_s = int(time.time()) // interval_s * interval_s
    times = np.arange(end_s - seconds + interval_s, end_s + 1, interval_s)
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/series.om", "w") as out:
            for metric, series in itertools.chain.from_iterable(((metric, name) for name in series_of(metric)) for metric in METRICS):
                level, counts = 0.5 if metric.endswith("_ratio") else 300.0, series.endswith("_total")
                out.write(f"# TYPE {series.removesuffix('_total')} {'counter' if counts else 'gauge'}\n")
                for machine in names_of(machines):
                    values = level * (1 + 0.02 * rng.standard_normal(len(times)))
                    lines = zip((np.cumsum(values) if counts else values).tolist(), times.tolist(), strict=True)
                    out.writelines(f'{series}{{machine="{machine}"}} {value:.9g} {at}\n' for value, at in lines)
            out.write("# EOF\n")
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", out.name, f"{scratch}/server/data"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with LabPrometheus(Path(scratch) / "server", {}, "", float(interval_s)) as server:
            yield server, end_s


def server_of() -> psutil.Process:
    (found,) = [child for child in psutil.Process().children() if "prometheus" in child.name()]
    return found


class Cost:
    """Processor seconds of this process and of the Prometheus, and the wall clock's, since it was made."""

    def __init__(self) -> None:
        self._server = server_of()
        self._begun = self._now()

    def _now(self) -> tuple[float, float, float]:
        times = self._server.cpu_times()
        return time.process_time(), times.user + times.system, time.perf_counter()

    def taken(self, name: str) -> dict[str, float]:
        parts = zip(("own", "prometheus", "wall"), self._now(), self._begun, strict=True)
        return {f"{name}_{part}_s": now - before for part, now, before in parts}


def pull(url: str, machines: int, since_s: float, now_s: float, interval_s: float) -> list[Sample]:
    options = PrometheusOptions(url, interval_s, timeout_s=300.0, longest_lookback_s=now_s - since_s + 60.0)
    source = PrometheusSource(options, MachineMap(known=names_of(machines)), since_s=since_s)
    try:
        return source.collect(now_s)
    finally:
        source.close()


def taken_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_blocks(detector: Detector, window: Window) -> None:
    for first in range(0, len(window.times_T), BLOCK):
        part = slice(first, first + BLOCK)
        detector.score(
            replace(window, times_T=window.times_T[part], values_TMK=window.values_TMK[part], present_TM=window.present_TM[part])
        )


def row_by_row(detector: Detector, windows: list[Window]) -> None:
    for row in itertools.chain.from_iterable(rows_of(window) for window in windows):
        detector.score(row)
        detector.learn(row, frozenset())


def pull_and_score(machines: int, minutes: int) -> dict[str, float]:
    with holding(machines, 60 * minutes, 1) as (server, end_s):
        cost = Cost()
        samples = pull(server.url, machines, end_s - 60.0 * minutes, time.time(), 1.0)
        found = cost.taken("pull")
    rows: list[Window] = []
    found |= {"points": sum(len(sample.values) for sample in samples), "align_s": taken_s(lambda: rows.extend(aligned(samples, machines)))}
    found["rows"] = sum(len(row.times_T) for row in rows)
    row_by_row(DefaultDetector(), rows[:20])  # warm
    found["score_default_s"] = taken_s(lambda: row_by_row(DefaultDetector(), rows))
    whole = replace(
        rows[0],
        times_T=np.concatenate([row.times_T for row in rows]),
        values_TMK=np.concatenate([row.values_TMK for row in rows]),
        present_TM=np.concatenate([row.present_TM for row in rows]),
    )
    reference = load_detector("minder")({})
    found["score_minder_s"] = taken_s(lambda: in_blocks(reference, whole))
    return found


def aligned(samples: list[Sample], machines: int) -> list[Window]:
    """A second at a time, as it would have come."""
    aligner, found = Aligner(names_of(machines), 1.0, METRICS), []
    for time_s, together in itertools.groupby(sorted(samples, key=lambda sample: sample.time_s), key=lambda sample: sample.time_s):
        aligner.push(list(together))
        window = aligner.pop(time_s)
        found += [] if window is None else [window]
    return found


def hold(machines: int, ticks: int = 25, every_s: int = 15) -> dict[str, float]:
    """A tick, the mean of the later three quarters: pull what came since the last one, align it, score it."""
    seconds = every_s * (ticks + 10)
    with holding(machines, seconds, every_s) as (server, end_s):
        options = PrometheusOptions(server.url, float(every_s), timeout_s=60.0)
        source = PrometheusSource(options, MachineMap(known=names_of(machines)))
        aligner, detector, taken = Aligner(names_of(machines), float(every_s), METRICS), DefaultDetector(), []
        source._ask = asked_at(source._ask, now_s := [0.0])  # type: ignore[method-assign]
        for tick in range(ticks):
            now_s[0] = end_s - every_s * (ticks - tick) + 1.0
            cost = Cost()
            aligner.push(source.collect(now_s[0]))
            window = aligner.pop(now_s[0])
            if window is not None:
                row_by_row(detector, [window])
            taken.append(cost.taken("tick"))
        source.close()
    found = {name: float(np.mean([each[name] for each in taken[5:]])) for name in taken[0]}
    own_s, server_s = found["tick_own_s"], found["tick_prometheus_s"]
    return {
        **found,
        "machines_in_one_core_own": machines * every_s / own_s,
        "machines_in_one_core_prometheus": machines * every_s / server_s,
    }


def asked_at(ask: Callable[[str], list[object]], now_s: list[float]) -> Callable[[str], list[object]]:
    """The same question, asked about a moment that is past: `[30s]` becomes `[30s] @ TIME`."""
    return lambda query: ask(f"{query} @ {now_s[0]:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--minutes", type=int, default=15)
    parser.add_argument("--tick", type=int, nargs="*", default=[200, 1000, 4000], help="machines at 15 s")
    arguments = parser.parse_args()
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        print("left out: needs prometheus and promtool on the PATH")
        return
    found = pull_and_score(arguments.machines, arguments.minutes)
    print(json.dumps({"machines": arguments.machines, "minutes": arguments.minutes, **found}), flush=True)
    for machines in arguments.tick:
        print(json.dumps({"machines": machines, "every_s": 15, **hold(machines)}), flush=True)


if __name__ == "__main__":
    main()
