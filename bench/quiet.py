"""A quiet lab accuses no machine: ten minutes with checkpoints, evaluation pauses of six seconds, a CPU burst beside one machine's
workers, an agent that is killed and started again, and, where there is one, a Prometheus that is stopped for some seconds.

python bench/quiet.py [--minutes 10] [--out bench-out/quiet] [--plain]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minder.act.controller.reporting.status import read_status
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.outcome import Outcome, judge_outcome
from minder.simulate.demo.stage import Stage

_BURST = "import time; end = time.time() + 5\nwhile time.time() < end: pass"


@dataclass(frozen=True, slots=True)
class QuietRun:
    """What happened (seconds since the first step, what), and what minder made of it."""

    outcome: Outcome
    disturbances: tuple[tuple[float, str], ...]
    seconds: float


def play_quiet(options: DemoOptions, seconds: float) -> QuietRun:
    """Let the job run for about `seconds`; the disturbances are spread evenly over them."""
    done: list[tuple[float, str]] = []
    with Stage(options) as stage:
        stage.start_controller()
        while not (read_status(stage.status_path) or {}).get("step"):
            if stage.controller_status() is not None:
                break
            time.sleep(0.2)
        started_s = time.time()
        plan = _plan(stage)
        for index, (what, act) in enumerate(plan):
            _sleep_until(started_s + seconds * (index + 1) / (len(plan) + 1))
            act()
            done.append((time.time() - started_s, what))
        while stage.controller_status() is None and time.time() < started_s + 2 * seconds + 60:
            time.sleep(0.3)
        stage.stop_controller()
        with stage.ledger() as ledger:
            events = ledger.events(job=stage.job)
    return QuietRun(judge_outcome("none", None, None, events), tuple(done), time.time() - started_s)


def _plan(stage: Stage) -> list[tuple[str, Callable[[], None]]]:
    machines = stage.lab.machines
    plan: list[tuple[str, Callable[[], None]]] = [
        ("5 s of CPU burst beside the workers of machine 1", lambda: _burst(stage)),
        ("agent of machine 3 killed and started again", lambda: stage.restart_agent(machines[3])),
    ]
    if stage.prometheus is not None:
        plan.append(("Prometheus stopped for 5 s", lambda: _restart_prometheus(stage)))
    return plan


def _burst(stage: Stage) -> None:
    process = stage.lab.machines[1].spawn([sys.executable, "-c", _BURST])
    try:
        process.wait(30.0)
    except subprocess.TimeoutExpired:
        process.kill()


def _restart_prometheus(stage: Stage) -> None:
    if stage.prometheus is not None:
        stage.prometheus.stop()
        time.sleep(5.0)
        stage.prometheus.start()


def _sleep_until(time_s: float) -> None:
    time.sleep(max(0.0, time_s - time.time()))


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
