"""Every detector on the same recordings: python bench/compare_detectors.py [--recipes plain hard] [--count 12] [--table] [--out FOLDER]

Recordings are what `minder simulate` draws from a recipe with --seed, judged by the rule of docs/recordings.md. Each is read and aligned
once; a detector that learns nothing while it runs is scored ahead, in blocks, with the same scores
(minder/offline/evaluation/ahead.py). There
are no events in these recordings, so the telemetry rule and the judge are all that `minder evaluate` would use.

Appends one line per recording and detector to --rows, with the commit that last changed what a detector says, and goes on where an earlier
run ended. --again NAMES: rows of these detectors from other commits are measured anew; the newest row counts. --table prints what
the rows hold, with 95 % bootstrap intervals over recordings; --out draws a picture of each set. PyOD needs the extra models.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minder.diagnose.detectors.choose import NAMES, REFERENCES
from minder.diagnose.load_detector import MakeDetector, load_detector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.sources.events import Truth
from minder.ingest.windows import cut_rows, rows_of
from minder.model.errors import MinderError
from minder.model.evidence import Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window
from minder.offline.evaluation.ahead import ScoredAhead, score_ahead
from minder.offline.evaluation.intervals import bootstrap
from minder.offline.evaluation.replay import align_whole
from minder.offline.evaluation.scoring import Judged, accusations, judge_recording

SEED = 9701  # nothing is trained or tuned on it; 7001 chose the threshold of the similarity detectors
RECIPES = ("plain", "hard", "held-out-kinds", "held-out-nuisances", "held-out-shapes", "grey")
MEASURES = ("precision", "recall", "f1", "median_delay_s")
WHAT_SPEAKS = (
    "minder/diagnose/detectors",
    "minder/diagnose/verdicts",
    "minder/ingest/windows",
    "minder/model",
    "models",
)  # code and models whose changes can alter a verdict


def family_of(name: str) -> str:
    if name in ("default", "minder"):
        return "default" if name == "default" else "reference"
    return "ablation" if name in REFERENCES else "classical"


def commit() -> str:
    """The newest commit that may have changed what a detector says, marked where the working tree differs from it."""
    log = subprocess.run(["git", "log", "-1", "--format=%h", "--", *WHAT_SPEAKS], capture_output=True, text=True, check=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *WHAT_SPEAKS], check=False).returncode
    return log.stdout.strip() + ("+" if changed else "")


def window_of(recipe: str, seed: int, index: int, folder: Path) -> tuple[Window, dict[str, Any], Truth]:
    """The aligned rows of one recording, its machines' stages and its truth; made in the folder if it is not there yet."""
    from minder.ingest.sources.events import read_truths
    from minder.ingest.sources.recording import read_recording
    from minder.simulate.cluster.recipe import load_recipe
    from minder.simulate.cluster.simulate import make
    from minder.simulate.cluster.writer import write_recording, write_truths

    place = folder / f"{recipe}-{seed}" / f"r{index:04d}"
    if not (place / "truth.json").exists():
        made = make(load_recipe(recipe), seed, index)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            write_recording(place, made.scene.shape, made.site, made.rows, made.begin_ms)
        write_truths(place, [made.truth])
    recording = read_recording(place)
    if recording.signals:
        raise SystemExit(f"{place} holds events: this comparison knows telemetry alone")
    stages = {machine: recording.topology.stages_of(machine) for machine in recording.topology.machines}
    return align_whole(recording), stages, read_truths(place / "truth.json")[0]


def verdicts_of(detector: Any, window: Window) -> list[Verdict]:
    """What the telemetry rule and the judge say, row by row as live. Where scores are made ahead, rows before the first that accuses are
    left out: nothing is said of them."""
    detector = score_ahead(detector, [window])
    if isinstance(detector, ScoredAhead):
        window = cut_rows(window, detector.skip_quiet(), len(window.times_T))
    judge = Judge([TelemetryRule(detector)])
    return [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]


def measure(name: str, make: MakeDetector, recording: tuple[Window, dict[str, Any], Truth]) -> dict[str, Any]:
    """One row: who was accused when, and what the rule makes of it."""
    window, stages, truth = recording
    started_s = time.process_time()
    found = verdicts_of(make(stages), window)
    taken_s = time.process_time() - started_s
    onset_s = truth.onset_s if truth.onset_s is not None else float(window.times_T[0])
    told = [
        (round(item.time_s - onset_s, 1), list(item.machines), item.tier, item.cause, round(item.confidence, 4))
        for item in accusations(found)
    ]
    shape = {"machines": len(window.machines), "metrics": len(window.metrics), "rows": len(window.times_T)}
    judged = asdict(judge_recording(truth, found))
    return {"detector": name, "judged": judged, "told": told, "culprits": list(truth.machines), **shape, "cpu_s": round(taken_s, 2)}


def read_rows(path: Path) -> dict[tuple[str, int, int, str], dict[str, Any]]:
    """The newest row of each (recipe, seed, index, detector); a line that was cut off is left out."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[(row["recipe"], row["seed"], row["index"], row["detector"])] = row
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Whatever is missing, one recording of each recipe in turn, so that a run that is cut off has measured all of them alike."""
    now, folder = commit(), arguments.rows.parent / "recordings"
    rows, makers = read_rows(arguments.rows), {}
    for name in arguments.detectors:
        try:
            makers[name] = load_detector(name)
        except MinderError as error:
            print(f"{name} left out: {error}")
    for index in range(1, arguments.count + 1):
        for recipe in arguments.recipes:
            missing = []
            for name in makers:
                row = rows.get((recipe, arguments.seed, index, name))
                if row is None or (name in arguments.again and row["commit"] != now):
                    missing.append(name)
            if not missing:
                continue
            recording = window_of(recipe, arguments.seed, index, folder)
            for name in missing:
                head = {"recipe": recipe, "seed": arguments.seed, "index": index, "commit": now}
                with arguments.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**head, **measure(name, makers[name], recording)}) + "\n")
            print(f"{recipe} {index}: {len(missing)} detectors", flush=True)


def summaries(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row of the table per detector that was measured."""
    for name in names:
        mine = [row for row in rows if row["detector"] == name]
        if not mine:
            continue
        judged = [Judged(**{**row["judged"], "named": tuple(row["judged"]["named"])}) for row in mine]
        figures = {measure: asdict(figure) for measure, figure in bootstrap(judged).items()}
        outcomes = {item: sum(each.outcome == item for each in judged) for item in ("found", "wrong", "missed", "quiet")}
        commits = sorted({row["commit"] for row in mine})
        yield {
            "detector": name, "family": family_of(name), "recordings": len(mine), **figures, **outcomes, "commits": commits,
            "cpu_s": round(sum(row["cpu_s"] for row in mine) / len(mine), 2),
        }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    cells = [f"{row['found']} / {row['wrong']} / {row['missed']} / {row['quiet']}"]
    for measure in MEASURES:
        value, low, high = (row[measure][part] for part in ("value", "low", "high"))
        shown = ".0f" if measure == "median_delay_s" else ".2f"
        cells.append("-" if value != value else f"{value:{shown}} ({low:{shown}} to {high:{shown}})")
    return f"| {row['detector']} | " + " | ".join(cells) + f" | {row['cpu_s']} | {', '.join(row['commits'])} |"


def table(arguments: argparse.Namespace) -> None:
    """A table, and with --out a picture, of all recipes but the grey faults together, then of each."""
    rows = [row for row in read_rows(arguments.rows).values() if row["seed"] == arguments.seed and row["index"] <= arguments.count]
    ordinary = [recipe for recipe in arguments.recipes if recipe != "grey"]
    held = [recipe for recipe in ordinary if recipe.startswith("held-out")]
    sets = {"all-but-grey": ordinary, "held-out": held, **{recipe: [recipe] for recipe in arguments.recipes}}
    for title, recipes in sets.items():
        inside = [row for row in rows if row["recipe"] in recipes]
        found = list(summaries(inside, arguments.detectors))
        counts = ", ".join(f"{recipe} {len({row['index'] for row in inside if row['recipe'] == recipe})}" for recipe in recipes)
        print(f"\n## {title} (recordings: {counts}; seed {arguments.seed})\n")
        print("| detector | found / wrong / missed / quiet | precision | recall | F1 | median delay s | CPU s a recording | commit |")
        print("|" + "---|" * 8)
        for row in found:
            print(line(row))
        if arguments.out is not None and found:
            arguments.out.mkdir(parents=True, exist_ok=True)
            draw(found, f"{max(row['recordings'] for row in found)} recordings ({title})", arguments.out / f"detectors-{title}.png")


def draw(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    from minder.offline.plots.detectors import Compared, draw_detectors

    def span(row: dict[str, Any], name: str) -> tuple[float, float, float]:
        return row[name]["value"], row[name]["low"], row[name]["high"]

    most = max(row["recordings"] for row in rows)

    def name_of(row: dict[str, Any]) -> str:
        return row["detector"] if row["recordings"] == most else f"{row['detector']} ({row['recordings']} recordings)"

    compared = [Compared(name_of(row), row["family"], span(row, "f1"), span(row, "median_delay_s")) for row in rows]
    path.write_bytes(draw_detectors(compared, title))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--count", type=int, default=12, help="recordings of each recipe")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--detectors", nargs="*", default=list(NAMES))
    parser.add_argument("--again", nargs="*", default=[], help="detectors whose rows of other commits do not count")
    parser.add_argument("--rows", type=Path, default=Path("bench-out/compare/rows.jsonl"))
    parser.add_argument("--table", action="store_true", help="measure nothing: print what was measured")
    parser.add_argument("--out", type=Path, help="with --table: a folder for the pictures")
    arguments = parser.parse_args()
    arguments.rows.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        run(arguments)
    table(arguments)


if __name__ == "__main__":
    main()
