"""Every detector on the same recordings: python bench/compare_detectors.py [--recipes plain hard --count 30] [--out FOLDER]

Precision, recall, F1 and the median delay with 95 % bootstrap intervals over recordings, and processor seconds per recording, by the
rule of formats.md section 2. Recordings come from `minder simulate` with a seed of their own, or are folders with a truth.json
(--recordings). Writes comparison.json and a picture of each set where --out says so. PyOD's detectors need the extra models; without it
they are left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from minder.detectors.choose import NAMES, REFERENCES
from minder.errors import MinderError
from minder.evaluation.cases import Case
from minder.evaluation.evaluate import evaluate_labelled
from minder.evaluation.intervals import bootstrap
from minder.evaluation.labels import Labelled, find_recordings, label_recordings

SEED = 7002  # nothing is trained on it; 7001 chose the threshold of the similarity detectors
MEASURES = ("precision", "recall", "f1", "median_delay_s")


def family_of(name: str) -> str:
    if name in ("default", "minder"):
        return "default" if name == "default" else "reference"
    return "ablation" if name in REFERENCES else "classical"


def simulated(recipe: str, count: int, most: int, folder: Path) -> list[Labelled]:
    from minder.simulate.cluster.recipe import load_recipe
    from minder.simulate.cluster.simulate import simulate

    rules = load_recipe(recipe)
    low, high = rules.job.machines
    rules = rules.model_copy(update={"job": rules.job.model_copy(update={"machines": (low, min(high, most))})})
    for _ in simulate(rules, folder, SEED, count):
        pass
    return labelled(folder)


def labelled(folder: Path) -> list[Labelled]:
    found, problems = label_recordings(find_recordings([folder]))
    if problems:
        raise SystemExit(problems[0])
    return found


def compare(name: str, items: list[Labelled]) -> dict[str, object]:
    """One row of the table. Raises MinderError where the detector cannot be had."""
    started_s = time.process_time()
    cases = evaluate_labelled(items, name)
    taken_s = time.process_time() - started_s
    problems = [case for case in cases if isinstance(case, str)]
    if problems:
        raise MinderError(problems[0])
    judged = [case.judged for case in cases if isinstance(case, Case)]
    figures = bootstrap(judged)
    outcomes = {item: sum(each.outcome == item for each in judged) for item in ("found", "wrong", "missed", "quiet")}
    measured = {measure: [round(number, 4) for number in (f.value, f.low, f.high)] for measure, f in figures.items()}
    return {"detector": name, "family": family_of(name), **measured, **outcomes, "cpu_s_per_recording": round(taken_s / len(items), 2)}


def line(row: dict[str, object]) -> str:
    cells = []
    for measure in MEASURES:
        value, low, high = row[measure]  # type: ignore[misc]
        cells.append(f"{value:.0f} ({low:.0f} to {high:.0f})" if measure == "median_delay_s" else f"{value:.2f} ({low:.2f} to {high:.2f})")
    return f"| {row['detector']} | " + " | ".join(cells) + f" | {row['wrong']} | {row['cpu_s_per_recording']} |"


def run_set(name: str, items: list[Labelled], detectors: list[str]) -> list[dict[str, object]]:
    print(f"\n## {name}: {len(items)} recordings, {sum(item.truth.fault is not None for item in items)} with a fault\n")
    print("| detector | precision | recall | F1 | median delay s | wrongly accused | CPU s a recording |\n|---|---|---|---|---|---|---|")
    rows = []
    for detector in detectors:
        try:
            rows.append(compare(detector, items))
        except MinderError as error:
            print(f"| {detector} | left out: {error} |")
            continue
        print(line(rows[-1]), flush=True)
    return rows


def draw(rows: list[dict[str, object]], title: str, path: Path) -> None:
    from minder.plots.detectors import Compared, draw_detectors

    compared = [
        Compared(str(row["detector"]), str(row["family"]), tuple(row["f1"]), tuple(row["median_delay_s"]))  # type: ignore[arg-type]
        for row in rows
    ]
    path.write_bytes(draw_detectors(compared, title))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipes", nargs="*", default=["plain", "hard"])
    parser.add_argument("--recordings", nargs="*", type=Path, default=[], help="folders of labelled recordings")
    parser.add_argument("--count", type=int, default=30, help="recordings of each recipe")
    parser.add_argument("--machines", type=int, default=96, help="at most, in one simulated job")
    parser.add_argument("--detectors", nargs="*", default=list(NAMES))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        sets = {str(folder.name): labelled(folder) for folder in arguments.recordings}
        for recipe in arguments.recipes:
            sets[recipe] = simulated(recipe, arguments.count, arguments.machines, Path(scratch) / recipe)
        for name, items in sets.items():
            found[name] = run_set(name, items, arguments.detectors)
            if arguments.out is not None:
                arguments.out.mkdir(parents=True, exist_ok=True)
                draw(found[name], f"{len(items)} recordings ({name})", arguments.out / f"detectors-{name}.png")
    if arguments.out is not None:
        (arguments.out / "comparison.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
