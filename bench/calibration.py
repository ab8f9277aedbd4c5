"""Whether a confidence of 0.9 is right nine times in ten: python bench/calibration.py FILE... [--fit] [--plot FILE.png]

FILE is what `python bench/default_detector.py SOURCE --json CASES.json` wrote, or the rows.jsonl of bench/compare_detectors.py, of which
the default detector's newest row of each recording counts. Counts the first accusation of each recording; right is one of a machine that
is at fault, after the onset, however late. Prints the reliability table, its expected calibration error and Brier score; --fit
prints the slope and intercept of minder/diagnose/verdicts/telemetry.py that these verdicts ask for (Platt, 1999: targets (r+1)/(r+2) and
1/(w+2) for r right and w wrong ones), to be checked on recordings that were not fitted.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from minder.diagnose.verdicts.telemetry import INTERCEPT, SLOPE
from minder.offline.evaluation.reliability import measure_reliability
from minder.offline.evaluation.scoring import Judged
from minder.offline.plots.evaluation import draw_reliability


def first_verdicts(paths: list[Path]) -> tuple[list[float], list[bool]]:
    """(confidence, right) of each recording's first accusation."""
    confidence, right = [], []
    for path in paths:
        for stated, good in _of_rows(path) if path.suffix == ".jsonl" else _of_cases(path):
            confidence.append(stated)
            right.append(good)
    return confidence, right


def _of_cases(path: Path) -> Iterator[tuple[float, bool]]:
    for case in json.loads(path.read_text()):
        if case["verdicts"]:
            delay_s, machines, _, _, stated, *_ = case["verdicts"][0]
            yield float(stated), bool(case["culprit"]) and machines == case["culprit"] and delay_s >= 0.0


def _of_rows(path: Path) -> Iterator[tuple[float, bool]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    newest = {(row["recipe"], row["seed"], row["index"]): row for row in rows if row["detector"] == "default"}
    for row in newest.values():
        if row["told"]:
            delay_s, machines, _, _, stated = row["told"][0]
            yield float(stated), set(machines) <= set(row["culprits"]) and delay_s >= 0.0


def fit(confidence: list[float], right: list[bool], rounds: int = 100) -> tuple[float, float]:
    """Slope and intercept over the raw strength, by Newton's method."""
    raw_V = (np.array([math.log(c / (1.0 - c)) for c in confidence]) - INTERCEPT) / SLOPE
    good = sum(right)
    target_V = np.where(np.array(right), (good + 1) / (good + 2), 1 / (len(right) - good + 2))
    design_VP = np.column_stack([raw_V, np.ones(len(raw_V))])
    weights_P = np.array([SLOPE, INTERCEPT])
    ridge_PP = np.diag([0.1, 1e-6])  # a few verdicts must not make the slope steep
    for _ in range(rounds):
        share_V = 1.0 / (1.0 + np.exp(-design_VP @ weights_P))
        hessian_PP = (design_VP * (share_V * (1 - share_V))[:, None]).T @ design_VP + ridge_PP
        gradient_P = design_VP.T @ (target_V - share_V) - ridge_PP @ (weights_P - np.array([SLOPE, 0.0]))
        weights_P = weights_P + 0.5 * np.linalg.solve(hessian_PP, gradient_P)
    return float(weights_P[0]), float(weights_P[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if not arguments.cases:
        print("name the files that bench/default_detector.py --json or bench/compare_detectors.py wrote")
        return
    confidence, right = first_verdicts(arguments.cases)
    judged = [Judged("", None, "found" if good else "wrong", confidence=stated) for stated, good in zip(confidence, right, strict=True)]
    found = measure_reliability(judged)
    print(f"{found.count} verdicts, {sum(right)} right; expected calibration error {found.error:.3f}, Brier {found.brier:.3f}")
    print(f"{'confidence':>12} {'n':>5} {'stated':>6} {'right':>6}   95 % interval")
    for item in found.bins:
        span = f"{item.right.low:.2f} to {item.right.high:.2f}"
        print(f"{item.low:6.2f}..{item.high:4.2f} {item.count:>5} {item.confidence:6.2f} {item.right.value:6.2f}   {span}")
    if arguments.fit:
        slope, intercept = fit(confidence, right)
        print(f"SLOPE, INTERCEPT = {slope:.2f}, {intercept:.2f}")
    if arguments.plot is not None:
        arguments.plot.write_bytes(draw_reliability([asdict(item) for item in found.bins], found.error))


if __name__ == "__main__":
    main()
