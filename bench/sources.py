"""What telemetry costs: `python bench/sources.py [--machines N] [--minutes N]`; one JSON line.

prometheus: one catch-up of the whole stretch at 1 Hz and one ordinary tick, out of a real Prometheus (left out without one).
Seconds are this process's CPU; for Prometheus the wall clock's too, since the server works as well.
recording: read and aligned at once. streaming: the aligner's time per sample (machine x time), rows included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.sources.recorder import Recorder
from minder.ingest.sources.recording import RecordingSource, read_recording
from minder.ingest.windows import Aligner, align_recording
from minder.model.metrics import CATALOGUE
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism

METRICS = tuple(metric.name for metric in CATALOGUE if metric.unit == "ratio" or (metric.family == "gpu" and not metric.counter))[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--minutes", type=int, default=15)
    options = parser.parse_args()
    seconds = options.minutes * 60
    result: dict[str, object] = {"bench": "sources", "machines": options.machines, "metrics": len(METRICS), "seconds": seconds}
    with tempfile.TemporaryDirectory() as folder:
        result |= measure_recording(Path(folder), options.machines, seconds)
        if shutil.which("prometheus") and shutil.which("promtool"):
            result |= measure_prometheus(Path(folder), options.machines, seconds)
    print(json.dumps(result))


def measure_recording(folder: Path, machines: int, seconds: int) -> dict[str, object]:
    names = tuple(f"m{m}" for m in range(machines))
    rng = np.random.default_rng(0)
    with Recorder(folder / "r", RecordedJob("bench", names, parallelism=Parallelism(data=machines), interval_s=1.0)) as recorder:
        for second in range(seconds):
            values = rng.uniform(0.1, 0.9, (machines, len(METRICS)))
            recorder.append_samples(
                Sample(1.7e9 + second + 0.01 * m, name, dict(zip(METRICS, values[m].tolist(), strict=True))) for m, name in enumerate(names)
            )
    started_s = time.process_time()
    recording = read_recording(folder / "r")
    read_s = time.process_time() - started_s
    started_s = time.process_time()
    align_recording(recording)
    align_s = time.process_time() - started_s
    samples = RecordingSource(recording).collect(1.8e9)
    aligner = Aligner(names, 1.0, METRICS)
    started_s = time.process_time()
    for second in range(seconds):
        aligner.push(samples[second * machines : (second + 1) * machines])
        aligner.pop(1.7e9 + second)
    per_sample_us = (time.process_time() - started_s) / len(samples) * 1e6
    return {"recording_read_s": read_s, "recording_align_s": align_s, "streaming_us_per_sample": per_sample_us}


def measure_prometheus(folder: Path, machines: int, seconds: int) -> dict[str, object]:
    now_s = int(time.time())
    write_blocks(folder, machines, now_s - seconds, now_s)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={url}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_ready(f"http://{url}/-/ready")
        options = PrometheusOptions(f"http://{url}", timeout_s=60.0, longest_lookback_s=seconds + 60.0)
        source = PrometheusSource(options, MachineMap(), since_s=now_s - seconds)
        samples, catch_up = timed(source)
        _, tick = timed(source)
        source.close()
    finally:
        server.kill()
        server.wait()
    points = sum(len(sample.values) for sample in samples)
    return {"prometheus_catch_up": catch_up, "prometheus_points": points, "prometheus_tick": tick}


def timed(source: PrometheusSource) -> tuple[list[Sample], dict[str, float]]:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    samples = source.collect(time.time())
    return samples, {"wall_s": time.perf_counter() - wall_s, "cpu_s": time.process_time() - cpu_s}


def write_blocks(folder: Path, machines: int, begin_s: int, end_s: int) -> None:
    """`machines` x METRICS series at 1 Hz as storage blocks, by promtool."""
    rng = np.random.default_rng(1)
    with open(folder / "series.om", "w") as out:
        for name in METRICS:
            out.write(f"# TYPE minder_{name} gauge\n")
            for m in range(machines):
                labels = f'{{machine="m{m}",instance="m{m}:9400",job="minder"}}'
                values = rng.uniform(0.1, 0.9, end_s - begin_s)
                out.writelines(f"minder_{name}{labels} {value:.6f} {begin_s + n}\n" for n, value in enumerate(values))
        out.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "series.om"), str(folder / "data")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def wait_ready(url: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=2.0):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"{url} did not answer")


if __name__ == "__main__":
    main()
