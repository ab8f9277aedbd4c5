"""A job that is diagnosed for real, phase by phase: `python bench/diagnosis.py [--seeds 5] [--first-seed 0] [--cases disk-full,bit-flip]`.

Six machines of the lab and two standbys. One training process is killed twice, which names no machine: the second time the job is suspended
and all machines are tested. `no-culprit`: every test passes, the climb goes on, and the job trains again. `disk-full`: one machine, not the
one whose process dies, has a disk without room, which only its probe sees: that machine goes. `slow-sender`: what one machine sends is
slow, which the small job does not feel, and a page said that the job is slow: the machines are tested by pairs as well, and that machine
goes. Seconds are from the second kill on.

`bit-flip`, `wrong-product` (three machines and a standby; not by default): one machine computes wrongly from the start, which no error says
(bench/corrupt_lab); the seed says which one and where. Another one's gradient becomes a NaN, and the job is tested at once, with bit-wise
alignment: the machine that computes wrongly goes, and not the one of the NaN. Seconds are from the NaN on. `--limit 180` is the
limit of the tests that minder has by default.
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
from unittest import mock

from minder.model.errors import UnsupportedFaultError
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage
from minder.simulate.lab.machine import LabMachine

CASES = ("no-culprit", "disk-full", "slow-sender")
SILENT = ("bit-flip", "wrong-product")
BUSY_S = 600.0  # leaves room for the tests on a busy host
PHASES = ("decided", "suspended", "tested", "placed", "first step")
MACHINES, STANDBYS, VICTIM, FULL = 6, 2, 2, 4
SLOW, SLOW_BIT = 3, 40_000_000
SILENT_MACHINES, NAN_STEP = 3, 12
STEPS = 4000  # the job outlives its tests
_LIMIT_S, _SILENT_LIMIT_S = 240.0, 900.0
_CORRUPT = Path(__file__).with_name("corrupt_lab")


@dataclass(frozen=True)
class Played:
    """One run. seconds: phase to seconds since the second kill. probes: probe to the longest run of any machine, in seconds. found: what
    the diagnosis says. rungs: what was climbed. evicted: machines, by their place in the lab."""

    case: str
    seed: int
    seconds: dict[str, float]
    probes: dict[str, float]
    found: str
    rungs: list[str]
    evicted: list[int]
    load: float


class SilentStage(Stage):
    """The lab's job with a machine that computes wrongly, and a NaN of another one. limit_s: of the tests."""

    def __init__(self, case: str, seed: int, folder: Path, limit_s: float) -> None:
        self.case, self.seed, self.limit_s, self.faulty = case, seed, limit_s, corrupt_machine(seed)
        lab: dict[str, Any] = {"machines": SILENT_MACHINES, "standbys": 1, "telemetry": "scrape"}
        super().__init__(DemoOptions(fault="nan", machine=VICTIM, steps=STEPS, at_step=NAN_STEP, seed=seed, out=folder, **lab))

    def _start_launcher(self, machine: LabMachine) -> None:
        """On the faulty machine with what breaks torch on its path."""
        if machine.place.index != self.faulty:
            super()._start_launcher(machine)
            return
        path = os.pathsep.join(filter(None, (str(_CORRUPT), os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1]))))
        with mock.patch.dict(os.environ, {"PYTHONPATH": path, "CORRUPT": self.case, "CORRUPT_SEED": str(self.seed)}):
            super()._start_launcher(machine)

    def _job_toml(self, telemetry: dict[str, Any]) -> str:
        return super()._job_toml(telemetry).replace("[policy]\n", f"[policy]\ndiagnose_limit_s = {self.limit_s}\n")


def corrupt_machine(seed: int) -> int:
    """Each machine but that of the NaN in turn, by its place in the lab."""
    return [place for place in range(SILENT_MACHINES) if place != VICTIM][seed % (SILENT_MACHINES - 1)]


def play_silent(case: str, folder: Path, seed: int = 0, limit_s: float = BUSY_S) -> Played:
    """limit_s: `diagnose_limit_s`, of which such a job has twice as much.

    Raises TimeoutError where the job does not come to what is waited for.
    """
    load = os.getloadavg()[0]
    with SilentStage(case, seed, folder, limit_s) as stage:
        stage.start_controller()
        watch = _Watch(stage, _SILENT_LIMIT_S)
        watch.until("the first step after the tests", lambda: _diagnosed(watch.events()) and watch.stepped() >= 2)
        names = [machine.name for machine in stage.lab.all_machines]
        return _read(case, seed, watch.events(), names, (folder / "train" / "fault-nan").stat().st_mtime, load)


def play(
    case: str, folder: Path, seed: int = 0, note: Callable[[str], None] = lambda line: None, limit_s: float = BUSY_S
) -> Played:  # fmt: skip
    """limit_s: of the tests, where a machine computes wrongly.

    Raises TimeoutError where the job does not come to what is waited for.
    """
    if case in SILENT:
        return play_silent(case, folder, seed, limit_s)
    load = os.getloadavg()[0]
    lab: dict[str, Any] = {"machines": MACHINES, "standbys": STANDBYS, "telemetry": "scrape"}
    options = DemoOptions(fault="crash", machine=VICTIM, steps=STEPS, at_step=12, seed=seed, out=folder, **lab)
    with Stage(options) as stage:
        stage.start_controller()
        watch = _Watch(stage)
        watch.until("ten steps", lambda: watch.step() >= 10)
        stage.inject("crash", VICTIM)
        watch.until("the restart in place", lambda: watch.stepped() >= 2)
        if case == "disk-full":
            stage.inject("disk-full", FULL)
        if case == "slow-sender":
            _slow_sender(stage)
        at_step = watch.step()
        watch.until("steps after it", lambda: watch.step() >= at_step + 5)
        killed_s = stage.inject("crash", VICTIM).time_s
        note("the second kill")
        watch.until("the first step after the tests", lambda: _diagnosed(watch.events()) and watch.stepped() >= 3)
        names = [machine.name for machine in stage.lab.all_machines]
        return _read(case, seed, watch.events(), names, killed_s, load)


def _slow_sender(stage: Stage) -> None:
    """Raises UnsupportedFaultError."""
    if stage.lab.network is None:
        raise UnsupportedFaultError("a slow sender needs machines made of network namespaces (root)")
    stage.lab.network.slow_what_it_sends(f"m{SLOW}", SLOW_BIT)
    now_s, machine = time.time(), stage.lab.machines[SLOW].name
    page = Verdict(now_s, "machine", "page", (machine,), "slowdown", 0.6, now_s - 10.0, sources=("slowdown",))
    with stage.ledger() as ledger:
        ledger.append(kinds.VERDICT, page, job=stage.job)


def _diagnosed(events: Sequence[LedgerEvent]) -> bool:
    names = {event.operation_id for event in events if event.kind == kinds.INTENT and event.payload.get("action") == "diagnose"}
    return any(event.kind == kinds.RESULT and event.operation_id in names for event in events)


class _Watch:
    """What the ledger and the status say of a stage's job."""

    def __init__(self, stage: Stage, limit_s: float = _LIMIT_S) -> None:
        self._stage, self._limit_s = stage, limit_s

    def events(self) -> list[LedgerEvent]:
        with self._stage.ledger() as ledger:
            return ledger.events(job=self._stage.job)

    def step(self) -> int:
        try:
            return int(json.loads(self._stage.status_path.read_text()).get("step") or 0)
        except (OSError, ValueError):
            return 0

    def stepped(self) -> int:
        """Generations that have stepped."""
        return sum(event.kind == kinds.FIRST_STEP for event in self.events())

    def until(self, what: str, is_so: Callable[[], Any]) -> None:
        end_s = time.monotonic() + self._limit_s
        while not is_so():
            if time.monotonic() > end_s or self._stage.controller_status() is not None:
                log = (self._stage.folder / "controller.log").read_text()[-2000:]
                raise TimeoutError(f"{what} did not come within {self._limit_s:.0f} s; the controller said: {log}")
            time.sleep(0.2)


def _read(case: str, seed: int, events: Sequence[LedgerEvent], names: Sequence[str], killed_s: float, load: float) -> Played:
    acts = [event for event in events if event.kind == kinds.INTENT and "decision" in event.payload]
    diagnosis = next(event for event in acts if event.payload["action"] == "diagnose")
    later = [event for event in events if event.id > diagnosis.id]
    result = next(event for event in later if event.kind == kinds.RESULT and event.operation_id == diagnosis.operation_id)
    times = {
        "decided": diagnosis.time_s,
        "suspended": _phase_end(later, "suspend"),
        "tested": result.time_s,
        "placed": next(event.time_s for event in later if event.kind == kinds.GENERATION_STARTED),
        "first step": next(event.time_s for event in later if event.kind == kinds.FIRST_STEP),
    }
    took: dict[str, float] = {}
    for event in later:
        for item in event.payload.get("results") or () if event.kind == kinds.PROBES else ():
            took[item["probe"]] = max(took.get(item["probe"], 0.0), float(item["seconds"]))
    return Played(
        case, seed, {name: round(time_s - killed_s, 1) for name, time_s in times.items()}, took, str(result.payload["detail"]),
        [str(event.payload["decision"]["rung"]) for event in acts],
        [names.index(str(event.payload["machine"])) for event in events if event.kind == kinds.BARRED], round(load, 1),
    )  # fmt: skip


def _phase_end(events: Sequence[LedgerEvent], phase: str) -> float:
    wanted = (kinds.RECOVERY_PHASE, phase, "end")
    return next(event.time_s for event in events if (event.kind, event.payload.get("phase"), event.payload.get("state")) == wanted)


def table(rows: Sequence[Played]) -> str:
    """A line for each case (median and longest seconds), one for each probe, as Markdown."""
    lines = [f"| case | runs | {' | '.join(PHASES)} | evicted | load |", "|---" * (len(PHASES) + 4) + "|"]
    for case in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == case]
        cells = [_spread([row.seconds[phase] for row in mine]) for phase in PHASES]
        gone = sorted({str(tuple(row.evicted)) for row in mine})
        lines.append(f"| {case} | {len(mine)} | {' | '.join(cells)} | {', '.join(gone)} | {_spread([row.load for row in mine])} |")
    lines += ["", "| probe | longest on any machine, s |", "|---|---|"]
    names = dict.fromkeys(name for row in rows for name in row.probes)
    lines += [f"| {name} | {_spread([row.probes[name] for row in rows if name in row.probes])} |" for name in names]
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({max(values):.1f})" if len(values) > 1 else f"{values[0]:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--limit", type=float, default=BUSY_S, help="diagnose_limit_s of bit-flip and wrong-product; the product's is 180")
    parser.add_argument("--out", type=Path, help="write the rows there as JSON")
    options = parser.parse_args()
    rows = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for case in options.cases.split(","):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(play(case, Path(folder) / "out", seed, limit_s=options.limit))
            print(json.dumps(asdict(rows[-1])), flush=True)
    print(table(rows))
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
