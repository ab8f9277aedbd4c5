"""A faulty machine found by a live replay: `python bench/replay_groups.py [--seeds 5] [--no-bisection]`.

Four machines of the lab and a standby. One machine flips one bit in one of a hundred steps whenever the job is replayed; nothing else shows
it. A training process of another machine is killed, which names no machine, and the site's ladder begins with the replay. The controller
suspends the job, orders the groups of two phases, and evicts the machine where the failing groups cross. Seconds are from the kill on.
Beside it, on eight machines (PP 2, DP 4) without controller and launchers: dual-phase replay and plain bisection, by runs and seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minder.model.history import LedgerEvent
from minder.model.topology import Parallelism
from minder.record.incidents import kinds
from minder.record.incidents.replays import ReplayRecord, fold_replays
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage
from minder.simulate.lab.machine import LabMachine

MACHINES, VICTIM = 4, 1
SEARCHED = Parallelism(pipeline=2, data=4)  # eight machines of one rank, in processes of this host alone
PHASES = ("decided", "replayed", "placed", "first step")
_STEPS, _LIMIT_S = 4000, 420.0
_FLIPS = Path(__file__).with_name("replay_lab")
_LADDER = """
[[policy.ladder.rungs]]
rung = "replay"
on = ["unknown"]
times = 1

[[policy.ladder.rungs]]
rung = "evict"
on = ["machine"]
"""


class ReplayStage(Stage):
    """The lab's job, whose ladder begins with the replay; one machine flips bits in it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed, self.faulty = seed, (VICTIM + 1 + seed % (MACHINES - 1)) % MACHINES
        super().__init__(
            DemoOptions(
                fault="crash", machine=VICTIM, machines=MACHINES, standbys=1, steps=_STEPS, at_step=12, out=folder, telemetry="scrape"
            )
        )

    def _start_launcher(self, machine: LabMachine) -> None:
        """On the faulty machine with what breaks the reference model on its path."""
        if machine.place.index != self.faulty:
            super()._start_launcher(machine)
            return
        kept = {name: os.environ.get(name) for name in ("PYTHONPATH", "REPLAY_FLIPS_SEED")}
        known = os.pathsep.join(filter(None, (str(_FLIPS), kept["PYTHONPATH"], str(Path(__file__).parents[1]))))
        os.environ.update({"PYTHONPATH": known, "REPLAY_FLIPS_SEED": str(self.seed)})
        try:
            super()._start_launcher(machine)
        finally:
            for name, text in kept.items():
                os.environ.pop(name)
                os.environ.update({} if text is None else {name: text})

    def _job_toml(self, telemetry: dict[str, Any]) -> str:
        return super()._job_toml(telemetry).replace("[policy]\n", "[policy]\nreplay_limit_s = 400.0\n") + _LADDER


@dataclass(frozen=True)
class Played:
    """One run. seconds: phase to seconds since the kill. groups: of both phases, with what became of them. runs: of all groups. found:
    what the replay says. faulty, evicted: machines, by their place in the lab."""

    seed: int
    seconds: dict[str, float]
    groups: list[str]
    runs: int
    found: str
    faulty: int
    evicted: list[int]
    load: float


def play(folder: Path, seed: int = 0) -> Played:
    """Raises TimeoutError where the job does not come to what is waited for."""
    load = os.getloadavg()[0]
    with ReplayStage(folder, seed) as stage:
        stage.start_controller()
        _until(stage, "ten steps", lambda: _step(stage) >= 10)
        killed_s = stage.inject("crash", VICTIM).time_s
        _until(stage, "the first step after the replay", lambda: len(_events(stage, kinds.FIRST_STEP)) >= 2)
        names = [machine.name for machine in stage.lab.all_machines]
        return _read(_events(stage), names, stage, killed_s, load)


def _events(stage: Stage, *wanted: str) -> list[LedgerEvent]:
    with stage.ledger() as ledger:
        return ledger.events(job=stage.job, kinds=wanted or None)


def _step(stage: Stage) -> int:
    try:
        return int(json.loads(stage.status_path.read_text()).get("step") or 0)
    except (OSError, ValueError):
        return 0


def _until(stage: Stage, what: str, is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > end_s or stage.controller_status() is not None:
            log = (stage.folder / "controller.log").read_text()[-2000:]
            raise TimeoutError(f"{what} did not come within {_LIMIT_S:.0f} s; the controller said: {log}")
        time.sleep(0.2)


def _read(events: Sequence[LedgerEvent], names: Sequence[str], stage: ReplayStage, killed_s: float, load: float) -> Played:
    intent = next(event for event in events if event.kind == kinds.INTENT and event.payload.get("action") == "replay")
    later = [event for event in events if event.id > intent.id]
    result = next(event for event in later if event.kind == kinds.RESULT and event.operation_id == intent.operation_id)
    times = {
        "decided": intent.time_s,
        "replayed": result.time_s,
        "placed": next(event.time_s for event in later if event.kind == kinds.GENERATION_STARTED),
        "first step": next(event.time_s for event in later if event.kind == kinds.FIRST_STEP),
    }
    (record,) = fold_replays(event for event in events if event.kind == kinds.REPLAY)
    evicted = [names.index(str(event.payload["machine"])) for event in events if event.kind == kinds.BARRED]
    seconds = {name: round(time_s - killed_s, 1) for name, time_s in times.items()}
    groups = [f"{group.name} {group.outcome}" for phase in record.phases.values() for group in phase.groups.values()]
    return Played(
        stage.seed, seconds, groups, _runs(record), str(result.payload["detail"]), stage.faulty, evicted, round(load, 1)
    )  # fmt: skip


def _runs(record: ReplayRecord) -> int:
    return sum(group.runs for phase in record.phases.values() for group in phase.groups.values())


def bisection(seeds: int) -> list[tuple[str, int, int, float, bool]]:
    """(search, phases, runs, seconds, right) of each seed, in processes of this host alone."""
    from minder.simulate.lab.replayed import Trial, replay

    rows: list[tuple[str, int, int, float, bool]] = []
    for seed in range(seeds):
        for order in ("dual", "bisection"):
            faulty = f"m{(5 + seed) % SEARCHED.world_size}"
            with tempfile.TemporaryDirectory() as folder:
                done = replay(Trial(SEARCHED, 1, faulty, seed=seed), Path(folder), order)
            runs = sum(group["runs"] for phase in done.phases for group in phase["groups"])
            rows.append((order, len(done.phases), runs, done.wall_s, done.finding.machines == (faulty,)))
    return rows


def table(rows: Sequence[Played]) -> str:
    """Median and longest seconds, as Markdown."""
    right = sum(row.evicted == [row.faulty] for row in rows)
    cells = [_spread([row.seconds[phase] for row in rows]) for phase in PHASES]
    took = _spread([row.seconds["replayed"] - row.seconds["decided"] for row in rows])
    lines = [f"| live | right | runs | {' | '.join(PHASES)} | of that replaying | load |", "|---" * (len(PHASES) + 5) + "|"]
    lines += [
        f"| {MACHINES} machines | {right} of {len(rows)} | {_spread([row.runs for row in rows])} | {' | '.join(cells)} | {took} |"
        f" {_spread([row.load for row in rows])} |"
    ]
    return "\n".join(lines)


def table_of_searches(rows: Sequence[tuple[str, int, int, float, bool]]) -> str:
    lines = ["| search, without launchers | right | phases | runs | seconds |", "|---|---|---|---|---|"]
    for order in ("dual", "bisection"):
        mine = [row for row in rows if row[0] == order]
        columns = [_spread([float(row[place]) for row in mine]) for place in (1, 2, 3)]
        lines.append(f"| {order} | {sum(row[4] for row in mine)} of {len(mine)} | {' | '.join(columns)} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({max(values):.1f})" if len(values) > 1 else f"{values[0]:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-bisection", action="store_true")
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(play(Path(folder) / "out", seed))
        print(json.dumps(asdict(rows[-1])), flush=True)
    print(table(rows))
    if not options.no_bisection:
        print(table_of_searches(bisection(options.seeds)))
    return 0 if all(row.evicted == [row.faulty] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
