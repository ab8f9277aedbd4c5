"""How many healthy machine-days the default detector watches before it accuses a machine: python bench/healthy_days.py [--count 120]

Recordings of the recipe `healthy-fleet` (1,000 machines, two hours, 15 s scrapes, every nuisance: 83 machine-days each) are simulated
one after the other, replayed and thrown away, so that memory and disk hold one of them. A line as it goes: machine-days so far, false
accusations, and the one-sided 95 % bound on their rate (Poisson). Each seed is a recording of its own.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from minder.offline.evaluation.cases import Case
from minder.offline.evaluation.evaluate import evaluate_labelled
from minder.offline.evaluation.intervals import poisson_upper
from minder.offline.evaluation.labels import find_recordings, label_recordings
from minder.simulate.cluster.recipe import load_recipe
from minder.simulate.cluster.simulate import simulate


def watch(recipe: str, seed: int, detector: str) -> Case:
    """One recording, simulated and judged. Raises SystemExit if it cannot be read."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "made"
        for _ in simulate(load_recipe(recipe), folder, seed, 1):
            pass
        labelled, problems = label_recordings(find_recordings([folder]))
        (case,) = [*problems, *evaluate_labelled(labelled, detector)]
    if isinstance(case, str):
        raise SystemExit(case)
    return case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipe", default="healthy-fleet")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--first-seed", type=int, default=50_001)
    parser.add_argument("--detector", default="default")
    arguments = parser.parse_args()
    days, alarms, began_s = 0.0, 0, time.process_time()
    for done, seed in enumerate(range(arguments.first_seed, arguments.first_seed + arguments.count), start=1):
        case = watch(arguments.recipe, seed, arguments.detector)
        days, alarms = days + case.healthy_machine_days, alarms + case.false_alarms
        named = f"; seed {seed} named {', '.join(case.judged.named)}" if case.false_alarms else ""
        bound = poisson_upper(alarms) / days * 10_000.0
        taken_s = time.process_time() - began_s
        so_far = f"{done} recordings, {days:.0f} machine-days, {alarms} false accusations: at most {bound:.1f} in 10,000 (95 %)"
        print(f"{so_far}, {taken_s:.0f} CPU s{named}", flush=True)


if __name__ == "__main__":
    main()
