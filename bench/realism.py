"""Real and simulated series side by side: `python bench/realism.py --real FOLDER --out realism.png`.

FOLDER holds public DCGM telemetry of training on eight H100s at 10 Hz, one parquet file per run (columns timestamp, phase, gpu, power_w,
temp_c, ...). It is measured with, never copied: without it only the simulated side is measured and drawn. Prints, for both, level,
relative noise, memory from second to second, how alike the peers are, and how far their averages lie apart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import polars as pl

from minder.offline.plots.realism import Series, describe, draw_realism
from minder.simulate.cluster.recipe import load_recipe
from minder.simulate.cluster.simulate import make

# Column of the real telemetry, the catalogue's name, and what turns one into the other.
COLUMNS = {
    "power_w": ("gpu_power_draw_watts", 1.0),
    "temp_c": ("gpu_temperature_celsius", 1.0),
    "gpu_util_pct": ("gpu_duty_cycle_ratio", 0.01),
    "sm_active": ("gpu_sm_activity_ratio", 1.0),
    "tensor_active": ("gpu_tensor_activity_ratio", 1.0),
    "dram_active": ("gpu_memory_bandwidth_ratio", 1.0),
    "nvlink_tx_bytes_s": ("nvlink_bandwidth_bytes_per_second", 1.0),
    "pcie_tx_bytes_s": ("pcie_bandwidth_bytes_per_second", 1.0),
}
RUNS = ("t2_telemetry", "t3_telemetry", "t6_telemetry")


def read_real(path: Path, seconds: int) -> list[Series]:
    """The run's steady phase at 1 Hz: means of a second, one column per GPU."""
    table = pl.read_parquet(path).filter(pl.col("phase") == "steady")
    table = table.with_columns((pl.col("timestamp") - pl.col("timestamp").min()).cast(pl.Int64).alias("second"))
    found = []
    for column, (name, factor) in COLUMNS.items():
        if column in table.columns:
            wide = table.with_columns(pl.col(column).cast(pl.Float64)).pivot(
                "gpu", index="second", values=column, aggregate_function="mean"
            )
            values_TM = wide.sort("second").drop("second").to_numpy().astype(float)[:seconds] * factor
            found.append(Series(name, np.arange(len(values_TM), dtype=float), values_TM))
    return found


def make_simulated(seed: int, seconds: int, machines: int) -> list[Series]:
    """A healthy job of the plain recipe: as many machines as there are real GPUs."""
    recipe = load_recipe("plain")
    job = recipe.job.model_copy(update={"machines": (machines, machines), "pipeline": (1,)})
    faults = recipe.faults.model_copy(update={"healthy_share": 1.0})
    monitoring = recipe.monitoring.model_copy(update={"metrics": (19, 19), "lost_scrapes": 0.0, "lost_values": 0.0})
    made = make(recipe.model_copy(update={"job": job, "faults": faults, "monitoring": monitoring}), seed, 1)
    found = []
    for k, model in enumerate(made.site.models):
        if model.name in {name for name, _ in COLUMNS.values()}:
            values_TM = np.full((seconds, machines), np.nan)
            rows = made.rows.time_R // 1000
            inside = rows < seconds
            values_TM[rows[inside], made.rows.machine_R[inside]] = made.rows.values_RK[inside, k]
            found.append(Series(model.name, np.arange(seconds, dtype=float), values_TM))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Real and simulated series side by side.")
    parser.add_argument("--real", type=Path, help="folder of public H100 telemetry")
    parser.add_argument("--out", type=Path, default=Path("realism.png"))
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--no-figure", action="store_true")
    arguments = parser.parse_args()
    sides = {f"simulated, seed {seed}": make_simulated(seed, arguments.seconds, 8) for seed in (arguments.seed, arguments.seed + 1)}
    for run in RUNS if arguments.real else ():
        if (arguments.real / f"{run}.parquet").exists():
            sides[f"real, {run.split('_')[0]}"] = read_real(arguments.real / f"{run}.parquet", arguments.seconds)
    for side, series in sides.items():
        for item in series:
            print(json.dumps({"side": side, "metric": item.metric, **describe(item.values_TM)}))
    if not arguments.no_figure:
        draw_realism(sides, arguments.out)
        print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
