"""How near `minder whatif` is to the published figures of each step: a table of the largest difference, and the step that has it.

The folder holds trace-X.parquet, meta-X.yaml and result-X.json (github.com/ByteDance-Seed/StragglerAnalysis). What is compared: seconds of
a step as recorded, replayed and ideal; its slowdowns; and its slowdown with all made ideal but one rank, one stage, one kind of operation.

    python bench/whatif_steps.py --folder data
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minder.diagnose.step_traces.analysis import analyse
from minder.diagnose.step_traces.meta import read_layout
from minder.diagnose.step_traces.scenarios import Costs, prepare, replay_kept, replay_one_rank_each
from minder.diagnose.step_traces.trace import StepTrace, read_trace

Row = tuple[str, np.ndarray, np.ndarray]  # what, ours and the published, of shape (things, steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/op_traces"))
    options = parser.parse_args()
    print("| trace | figure, per step | steps | figures | largest difference | at step | mean difference |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(options.folder.glob("trace-*.parquet")):
        name = path.stem.removeprefix("trace-")
        trace = read_trace(path, read_layout(options.folder / f"meta-{name}.yaml"))
        result = json.loads((options.folder / f"result-{name}.json").read_text(encoding="utf-8"))
        for what, ours_KT, published_KT in rows(trace, result):
            apart_KT = np.abs(ours_KT / published_KT - 1.0)
            worst = int(apart_KT.max(axis=0).argmax())
            cells = (name, what, len(trace.steps), apart_KT.size, f"{apart_KT.max():.3%}", trace.steps[worst], f"{apart_KT.mean():.3%}")
            print(f"| {' | '.join(map(str, cells))} |")
    return 0


def rows(trace: StepTrace, result: dict[str, Any]) -> Iterator[Row]:
    """Each published figure of the steps that are here."""
    found = analyse(trace).study
    simple = {
        "seconds, recorded": ("step_t_base", found.recorded_T),
        "seconds, replayed": ("step_t_nodelay", found.simulated_T),
        "seconds, ideal": ("step_t_noblk", np.full(len(trace.steps), found.ideal_s)),
        "slowdown S": ("blocking_step_slowdown", found.simulated_T / found.ideal_s),
        "recorded against replayed": ("launch_step_slowdown", found.recorded_T / found.simulated_T),
    }
    for what, (key, ours_T) in simple.items():
        yield what, ours_T[None], np.array([[result[key][str(step)] for step in trace.steps]])
    yield from alone(prepare(trace), trace, found.ideal_s, result)


def alone(costs: Costs, trace: StepTrace, ideal_s: float, result: dict[str, Any]) -> Iterator[Row]:
    """All made ideal but one: slowdowns KT."""
    stages, kinds = range(trace.layout.pp_size), sorted(set(costs.kind_N))
    parts = {
        "dp_rank": (range(trace.layout.dp_size), replay_one_rank_each(costs)),
        "stage": (stages, replay_kept(costs, [(costs.stage_N == stage)[:, None] for stage in stages])),
        "optype": (kinds, replay_kept(costs, [(costs.kind_N == kind)[:, None] for kind in kinds])),
    }
    for part, (names, seconds_KT) in parts.items():
        table = result[f"blocking_decompose_by_{part}_per_step"]
        here = [index for index, name in enumerate(names) if all(str(name) in table[str(step)] for step in trace.steps)]
        published_KT = np.array([[table[str(step)][str(names[index])] for step in trace.steps] for index in here])
        yield f"S by {part.replace('_', ' ')}", seconds_KT[here] / ideal_s, published_KT


if __name__ == "__main__":
    raise SystemExit(main())
