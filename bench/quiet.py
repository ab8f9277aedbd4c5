"""A quiet lab accuses no machine: ten minutes with checkpoints, evaluation pauses, a CPU burst, an agent restart, a Prometheus restart.

python bench/quiet.py [--minutes 10] [--out bench-out/quiet] [--plain]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.quiet import play_quiet


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("bench-out/quiet"))
    parser.add_argument("--plain", action="store_true", help="a script that calls no minder function: its pauses are not declared")
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60.0
    out = arguments.out / time.strftime("%Y%m%dT%H%M%S")
    steps = max(30, int((seconds - 6.0 * seconds / 60.0) / 0.26))
    options = DemoOptions("none", out, steps=steps, evaluate_every=200, plain=arguments.plain, masked=arguments.plain)
    run = play_quiet(options, seconds)
    text = [f"{at_s:6.0f} s  {what}" for at_s, what in run.disturbances]
    text.append(f"accused or restarted: {'; '.join(run.outcome.wrong) or 'no machine'} in {run.seconds:.0f} s of {steps} steps")
    print("\n".join(text))
    return 0 if run.outcome.right else 1


if __name__ == "__main__":
    raise SystemExit(main())
