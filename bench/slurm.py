"""How long it takes from a decision until Slurm shows the node drained: python bench/slurm.py [--rounds 100] [--unanswered 5000]

A real Slurm on this machine (root; Debian's slurmctld, slurmd, slurm-client, munge), three times: with its nodes alone, with as many nodes
more in its configuration that never register, and with those and a controller's own looks at it every second. What is timed is what an
eviction does: intent into the ledger, read, limit counted, drained, read back ("drained"), result into the ledger ("written"). Nodes are
given back in between, untimed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from minder.act.actuators.slurm.engine import SlurmEngine
from minder.act.controller.engine.watch import EngineWatch
from minder.act.controller.engine.work import DRAIN, EngineWork
from minder.model.clock import SystemClock
from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger
from minder.simulate.lab.slurm import LocalSlurm

NODES = 4


def measure(slurm: LocalSlurm, folder: Path, rounds: int, watched: bool) -> list[tuple[float, float]]:
    """Seconds until drained and until written, of each round, in order."""
    clock = SystemClock()
    engine = SlurmEngine(1, slurm.commands(), clock.now_s, max_drained=NODES)
    watch = EngineWatch(engine, slurm.nodes, every_s=1.0)
    if watched:
        watch.start()
    seconds = []
    with Ledger(folder / f"ledger-{watched}.db") as ledger:
        work = EngineWork(engine, ledger, "bench", clock, (DRAIN,))
        for index in range(rounds):
            node = slurm.nodes[index % NODES]
            operation = f"evict-{index:012x}"
            seconds.append(drain(work, decision(operation, node, clock.now_s())))
            given = engine.uncordon(node, "return", {operation})
            assert given.outcome == "done", given
        work.close()
    watch.close()
    return seconds


def decision(operation: str, node: str, now_s: float) -> Decision:
    verdict = Verdict(now_s, "machine", "evict", (node,), "stall", 0.95, now_s)
    return Decision(operation, now_s, "evict", (node,), "act", "", verdict)


def drain(work: EngineWork, decision: Decision) -> tuple[float, float]:
    ended = threading.Event()
    seen: list[ActionResult] = []

    def done(owner: str, results: Mapping[str, ActionResult]) -> None:
        seen.extend(results.values())
        ended.set()

    work.on_done = done
    begun_s = time.time()
    work.begin(decision, None)
    while not ended.wait(0.001):
        work.tick(time.time())
    assert [result.outcome for result in seen] == ["done"], seen
    return seen[0].time_s - begun_s, time.time() - begun_s


def tell(name: str, rounds: list[tuple[float, float]]) -> None:
    for part, seconds in zip(("drained", "written"), zip(*rounds, strict=True), strict=True):
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        cuts_s = {"P50": cuts[49], "P99": cuts[98], "max": max(seconds)}
        figures = "  ".join(f"{key} {value * 1000:6.1f} ms" for key, value in cuts_s.items())
        print(f"{name:46s} {part}  rounds {len(seconds):4d}  {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--unanswered", type=int, default=5000)
    options = parser.parse_args()
    for unanswered in (0, options.unanswered):
        with tempfile.TemporaryDirectory(prefix="minder-slurm-") as name, LocalSlurm(Path(name), NODES, unanswered) as slurm:
            for watched in (False, True) if unanswered else (False,):
                around = f"{unanswered} more in the configuration" if unanswered else "alone"
                tell(f"{NODES} nodes, {around}{', looked at' if watched else ''}", measure(slurm, Path(name), options.rounds, watched))


if __name__ == "__main__":
    main()
