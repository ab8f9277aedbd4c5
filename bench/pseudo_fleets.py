"""Fleets of real healthy GPUs and ports that were shifted in time: `python bench/pseudo_fleets.py [FOLDER]`. Nothing should be accused.

FOLDER holds public telemetry of H100 nodes, ../shared/data/h100_telemetry by default; without it this says so and ends. It is measured
with, never copied. Each machine of a fleet is one real GPU (its steady phase, at 10 Hz) or one real InfiniBand port, repeated in a circle
to `--minutes` and begun at a place of its own: with the bursts, drifts and differences between boards of real series, but machines that do
not move together, which is harder than a job. A sample is what was there at the scrape, as an exporter shows it, not a mean. Prints, for
each run and scrape interval, fleets, machine-hours judged, and machines paged and evicted. There are no public series of A100s, only
distributions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.load_detector import load_detector
from minder.model.telemetry import Window
from minder.offline.worlds.trace import trace_detector

FOLDER = Path(__file__).resolve().parents[2] / "shared/data/h100_telemetry"
RUNS = {"t2": "DDP", "t3": "gradient accumulation", "t6": "FSDP with offload", "i4": "inference", "b1": "idle"}
PORTS = {"t10": "DDP over InfiniBand", "t14": "TP+EP+DP over InfiniBand"}
COLUMNS = {
    "power_w": ("gpu_power_draw_watts", 1.0), "temp_c": ("gpu_temperature_celsius", 1.0), "gpu_util_pct": ("gpu_duty_cycle_ratio", 0.01),
    "sm_active": ("gpu_sm_activity_ratio", 1.0), "tensor_active": ("gpu_tensor_activity_ratio", 1.0),
    "dram_active": ("gpu_memory_bandwidth_ratio", 1.0), "nvlink_tx_bytes_s": ("nvlink_bandwidth_bytes_per_second", 1.0),
    "pcie_tx_bytes_s": ("pcie_bandwidth_bytes_per_second", 1.0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traces:
    """values_GNK: G real GPUs or ports, N samples a tenth of a second apart, K metrics."""

    name: str
    metrics: tuple[str, ...]
    values_GNK: np.ndarray


def read_gpus(folder: Path, run: str) -> Traces:
    """The steady phase of eight GPUs."""
    table = pl.read_parquet(folder / f"{run}_telemetry.parquet").filter(pl.col("phase") == "steady").sort("timestamp")
    there = [name for name in COLUMNS if name in table.columns]
    parts = [group.select(there).to_numpy().astype(float) for _, group in table.group_by("gpu", maintain_order=True)]
    values_GNK = np.stack([part[: min(map(len, parts))] for part in parts]) * [COLUMNS[name][1] for name in there]
    return Traces(f"{run}, {RUNS[run]}", tuple(COLUMNS[name][0] for name in there), values_GNK)


def read_ports(folder: Path, run: str) -> Traces:
    """The steady phase of the ports of all nodes; a port that the job does not use is no machine of it."""
    found = list[np.ndarray]()
    for path in sorted(folder.glob(f"{run}_node*_ib.parquet")):
        table = pl.read_parquet(path).filter(pl.col("phase") == "steady").sort("timestamp")
        columns = [f"ib{port}_tx_bytes_s" for port in range(8) if float(table[f"ib{port}_tx_bytes_s"].median()) > 1e6]  # type: ignore[arg-type]
        found += [table[name].to_numpy().astype(float) for name in columns]
    length = min(map(len, found), default=0)
    return Traces(f"{run}, {PORTS[run]}", ("rdma_throughput_bytes_per_second",), np.array([part[:length, None] for part in found]))


def fleet(traces: Traces, machines: int, minutes: float, interval_s: float, seed: int) -> Window:
    """Machine m is trace m, modulo their number, begun at a place of its own."""
    rng = np.random.default_rng([seed, machines])
    count, length = traces.values_GNK.shape[:2]
    times_T = np.arange(0.0, minutes * 60.0, interval_s)
    start_M = rng.integers(length, size=machines)
    place_TM = (start_M[None] + np.rint(times_T * 10.0).astype(int)[:, None]) % length
    values_TMK = traces.values_GNK[(np.arange(machines) % count)[None], place_TM]
    names = tuple(f"machine-{m:02d}" for m in range(machines))
    return Window(1_750_000_000.0 + times_T, names, traces.metrics, values_TMK, np.ones(place_TM.shape, dtype=bool))


def play(
    traces: Traces, make: Callable[[], Detector], sizes: Sequence[int], minutes: float, interval_s: float, seeds: int
) -> Iterator[tuple[int, set[tuple[str, ...]], set[tuple[str, ...]]]]:
    """(machines, paged, evicted) of each fleet."""
    for seed in range(seeds):
        for machines in sizes:
            said = trace_detector(make(), fleet(traces, machines, minutes, interval_s, seed))
            named = {tier: {item.machines for item in said if item.tier == tier} for tier in ("page", "evict")}
            yield machines, named["page"], named["evict"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fleets of real healthy GPUs and ports that were shifted in time.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--machines", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--intervals", type=float, nargs="+", default=[1.0, 5.0, 15.0])
    parser.add_argument("--model", help="a model in the default detector's stead, as `model` of [detector]")
    arguments = parser.parse_args()
    if not any(arguments.folder.glob("*_telemetry.parquet")):
        print(f"no telemetry in {arguments.folder}: name the folder of public H100 telemetry", file=sys.stderr)
        return
    make: Callable[[], Detector] = DefaultDetector if arguments.model is None else lambda: load_detector(arguments.model)
    total_hours, total = 0.0, 0
    print("| series | scrape s | fleets | machine-hours | paged | evicted |\n|---|---|---|---|---|---|")
    for run in (*RUNS, *PORTS):
        traces = read_gpus(arguments.folder, run) if run in RUNS else read_ports(arguments.folder, run)
        if len(traces.values_GNK) < 2:
            continue
        for interval_s in arguments.intervals:
            played = list(play(traces, make, arguments.machines, arguments.minutes, interval_s, arguments.seeds))
            hours = sum(machines for machines, _, _ in played) * arguments.minutes / 60.0
            paged, evicted = sum(len(item[1]) for item in played), sum(len(item[2]) for item in played)
            total_hours, total = total_hours + hours, total + paged + evicted
            print(f"| {traces.name} | {interval_s:g} | {len(played)} | {hours:.0f} | {paged} | {evicted} |", flush=True)
    print(f"{total_hours:.0f} machine-hours, {total} names")


if __name__ == "__main__":
    main()
