"""Whether a confidence of 0.9 is right nine times in ten: python bench/calibration.py FILE... [--fit] [--plot FILE.png]

FILE is what `python bench/default_detector.py SOURCE... --json CASES.json` wrote. Counts the first accusation of each recording; right is
one of a machine that is at fault, or of a group with one, after the onset, however late. Prints the reliability table, its expected
calibration error and Brier score, what was said less what was right with a 95 % interval (Wilson, of the share that was right), the Brier
score of a constant, and the slope of right on the log odds that were said; the same of snapshots every two minutes at which a machine is
accused with more than 0.5, whose interval is too narrow, since those of one recording are alike. --fit prints the `ODDS` of
minder/diagnose/verdicts/telemetry.py that these verdicts ask for (logistic regression, scikit-learn's default penalty; of what an
accusation gains while it stands the most likely one), and the same figures for each family of worlds by odds that were fitted to the
other families. Kinds of recording of one family (plain and hard) are left out together.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from default_detector import KINDS
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from minder.diagnose.verdicts.telemetry import ODDS, calibrated, is_of_network
from minder.offline.evaluation.intervals import wilson
from minder.offline.evaluation.reliability import measure_reliability
from minder.offline.evaluation.scoring import Judged
from minder.offline.plots.evaluation import draw_reliability
from minder.offline.training.learned.measure import reliability_slope

_LEADS = 0.5  # snapshots of less sure accusations are left out
FITTED = ("network", "group")  # together is set by hand: too few worlds have it


@dataclass(frozen=True, slots=True)
class First:
    """The first accusation of a recording. shown: what of FITTED it shows."""

    family: str
    said: float
    right: bool
    shown: tuple[bool, bool]


def first_verdicts(paths: Sequence[Path]) -> list[First]:
    found = []
    for case in (case for path in paths for case in json.loads(path.read_text()) if case["verdicts"]):
        delay_s, named, _, _, said, metrics = case["verdicts"][0]
        machines = named.split(",")
        kind = case["judged"]["recording"].split(":")[0]
        shown = (bool(metrics) and is_of_network(metrics[0]), len(machines) > 1)
        found.append(First(KINDS.get(kind, kind), said, case["culprit"] in machines and delay_s >= 0.0, shown))
    return found


def fit(verdicts: Sequence[First]) -> LogisticRegression:
    return LogisticRegression().fit([item.shown for item in verdicts], [item.right for item in verdicts])


def left_out(verdicts: Sequence[First]) -> list[float]:
    """What each verdict would say by odds fitted to the verdicts of all other families."""
    said = [0.0] * len(verdicts)
    for family in sorted({item.family for item in verdicts}):
        model = fit([item for item in verdicts if item.family != family])
        here = [place for place, item in enumerate(verdicts) if item.family == family]
        for place, share in zip(here, model.predict_proba([verdicts[place].shown for place in here])[:, 1], strict=True):
            said[place] = float(share)
    return said


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was said of a machine that is accused. odds: without what it has gained since; minutes: log(1 + minutes accused)."""

    family: str
    said: float
    right: bool
    odds: float
    minutes: float


def snapshots_of(paths: Sequence[Path]) -> list[Snapshot]:
    found = []
    for case in (case for path in paths for case in json.loads(path.read_text())):
        kind = case["judged"]["recording"].split(":")[0]
        for said, right, stands_s in case["snapshots"]:
            minutes = math.log1p(stands_s / 60.0)
            if said > _LEADS:
                found.append(Snapshot(KINDS.get(kind, kind), said, right, math.log(said / (1.0 - said)) - ODDS.stands * minutes, minutes))
    return found


def fit_stands(snapshots: Sequence[Snapshot]) -> float:
    """What each e-folding of the minutes adds to the log odds."""
    odds_N, minutes_N = (np.array([getattr(item, name) for item in snapshots]) for name in ("odds", "minutes"))
    sign_N = np.where([item.right for item in snapshots], -1.0, 1.0)
    return float(minimize_scalar(lambda stands: np.logaddexp(0.0, sign_N * (odds_N + stands * minutes_N)).sum(), bounds=(0.0, 2.0)).x)


def left_out_snapshots(snapshots: Sequence[Snapshot]) -> list[float]:
    families = sorted({item.family for item in snapshots})
    gains = {family: fit_stands([item for item in snapshots if item.family != family]) for family in families}
    return [calibrated(item.odds + gains[item.family] * item.minutes) for item in snapshots]


def figures(said: Sequence[float], right: Sequence[bool]) -> str:
    said_N, right_N = np.array(said), np.array(right, dtype=float)
    share = wilson(int(right_N.sum()), len(right_N))
    gap, low, high = (float(said_N.mean()) - value for value in (share.value, share.high, share.low))
    brier, constant = float(((said_N - right_N) ** 2).mean()), float(right_N.mean() * (1.0 - right_N.mean()))
    slope = reliability_slope(said_N, right_N)
    return f"said less right {gap:+.3f} ({low:+.3f} to {high:+.3f}), Brier {brier:.4f} (a constant {constant:.4f}), slope {slope:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if not arguments.cases:
        print("name the files that bench/default_detector.py --json wrote")
        return
    verdicts = first_verdicts(arguments.cases)
    right = [item.right for item in verdicts]
    judged = [Judged("", None, "found" if item.right else "wrong", confidence=item.said) for item in verdicts]
    found = measure_reliability(judged)
    print(f"{found.count} verdicts, {sum(right)} right; expected calibration error {found.error:.3f}, Brier {found.brier:.3f}")
    print(f"as said: {figures([item.said for item in verdicts], right)}")
    snapshots = snapshots_of(arguments.cases)
    if snapshots:
        print(f"{len(snapshots)} snapshots: {figures([item.said for item in snapshots], [item.right for item in snapshots])}")
    print(f"{'confidence':>12} {'n':>5} {'stated':>6} {'right':>6}   95 % interval")
    for item in found.bins:
        span = f"{item.right.low:.2f} to {item.right.high:.2f}"
        print(f"{item.low:6.2f}..{item.high:4.2f} {item.count:>5} {item.confidence:6.2f} {item.right.value:6.2f}   {span}")
    if arguments.fit:
        model = fit(verdicts)
        fitted = {"base": float(model.intercept_[0]), **dict(zip(FITTED, map(float, model.coef_[0]), strict=True))}
        print("fitted: " + ", ".join(f"{name} {value:.2f} (now {getattr(ODDS, name):.2f})" for name, value in fitted.items()))
        print(f"by odds of the other families: {figures(left_out(verdicts), right)}")
        if snapshots:
            print(f"snapshots: stands {fit_stands(snapshots):.2f} (now {ODDS.stands:.2f})")
            print(f"by that of the other families: {figures(left_out_snapshots(snapshots), [item.right for item in snapshots])}")
    if arguments.plot is not None:
        arguments.plot.write_bytes(draw_reliability([asdict(item) for item in found.bins], found.error))


if __name__ == "__main__":
    main()
