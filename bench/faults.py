"""Every fault of the lab, several seeds, under minder and under launchers that restart ranks, in one run; the table is written as it goes.

    python bench/faults.py [--seeds 5] [--faults hang,crash] [--variants default,masked,prometheus15,torchrun] [--out bench-out/faults]

default      scrape at 1 Hz (a real Prometheus if there is one), the script calls minder.heartbeat
masked       the injector's fingerprints hidden (stopped states, throttle counters, OOM counters, cgroup memory), and a script that
             calls no minder function at all
prometheus15 a real Prometheus that scrapes every 15 s
torchrun     the same job and fault under torchrun (bench/elastic_baseline.py); faults that it cannot notice are given `--limit` seconds
ft_launcher  the same under NVIDIA's launcher, where nvidia-resiliency-ext can be imported (PYTHONPATH), with a heartbeat a step
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from elastic_baseline import LAUNCHERS, run_elastic

from minder.model.errors import MinderError
from minder.model.history import LedgerEvent
from minder.offline.evaluation.replay import replay
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.play import play
from minder.simulate.lab.faults import FAULT_KINDS

VARIANTS = ("default", "masked", "prometheus15", *LAUNCHERS)
NOTICED = {"torchrun": ("crash", "crash-cascade", "oom", "exception", "machine-lost", "nan")}
NOTICED["ft_launcher"] = (*NOTICED["torchrun"], "hang")


def main() -> int:
    arguments = parse()
    for name in set(LAUNCHERS) & set(arguments.variants.split(",")):
        if importlib.util.find_spec(LAUNCHERS[name].partition(".")[0]) is None:
            print(f"bench/faults.py: {name} is not installed: pip install nvidia-resiliency-ext==0.4.1 defusedxml pynvml", file=sys.stderr)
            return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for variant in arguments.variants.split(","):
            for fault in arguments.faults.split(","):
                if variant in LAUNCHERS and fault in ("none", "agent-lost", "slow-cpu", "slow-link"):
                    continue
                if variant == "masked" and fault in ("exception", "nan", "none", "agent-lost"):
                    continue
                row = measure(variant, fault, seed, arguments)
                rows.append(row)
                with (arguments.out / "faults.jsonl").open("a") as log:
                    log.write(json.dumps(row) + "\n")
                (arguments.out / "faults.md").write_text(table(read(arguments.out)))
                print(json.dumps(row), flush=True)
    return 0 if all(row["right"] for row in rows if row["variant"] not in LAUNCHERS) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--faults", default=",".join(FAULT_KINDS))
    parser.add_argument("--variants", default="default,masked,torchrun")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that another launcher gets where it should notice nothing")
    parser.add_argument("--out", type=Path, default=Path("bench-out/faults"))
    return parser.parse_args()


def measure(variant: str, fault: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    folder = (arguments.out / f"{variant}-{fault}-{seed}-{int(time.time())}").absolute()
    settings: dict[str, Any] = {"fault": fault, "seed": seed, "out": folder, "machine": 1 + seed % 5}
    row: dict[str, Any] = {"variant": variant, "fault": fault, "seed": seed, "right": False, "load": round(os.getloadavg()[0], 1)}
    try:
        if variant in LAUNCHERS:
            found = run_elastic(variant, DemoOptions(**settings), folder, 120.0 if fault in NOTICED[variant] else arguments.limit)
            return {**row, "right": found.downtime_s is not None, "downtime_s": found.downtime_s, "steps_lost": found.steps_lost}
        if variant == "masked":
            # A plain script's spare loads torch for half a minute first: by then it has, as in a job that has run for a while.
            settings |= {"masked": True, "plain": True, "steps": 155, "at_step": 110}
        if variant == "prometheus15":
            # A job that only got slower steps on while it is looked at; every other one stands until it is mended.
            steps = 400 if fault in ("slow-cpu", "slow-link") else 260
            settings |= {"telemetry": "prometheus", "scrape_interval_s": 15.0, "steps": steps, "at_step": 200}
        played = play(DemoOptions(**settings), lambda stage, message: None, deadline_s=400.0)
    except (MinderError, OSError) as error:
        return {**row, "error": str(error)}
    outcome = played.outcome
    equal = None if played.comparison is None else bool(played.comparison.equal)
    return {
        **row,
        "right": outcome.right,
        "equal": equal,
        "retold": retold(folder / "recording") == accused(played.events),
        "wrong": list(outcome.wrong),
        "detect_s": outcome.detect_s,
        "downtime_s": outcome.first_step_s,
        "beyond_s": outcome.downtime_beyond_detection_s,
        "steps_lost": outcome.steps_lost,
        "seconds": played.seconds,
    }


def accused(events: Sequence[LedgerEvent]) -> set[str]:
    """Machines that the run itself would evict by a verdict; what only the policy's memory concludes is no verdict of a recording."""
    verdicts = [event.payload for event in events if event.kind == kinds.VERDICT]
    return {
        str(machine) for item in verdicts if (item.get("kind"), item.get("tier")) == ("machine", "evict") for machine in item["machines"]
    }


def retold(recording: Path) -> set[str]:
    """Machines that a replay of the run's own recording would evict."""
    return {
        machine for verdict in replay(recording) if verdict.kind == "machine" and verdict.tier == "evict" for machine in verdict.machines
    }


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "faults.jsonl").read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Medians (and the worst) over seeds, per fault and variant, and what else the machine had to do."""
    lines = [
        "| fault | variant | right | losses equal | replay says the same | detect s | downtime s | beyond detection s | steps lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    keys = list(dict.fromkeys((row["fault"], row["variant"]) for row in rows))
    for fault, variant in sorted(keys, key=lambda key: (FAULT_KINDS.index(key[0]), VARIANTS.index(key[1]))):
        mine = [row for row in rows if (row["fault"], row["variant"]) == (fault, variant)]
        right = f"{sum(row['right'] for row in mine)}/{len(mine)}"
        shares = " | ".join(share(mine, name) for name in ("equal", "retold"))
        cells = [spread(mine, name) for name in ("detect_s", "downtime_s", "beyond_s", "steps_lost")]
        lines.append(f"| {fault} | {variant} | {right} | {shares} | {' | '.join(cells)} |")
    loads = [row["load"] for row in rows if "load" in row]
    if loads:
        lines += ["", f"Load average when each run began: {min(loads)} to {max(loads)}, median {statistics.median(loads):.1f}."]
    return "\n".join(lines) + "\n"


def share(rows: list[dict[str, Any]], name: str) -> str:
    known = [row[name] for row in rows if row.get(name) is not None]
    return f"{sum(known)}/{len(known)}" if known else "-"


def spread(rows: list[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if row.get(name) is not None]
    if not values:
        return "-"
    missing = len(rows) - len(values)
    text = f"{statistics.median(values):.1f} ({max(values):.1f})"
    return f"{text}, {missing} never" if missing and name == "downtime_s" else text


if __name__ == "__main__":
    raise SystemExit(main())
