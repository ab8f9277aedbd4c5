"""What it costs to find one faulty machine by replaying the job: dual-phase replay beside plain bisection.

First measured: "machines" are groups of processes on this host, one of them flips one bit in one of a hundred steps, and each phase is real
(minder.simulate.lab.replayed). Then computed for jobs of usual sizes, with the run and start times that are given: the whole job stands
meanwhile, so a phase costs the time of all its machines.

    python bench/replay.py [--run-seconds 120] [--start-seconds 60] [--repeats 2] [--no-lab]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

LAB = (
    ("4 machines, TP2 PP2 DP2", ("--ranks-per-machine", "2"), "m2"),
    ("8 machines, TP1 PP2 DP4", ("--tensor", "1", "--data", "4", "--ranks-per-machine", "1"), "m5"),
)
JOBS = ((8, 4, 6), (8, 4, 32), (8, 8, 128), (8, 16, 96))  # TP, PP, DP on machines of 8 GPUs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-seconds", type=float, default=120.0, help="of one run of a group")
    parser.add_argument("--start-seconds", type=float, default=60.0, help="until a group runs, once a phase")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--no-lab", action="store_true")
    options = parser.parse_args()
    if not options.no_lab:
        measured()
    computed(options)
    return 0


def measured() -> None:
    print("| in the lab | search | phases | wall (s) | machine-seconds | named | right |")
    print("|---|---|---|---|---|---|---|")
    for name, layout, faulty in LAB:
        for order in ("dual", "bisection"):
            found = play("--faulty", faulty, "--order", order, *layout)
            named = ", ".join(found["machines"]) or found["reason"]
            print(
                f"| {name} | {order} | {len(found['phases'])} | {found['wall_s']:.1f} | {found['machine_s']:.0f} | {named} |"
                f" {'yes' if found['machines'] == [faulty] else 'NO'} |"
            )


def play(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "minder.simulate.lab.replayed", *options]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def computed(options: argparse.Namespace) -> None:
    from minder.diagnose.diagnostics.replay import price_of
    from minder.diagnose.diagnostics.replay_layout import lay_out
    from minder.model.topology import Parallelism, Topology

    print(
        f"\nComputed, {options.repeats} runs of {options.run_seconds:g} s after a start of {options.start_seconds:g} s, 8 GPUs a machine:\n"
    )
    print("| machines | TP, PP, DP | m, n | phases | wall (min) | machine-hours | bisection: phases | wall (min) | machine-hours |")
    print("|---|---|---|---|---|---|---|---|---|")
    for tensor, pipeline, data in JOBS:
        count = tensor * pipeline * data // 8
        topology = Topology(tuple(f"m{index}" for index in range(count)), 8, Parallelism(tensor, pipeline, data))
        layout = lay_out(topology)
        prices = [
            price_of(layout, options.run_seconds, repeats=options.repeats, start_s=options.start_seconds, order=order)
            for order in ("dual", "bisection")
        ]  # fmt: skip
        cells = [f"{price.phases} | {price.wall_s / 60:.0f} | {price.machine_s / 3600:.1f}" for price in prices]
        print(f"| {count} | {tensor}, {pipeline}, {data} | {layout.m}, {layout.n} | {' | '.join(cells)} |")


if __name__ == "__main__":
    raise SystemExit(main())
