"""What `minder whatif` costs, and how near it is to the published figures: a table for each public trace in a folder.

The folder holds trace-X.parquet, meta-X.yaml and, if known, result-X.json (github.com/ByteDance-Seed/StragglerAnalysis). Time is that of
reading and analysing, start-up apart; each trace has a process of its own, so that memory is its own.

    python bench/whatif.py --folder data [--repeat 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/op_traces"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.folder, options.one, options.repeat)))
        return 0
    names = sorted(path.stem.removeprefix("trace-") for path in options.folder.glob("trace-*.parquet"))
    if not names:
        print(f"no trace-*.parquet in {options.folder}: give --folder")
        return 0
    print("| trace | steps | cells | wall, best (s) | processor, best (s) | memory (MiB) | S | S published | replay error | cause |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        command = [sys.executable, __file__, "--folder", str(options.folder), "--repeat", str(options.repeat), "--one", name]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            "| {name} | {steps} | {cells} | {wall_s:.3f} | {cpu_s:.3f} | {rss_mib:.0f} | {slowdown:.4f} | {published} |"
            " {replay_error:.2%} | {cause} |".format(**found)
        )
    return 0


def measure(folder: Path, name: str, repeat: int) -> dict[str, object]:
    from minder.diagnose.step_traces.analysis import analyse
    from minder.diagnose.step_traces.meta import read_layout
    from minder.diagnose.step_traces.trace import read_trace

    walls, processors = [], []
    for _ in range(repeat):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        analysis = analyse(read_trace(folder / f"trace-{name}.parquet", read_layout(folder / f"meta-{name}.yaml")))
        walls.append(time.perf_counter() - wall_s)
        processors.append(time.process_time() - cpu_s)
    result = folder / f"result-{name}.json"
    return {
        "name": name,
        "steps": len(analysis.trace.steps),
        "cells": analysis.trace.duration_NTD.size,
        "wall_s": min(walls),
        "cpu_s": min(processors),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "slowdown": analysis.study.slowdown,
        "published": f"{published(result, analysis.trace.steps):.4f}" if result.exists() else "",
        "replay_error": analysis.study.replay_error,
        "cause": analysis.finding.cause,
    }


def published(path: Path, steps: tuple[int, ...]) -> float:
    """S of the steps that are here: a trace may have been cut, its published figures are of the whole."""
    result = json.loads(path.read_text(encoding="utf-8"))
    real, ideal = (sum(result[table][str(step)] for step in steps) for table in ("step_t_nodelay", "step_t_noblk"))
    return float(real / ideal)


if __name__ == "__main__":
    raise SystemExit(main())
