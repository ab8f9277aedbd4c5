"""What real GPUs and simulated ones read, side by side: python bench/marginals.py [FOLDER] [--out marginals.png]

FOLDER holds util_cdf.npz, the utilisation curves of two A100 clusters (Seren and Kalos of AcmeTrace, NSDI'24, CC BY 4.0), by default
../shared/data/distributions; without it only the simulated side is shown and drawn. The curves are of all GPUs at all times, many of them
idle; jobs here train. So of duty, power, memory, SM activity and InfiniBand the real side is the upper part, as many samples as have a duty
cycle of 50 % and more, which supposes that these are higher on busy GPUs; of the simulated side it is the samples with such a duty cycle.
Power and InfiniBand are shown as a share of what the hardware allows (A100: 400 W, one port of 200 Gb/s; simulated: H100, 700 W, 8 ports of
400 Gb/s; with the recipe "a100" 400 W).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from minder.offline.plots.marginals import LEVELS, Marginal, busy_part, draw_marginals, farthest
from minder.simulate.cluster.recipe import load_recipe
from minder.simulate.cluster.simulate import make

FOLDER = Path(__file__).resolve().parents[2] / "shared/data/distributions"
BUSY = 0.5  # duty cycle
# Curve, name, unit, what makes the unit of the curve's, the metric here and what makes the unit of it, upper part only. IB is in MB/s.
CURVES = (
    ("util_gpu_{}__0", "duty cycle", "%", 1.0, "gpu_duty_cycle_ratio", 100.0, True),
    ("gpu_power_{}__0", "power", "% of the limit", 1 / 4.0, "gpu_power_draw_watts", 100.0, True),
    ("gpu_temp_{}__0", "GPU temperature", "°C", 1.0, "gpu_temperature_celsius", 1.0, True),
    ("util_gpu_{}__2", "GPU memory used", "%", 1.0, "gpu_memory_used_ratio", 100.0, True),
    ("util_gpu_{}__4", "SM activity", "%", 1.0, "gpu_sm_activity_ratio", 100.0, True),
    ("ib_{}__0", "InfiniBand", "% of the links", 100 / 25_000, "rdma_throughput_bytes_per_second", 100 / 4e11, True),
    ("util_cpu_mem_{}__0", "CPU", "%", 1.0, "cpu_usage_ratio", 100.0, False),
    ("util_cpu_mem_{}__2", "host memory", "%", 1.0, "memory_usage_ratio", 100.0, False),
)  # fmt: skip


def real_side(curves: Mapping[str, np.ndarray], cluster: str) -> list[Marginal]:
    """Kalos has SM activity in a file of its own (util_gpu_kalos_full) and no InfiniBand."""
    fuller = {name.replace("_full", ""): name for name in curves if "_full" in name}
    duty_Q = curves[f"util_gpu_{cluster}__0"]
    idle = float(np.mean(duty_Q < 100 * BUSY))
    found = []
    for pattern, name, unit, factor, _, _, upper in CURVES:
        key = pattern.format(cluster)
        key = fuller.get(key, key)
        if key in curves:
            values_Q = np.sort(curves[key]) * factor
            found.append(Marginal(name, unit, busy_part(values_Q, idle) if upper else values_Q))
    return found


def simulated_side(recipe: str, count: int, seed: int) -> list[Marginal]:
    """Healthy jobs, every job as many samples as the next."""
    rules = load_recipe(recipe)
    faults = rules.faults.model_copy(update={"healthy_share": 1.0})
    monitoring = rules.monitoring.model_copy(update={"metrics": (19, 19), "few_share": 0.0})
    rules = rules.model_copy(update={"faults": faults, "monitoring": monitoring})
    drawn: dict[str, list[np.ndarray]] = {}
    for index in range(1, count + 1):
        made = make(rules, seed, index)
        place = {model.name: k for k, model in enumerate(made.site.models)}
        watts = 400.0 if recipe == "a100" else 700.0
        rows_RK = made.rows.values_RK[np.random.default_rng(index).integers(0, len(made.rows.values_RK), 4000)]
        busy_R = rows_RK[:, place["gpu_duty_cycle_ratio"]] >= BUSY
        for _, name, _, _, metric, factor, upper in CURVES:
            values_R = rows_RK[busy_R if upper else slice(None), place[metric]] * factor
            drawn.setdefault(name, []).append(values_R / watts if name == "power" else values_R)
    return [Marginal(name, unit, np.nanquantile(np.concatenate(drawn[name]), LEVELS)) for _, name, unit, *_ in CURVES]


def report(sides: Mapping[str, list[Marginal]]) -> None:
    """A row per metric and side; of a real side how far each simulated one is from it."""
    simulated = [side for side in sides if side.startswith("simulated")]
    apart = [f"farthest from {side.removeprefix('simulated, ')}" for side in simulated]
    print(f"| metric | side | 10 % | 25 % | 50 % | 75 % | 90 % | {' | '.join(apart)} |\n|---|---|{'---:|' * (5 + len(apart))}")
    for _, name, unit, *_ in CURVES:
        of = {side: item for side, found in sides.items() for item in found if item.metric == name}
        for side, item in of.items():
            row = [f"{item.at(q):.0f}" for q in (0.1, 0.25, 0.5, 0.75, 0.9)]
            row += ["" if side in simulated else f"{farthest(item, of[other]):.2f}" for other in simulated]
            print(f"| {name}, {unit} | {side} | {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=Path("marginals.png"))
    parser.add_argument("--recipes", nargs="+", default=["plain", "a100"])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=9701)
    arguments = parser.parse_args()
    sides: dict[str, list[Marginal]] = {}
    path = arguments.folder / "util_cdf.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as archive:
            curves = {name: archive[name] for name in archive.files}
        sides = {f"real, {cluster.capitalize()}": real_side(curves, cluster) for cluster in ("seren", "kalos")}
    else:
        print(f"no {path}: the simulated side alone", file=sys.stderr)
    for recipe in arguments.recipes:
        sides[f"simulated, {recipe}"] = simulated_side(recipe, arguments.count, arguments.seed)
    report(sides)
    draw_marginals(sides, arguments.out)
    print(f"\nwrote {arguments.out}")


if __name__ == "__main__":
    main()
