"""Twelve real servers that do the same work: python bench/servers.py [FOLDER]

The servers of the InterFusion data set (12 of its 19 metrics move together; 5 minutes a sample), folder ../shared/data/servers by default;
without it this says so and ends. Two halves of the labelled days are reported apart; no detector sees a label, so neither is for
tuning. AUC: over all machines and rows, the chance that an abnormal one scores above a normal one. Top-1: of
the rows in which exactly one server is labelled, how often it scores highest. Networks are trained on the unlabelled days. --every 8
looks at every eighth row only: for IForest and AutoEncoder, which refit a model to every row that they look at.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from minder.diagnose.detectors.choose import choose_detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.distances import normal_scores
from minder.diagnose.detectors.similarity.recent import RecentRows
from minder.diagnose.detectors.similarity.weights import Weights
from minder.model.errors import MinderError
from minder.model.telemetry import Window

FOLDER = Path(__file__).resolve().parents[2] / "shared/data/servers"
WIDTH, STEP_S = 8, 300.0
NAMES = (
    "minder",
    "minder-raw",
    "minder-con",
    "minder-manhattan",
    "mahalanobis",
    "ecod",
    "copod",
    "lof",
    "knn",
    "pca",
    "iforest",
    "autoencoder",
)
# The default detector reads metrics by what they mean; these have no meanings, so the thirteen that move together stand for activity.
MEANINGS = (
    "cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "gpu_temperature_celsius", "tcp_throughput_bytes_per_second",
    "gpu_memory_used_ratio", "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_graphics_activity_ratio", "gpu_duty_cycle_ratio",
    "gpu_fp_activity_ratio", "gpu_memory_bandwidth_ratio", "gpu_power_draw_watts", "gpu_clock_hertz", "nvlink_bandwidth_bytes_per_second",
    "pcie_bandwidth_bytes_per_second", "rdma_throughput_bytes_per_second", "ecn_packets_per_second", "cnp_packets_per_second",
)  # fmt: skip
STAND_FOR = {f"m{k:02d}": name for k, name in enumerate(MEANINGS)}


def read(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """(values_TMK, label_TM, metrics)"""
    import polars as pl

    tables = [pl.read_parquet(path) for path in sorted(folder.glob(f"server-*_{part}.parquet"))]
    metrics = tuple(name for name in tables[0].columns if name != "label")
    rows = min(len(table) for table in tables)
    values_TMK = np.stack([table.select(metrics).to_numpy()[:rows] for table in tables], axis=1).astype(float)
    labels = [table["label"].to_numpy()[:rows] if "label" in table.columns else np.zeros(rows) for table in tables]
    return values_TMK, np.stack(labels, axis=1) > 0, metrics


def window_of(values_TMK: np.ndarray, metrics: tuple[str, ...]) -> Window:
    machines = tuple(f"server-{m + 1:02d}" for m in range(values_TMK.shape[1]))
    return Window(STEP_S * np.arange(len(values_TMK)), machines, metrics, values_TMK, np.ones(values_TMK.shape[:2], dtype=bool))


def train(values_TMK: np.ndarray, metrics: tuple[str, ...], steps: int) -> Weights:
    from minder.offline.training.fit_reference import FitConfig, fit_reference

    rng = np.random.default_rng(1)
    t, m = rng.integers(0, len(values_TMK) - WIDTH, 6000), rng.integers(0, values_TMK.shape[1], 6000)
    windows_NWK = np.stack([values_TMK[t + w, m] for w in range(WIDTH)], axis=1)
    fit = fit_reference(np.ascontiguousarray(windows_NWK.transpose(2, 0, 1))[..., None], FitConfig(steps=steps))
    return Weights(tuple((name,) for name in metrics), metrics, dict.fromkeys(metrics, (0.0, 1.0)), fit.arrays)


def similarity_scores(name: str, weights: Weights, window: Window, every: int) -> np.ndarray:
    """(T, M) normal scores, the mean over lanes: without continuity, which would need faults that last. 0 in rows not looked at."""
    config = SimilarityConfig(metrics=weights.order, refit_s=STEP_S * every)
    detector = choose_detector(name, lambda _: weights, config=config)
    stretch = RecentRows(WIDTH, weights.limits).extend(window, weights.order)
    scorer, config = detector._scorer, detector.config  # type: ignore[attr-defined]
    return np.mean([normal_scores(sums_TM, config.least_spread) for sums_TM in scorer.score(stretch, config)], axis=0)


def default_scores(window: Window, train_TMK: np.ndarray) -> np.ndarray:
    """Row by row as live, with the last unlabelled day before it."""
    detector, found, names = DefaultDetector(), [], tuple(STAND_FOR[name] for name in window.metrics)
    whole = np.concatenate([train_TMK[-288:], window.values_TMK])
    for t in range(len(whole)):
        row = Window(STEP_S * np.array([float(t)]), window.machines, names, whole[t : t + 1], np.ones((1, whole.shape[1]), dtype=bool))
        scores = detector.score(row)[0]
        found.append(scores.score_M)
        detector.learn(row, frozenset(name for m, name in enumerate(scores.machines) if scores.score_M[m] >= scores.threshold))
    return np.array(found[288:])


def auc(score_TM: np.ndarray, label_TM: np.ndarray) -> float:
    """Mann and Whitney's, ties counted half."""
    _, place_N, count = np.unique(score_TM.ravel(), return_inverse=True, return_counts=True)
    rank_V = np.cumsum(count) - (count - 1) / 2.0
    flag_N = label_TM.ravel()
    abnormal, normal = int(flag_N.sum()), int((~flag_N).sum())
    return float((rank_V[place_N][flag_N].sum() - abnormal * (abnormal + 1) / 2.0) / (abnormal * normal))


def top_one(score_TM: np.ndarray, label_TM: np.ndarray) -> tuple[float, int]:
    single_T = label_TM.sum(axis=1) == 1
    return float((score_TM[single_T].argmax(axis=1) == label_TM[single_T].argmax(axis=1)).mean()), int(single_T.sum())


def report(name: str, score_TM: np.ndarray, label_TM: np.ndarray, every: int) -> None:
    cells, half = [], len(score_TM) // 2
    for part in (slice(0, half, every), slice(-(-half // every) * every, None, every)):
        cells.append(f"{auc(score_TM[part], label_TM[part]):.3f} | {top_one(score_TM[part], label_TM[part])[0]:.2f}")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=600, help="of the networks' training")
    parser.add_argument("--every", type=int, default=1, help="look at every so manieth row only")
    parser.add_argument("--detectors", nargs="*", default=["default", *NAMES])
    arguments = parser.parse_args()
    if not list(arguments.folder.glob("server-*_labelled.parquet")):
        print(f"skipped: no servers in {arguments.folder}", file=sys.stderr)
        return
    train_TMK, _, metrics = read(arguments.folder, "train")
    values_TMK, label_TM, _ = read(arguments.folder, "labelled")
    window = window_of(values_TMK, metrics)
    every, looked_TM = arguments.every, label_TM[:: arguments.every]
    single = top_one(looked_TM * 1.0, looked_TM)[1]
    print(f"{len(looked_TM)} rows, {single} of them with exactly one labelled server (chance {1 / label_TM.shape[1]:.2f})\n")
    print("| detector | AUC, first half | top-1 | AUC, second half | top-1 |\n|---|---|---|---|---|")
    middle_TM = np.abs(values_TMK - np.median(values_TMK, axis=1, keepdims=True)).mean(axis=2)
    report("distance from the peers' median", middle_TM, label_TM, every)
    if "default" in arguments.detectors:
        report("default", default_scores(window, train_TMK), label_TM, every)
    weights = train(train_TMK, metrics, arguments.steps)
    for name in (name for name in NAMES if name in arguments.detectors):
        try:
            report(name, similarity_scores(name, weights, window, every), label_TM, every)
        except MinderError as error:
            print(f"| {name} | left out: {error} |")


if __name__ == "__main__":
    main()
