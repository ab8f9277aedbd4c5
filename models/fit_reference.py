"""Makes the weights that ship in models/reference and models/reference-int: python models/fit_reference.py [--recordings 16] [--out models]

Healthy windows and labelled rows come from `minder simulate` recipes (training seeds only), so that anybody can make them again; a site
trains its own with `minder train reference`. The same arguments give the same weights on the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from minder.diagnose.detectors.similarity.config import PUBLISHED_METRICS
from minder.ingest.windows import align_columns
from minder.model.metrics import CATALOGUE
from minder.model.telemetry import Window
from minder.offline.training.fit_order import fit_order, largest_z
from minder.offline.training.fit_reference import Fit, FitConfig, find_limits, fit_reference
from minder.record.registry.folder import Model, write_model
from minder.simulate.cluster.recipe import load_recipe
from minder.simulate.cluster.simulate import make

SEED, WIDTH, FAULT_S, BEFORE_S = 41, 8, 420.0, 30.0
RECIPES = ("plain", "healthy")
ABOUT = """
- **For**: the detector `minder` and its variants, a published yardstick ([what is published and what is not](../../docs/detectors.md)).
  The default detector needs no weights.
- **How well**: [measurements](../../docs/benchmarks.md#every-detector-on-the-same-recordings) on recordings that it was not fitted on.
- **Limits**: it has seen healthy machines of the recipes plain and healthy, scraped every 1 to 15 s, and no real cluster; no other
  metrics than those below. It compares all machines of a job, whatever their pipeline stage. Fit it on your own healthy recordings before
  you trust it ([training](../../docs/training.md)).
- **Error**: on healthy windows it is for most metrics 10 to 100 times what the paper reports for its own data: ours is simulated, with
  nuisances. Detection was measured with these weights.
- **Licence**: Apache-2.0, the project's; no data of others is in it.
"""
RATIOS = frozenset(metric.name for metric in CATALOGUE if metric.unit == "ratio")


def recording(recipe: str, index: int, most_machines: int) -> tuple[Window, float]:
    """(window, onset; infinite without a fault) of a simulated recording."""
    rules = load_recipe(recipe)
    rules = rules.model_copy(update={"job": rules.job.model_copy(update={"machines": (4, most_machines)})})
    made = make(rules, SEED, index)
    columns = SimpleNamespace(
        times_N=(made.begin_ms + made.rows.time_R) / 1000.0, machine_N=made.rows.machine_R, device_N=np.full(len(made.rows.time_R), -1),
        values_NK=made.rows.values_RK, machines=made.scene.shape.machines, devices=(),
        metrics=tuple(model.name for model in made.site.models),
    )  # fmt: skip
    onset_s = made.truth.onset_s
    return align_columns(columns, made.site.interval_s), np.inf if onset_s is None else onset_s


def scaled_windows(
    windows: list[tuple[Window, float]], inputs: tuple[str, ...], limits: dict, count: int, rng: np.random.Generator
) -> np.ndarray:
    """(N, W, F) healthy windows of machines that have all these metrics, drawn at random."""
    drawn, share = [], max(64, 2 * count // len(windows))
    for window, onset_s in windows:
        rows = int((window.times_T < onset_s).sum()) - WIDTH
        if rows < 1 or not set(inputs) <= set(window.metrics):
            continue
        place = [window.metrics.index(name) for name in inputs]
        t, m = rng.integers(0, rows, share), rng.integers(0, len(window.machines), share)
        values_NWF = np.stack([window.values_TMK[t + w, m][:, place] for w in range(WIDTH)], axis=1)
        drawn.append(values_NWF[np.isfinite(values_NWF).all(axis=(1, 2))])
    every = np.concatenate(drawn)
    low_F, high_F = (np.array([limits[name][side] for name in inputs]) for side in (0, 1))
    chosen = rng.integers(0, len(every), count)
    return ((every[chosen] - low_F) / (high_F - low_F)).astype(np.float32)


def order_of(windows: list[tuple[Window, float]], metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Every third row; rows of the half minute before an onset would blur the line and are left out."""
    rows, flags = [], []
    for window, onset_s in windows:
        found_TK = np.full((len(window.times_T), len(metrics)), np.nan)
        for k, name in enumerate(metrics):
            if name in window.metrics:
                found_TK[:, k] = largest_z(window.values_TMK[:, :, [window.metrics.index(name)]])[:, 0] / np.sqrt(len(window.machines) - 1)
        abnormal_T = (window.times_T >= onset_s + BEFORE_S) & (window.times_T <= onset_s + FAULT_S)
        kept_T = (abnormal_T | (window.times_T < onset_s)) & (np.arange(len(window.times_T)) % 3 == 0)
        rows.append(found_TK[kept_T])
        flags.append(abnormal_T[kept_T])
    return fit_order(np.concatenate(rows), np.concatenate(flags), metrics)


def write(folder: Path, fit: Fit, network: dict, training: dict, what: str) -> None:
    errors = {
        " ".join(names) if len(names) == 1 else "all": float(f"{error:.3g}")
        for names, error in zip(network["inputs"], fit.error_L, strict=True)
    }
    lines = "\n".join(f"| {name} | {error:.1e} |" for name, error in errors.items())
    card = (
        f"# {what}\n\nThe published detector's networks (Minder, NSDI'25): window {WIDTH}, hidden 4, latent 8, one layer.\n"
        "Trained on healthy windows of simulated recordings by `models/fit_reference.py`; model.json has seeds and the data's hash.\n"
        f"{ABOUT}\n| metric | mean squared error |\n|---|---|\n{lines}\n"
    )
    ranges = {name: tuple(bounds) for name, bounds in network["limits"].items()}
    write_model(Model("minder", {}, ranges, network, fit.arrays, {**training, "error": errors}, card), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recordings", type=int, default=16, help="of each recipe")
    parser.add_argument("--machines", type=int, default=32, help="at most, in one recording")
    parser.add_argument("--windows", type=int, default=8000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    arguments = parser.parse_args()
    windows = [recording(recipe, index, arguments.machines) for recipe in RECIPES for index in range(1, arguments.recordings + 1)]
    digest = hashlib.sha256()
    for window, _ in windows:
        digest.update(np.ascontiguousarray(window.values_TMK).tobytes())
    metrics = tuple(sorted({name for window, _ in windows for name in window.metrics}))
    flat = {
        name: np.concatenate([w.values_TMK[w.times_T < o, :, w.metrics.index(name)].ravel() for w, o in windows if name in w.metrics])
        for name in metrics
    }
    limits = {}
    for name in metrics:
        limits |= find_limits(flat[name][:, None], (name,), RATIOS)
    order = order_of(windows, metrics)
    print("order:", *order)
    training = {
        "script": "models/fit_reference.py", "recipes": list(RECIPES), "recordings": arguments.recordings, "seed": SEED,
        "machines": arguments.machines,
        "windows": arguments.windows, "steps": arguments.steps, "data_sha256": digest.hexdigest(),
    }  # fmt: skip
    for folder, inputs, what in (
        ("reference", tuple((name,) for name in metrics), "One LSTM-VAE per metric"),
        ("reference-int", (PUBLISHED_METRICS,), "One LSTM-VAE for seven metrics (the ablation INT)"),
    ):
        rng = np.random.default_rng(SEED)
        windows_LNWF = np.stack([scaled_windows(windows, names, limits, arguments.windows, rng) for names in inputs])
        fit = fit_reference(windows_LNWF, FitConfig(steps=arguments.steps, seed=SEED))
        network = {
            "inputs": [list(names) for names in inputs],
            "order": list(order),
            "limits": {name: list(bounds) for name, bounds in limits.items()},
        }
        write(arguments.out / folder, fit, network, training, what)
        print(folder, "mean squared error:", *(f"{error:.1e}" for error in fit.error_L))


if __name__ == "__main__":
    main()
