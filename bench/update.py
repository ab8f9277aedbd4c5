"""Another version of a job's code, and back, beside a full requeue of the same job: `python bench/update.py [--seeds 3] [--slurm]`. With
`--cases requeue promotion` a proven standby's promotion beside it.

Four machines of the lab, a worker each, checkpoints at every step in a folder. `update`: `minder job update --code --urgent` while the job
steps. `rollback`: `minder job rollback` after it. `requeue`: what a scheduler does with the same job, without its queue: every process of
it ends, launchers and controller start again with the new code, the job resumes from its checkpoint. With --slurm (root, a real slurmctld)
also `scontrol requeue` of a batch job that trains the same model. `promotion`: a machine reports an Xid, and the standby takes its
place; from the decision on. Seconds: from the order until the first
step with the new code; stood: the longest time without a step in it. That holds one step, which the job would have made anyway: beyond is
the time without it, which is what the update costs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage, training_script

CASES = ("update", "rollback", "requeue", "promotion")
MACHINES = 4
STEPS = 4000  # the job outlives what is measured
_LIMIT_S = 150.0


@dataclass(frozen=True)
class Played:
    """One run of one case. seconds: from the order to the first step; stood: the longest time without a step in them, and beyond: how much
    longer that is than the job's usual step. Of an
    update `ready` is when all launchers had it. kept: machines on
    which the launcher that the job began with still runs. lost: steps that were done again."""

    case: str
    seed: int
    seconds: float
    stood: float
    beyond: float
    ready: float
    kept: int
    lost: int
    load: float


def write_code(folder: Path, extra: str = "") -> Path:
    """The lab's training script as a project of its own, with one more line at every step's begin."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("corpus", "model", "plain"):
        shutil.copy(training_script().with_name(f"{name}.py"), folder)
    text = training_script().read_text()
    mark = "    _raise_if_asked(job, step)\n"
    assert text.count(mark) == 1
    (folder / training_script().name).write_text(text.replace(mark, mark + extra))
    return folder


class Watch:
    """What the ledger and the status say of a stage's job."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def events(self, *wanted: str) -> list[LedgerEvent]:
        with self.stage.ledger() as ledger:
            return ledger.events(job=self.stage.job, kinds=wanted or None)

    def step(self) -> int:
        try:
            return int(json.loads(self.stage.status_path.read_text()).get("step") or 0)
        except (OSError, ValueError):
            return 0

    def until(self, what: str, is_so: Callable[[], Any], limit_s: float = _LIMIT_S) -> Any:
        end_s = time.monotonic() + limit_s
        while not (found := is_so()):
            if time.monotonic() > end_s or self.stage.controller_status() is not None:
                log = (self.stage.folder / "controller.log").read_text()[-2000:]
                raise TimeoutError(f"{what} did not come within {limit_s:.0f} s; the controller said: {log}")
            time.sleep(0.1)
        return found

    def first_step(self, after_id: int) -> LedgerEvent | None:
        return next((event for event in self.events(kinds.FIRST_STEP) if event.id > after_id), None)


def job(stage: Stage, *words: str) -> None:
    """`minder job ...` on the stage's ledger."""
    command = [sys.executable, "-m", "minder", "job", *words, "--ledger", str(stage.ledger_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def play(folder: Path, seed: int, note: Callable[[str], None] = lambda line: None, cases: Sequence[str] = CASES[:3]) -> list[Played]:
    """These cases on one lab, one after the other. Raises TimeoutError where the job does not come to what is waited for."""
    lab: dict[str, Any] = {"machines": MACHINES, "standbys": int("promotion" in cases), "telemetry": "scrape", "machine": 1}
    rows = []
    with Stage(DemoOptions(fault="crash", steps=STEPS, at_step=12, seed=seed, out=folder, **lab)) as stage:
        stage.start_controller()
        watch = Watch(stage)
        watch.until("ten steps", lambda: watch.step() >= 10)
        pids = {machine.name: machine.launcher.pid for machine in stage.lab.machines if machine.launcher is not None}
        code = write_code(folder / "project", "    _append(job.options.output / 'new-code', '.')\n")
        orders = {"update": ["update", stage.job, "--code", str(code), "--urgent"], "rollback": ["rollback", stage.job]}
        for case, words in orders.items():
            if case not in cases:
                continue
            rows.append(_ordered(watch, case, seed, words, pids))
            note(json.dumps(asdict(rows[-1])))
            at_step = watch.step()
            watch.until("steps after it", lambda: watch.step() >= at_step + 15)  # noqa: B023 - called at once
        for case, measure in (("requeue", _requeued), ("promotion", _promoted)):
            if case in cases:
                rows.append(measure(watch, seed, pids))
                note(json.dumps(asdict(rows[-1])))
    return rows


def _promoted(watch: Watch, seed: int, pids: dict[str, int]) -> Played:
    """From the decision on: what detection takes is another measure. The requeue before it has started most launchers anew."""
    stage = watch.stage
    watch.until("a standby that has passed the probes", lambda: _ready(stage.status_path))
    at_step = watch.step()
    watch.until("steps", lambda: watch.step() >= at_step + 10)
    pids = {machine.name: machine.launcher.pid for machine in stage.lab.machines if machine.launcher is not None}
    load, last = os.getloadavg()[0], watch.events()[-1].id
    stage.inject("xid", 1)
    decided = watch.until("the decision", lambda: next((event for event in watch.events(kinds.INTENT) if event.id > last), None))
    stepped = watch.until("the first step after the promotion", lambda: watch.first_step(decided.id))
    return _row(watch, "promotion", seed, (decided.time_s, decided.time_s), stepped, pids, load)


def _ready(status: Path) -> bool:
    try:
        return bool(json.loads(status.read_text())["pool"]["ready"])
    except (OSError, ValueError, KeyError):
        return False


def _ordered(watch: Watch, case: str, seed: int, words: Sequence[str], pids: dict[str, int]) -> Played:
    load, last = os.getloadavg()[0], watch.events()[-1].id
    job(watch.stage, *words)
    asked = next(event for event in watch.events(kinds.UPDATE_ASKED) if event.id > last)
    stepped = watch.until(f"the first step after the {case}", lambda: watch.first_step(asked.id))
    ready = next(event for event in watch.events(kinds.UPDATE_READY) if event.id > asked.id)
    return _row(watch, case, seed, (asked.time_s, ready.time_s), stepped, pids, load)


def _requeued(watch: Watch, seed: int, pids: dict[str, int]) -> Played:
    """A new run of the job, so that its controller takes nothing up."""
    load, stage = os.getloadavg()[0], watch.stage
    last, asked_s, step = watch.events()[-1].id, time.time(), watch.step()
    stage.stop_controller()
    stage.recording_path.rename(stage.folder / "recording-before")  # a new controller writes into a new one
    for machine in stage.lab.all_machines:
        if machine.launcher is not None:
            machine.launcher.terminate()
    for machine in stage.lab.all_machines:
        if machine.launcher is not None:
            machine.launcher.wait(30)
    with stage.ledger() as ledger:
        ledger.append(kinds.JOB_ENDED, {"outcome": "failed", "detail": "requeued"}, job=stage.job)
    for machine in stage.lab.all_machines:
        stage._start_launcher(machine)
    stage.start_controller()
    stepped = watch.until("the first step after the requeue", lambda: watch.first_step(last))
    resumed = int(stepped.payload["step"]) - 1
    row = _row(watch, "requeue", seed, (asked_s, asked_s), stepped, pids, load)
    return replace(row, ready=0.0, lost=max(0, step - resumed))


def _row(
    watch: Watch, case: str, seed: int, times_s: tuple[float, float], stepped: LedgerEvent, pids: dict[str, int], load: float
) -> Played:  # fmt: skip
    now = {machine.name: machine.launcher.pid for machine in watch.stage.lab.machines if machine.launcher is not None}
    last, resumed = stepped.payload.get("last_step"), stepped.payload.get("resumed_from")
    lost = 0 if last is None or resumed is None else max(0, int(last) - int(resumed))
    kept = sum(now.get(name) == pid for name, pid in pids.items())
    seconds, ready = stepped.time_s - times_s[0], times_s[1] - times_s[0]
    stood = [round(span, 2) for span in _stood(watch.stage.folder / "train", times_s[0])]
    return Played(case, seed, round(seconds, 1), *stood, round(ready, 1), kept, lost, round(load, 1))


def _stood(out: Path, since_s: float) -> tuple[float, float]:
    """The longest time between two steps of which the later ended after `since_s`, and how much longer that is than a usual step."""
    times = [json.loads(line)["time"] for line in (out / "losses.jsonl").read_text().splitlines() if line.endswith("}")]
    gaps = [(late_s, late_s - early_s) for early_s, late_s in pairwise(times)]
    longest = max((gap for late_s, gap in gaps if late_s > since_s), default=0.0)
    return longest, longest - statistics.median(gap for late_s, gap in gaps)


_BATCH = """#!/bin/bash
#SBATCH --requeue
echo "begun $(date +%s.%N)" >> {out}/begun
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SLURM_JOB_ID * 7 + RANDOM % 1000)) GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
srun --export=ALL bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec {python} {script} \\
  --output {out} --no-in-place --steps {steps} --checkpoint-dir {out}/checkpoints --no-sync'
"""


def requeue_in_slurm(folder: Path, seed: int) -> Played:
    """`scontrol requeue` of a batch job on a real Slurm, with its default delay before a requeued job may begin."""
    from minder.simulate.lab.slurm import LocalSlurm

    out = folder / "train"
    out.mkdir(parents=True)
    with LocalSlurm(folder / "slurm", MACHINES) as slurm:
        script = folder / "job.sh"
        script.write_text(_BATCH.format(out=out, python=sys.executable, script=training_script(), steps=STEPS))
        command = ["sbatch", "--parsable", "-N", str(MACHINES), "-n", str(MACHINES), "-o", str(folder / "job.log"), str(script)]
        name = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, check=True).stdout.strip()
        _wait(lambda: _last_step(out)[0] >= 25, 180.0, folder / "job.log")
        step, asked_s, load = _last_step(out)[0], time.time(), os.getloadavg()[0]
        subprocess.run(["scontrol", "requeue", name], env=slurm.environment, check=True)
        _wait(lambda: len((out / "begun").read_text().splitlines()) > 1, 400.0, folder / "job.log")
        begun_s = float((out / "begun").read_text().splitlines()[-1].split()[1])
        _wait(lambda: _last_step(out)[1] > begun_s, 180.0, folder / "job.log")
        lines = [json.loads(line) for line in (out / "losses.jsonl").read_text().splitlines()]
        first = next(line for line in lines if line["time"] > begun_s)
        subprocess.run(["scancel", name], env=slurm.environment, check=False)
        lost = max(0, step - int(first["step"]) + 1)
        spans = (first["time"] - asked_s, *_stood(out, asked_s), begun_s - asked_s)
        return Played("slurm requeue", seed, *(round(span, 2) for span in spans), 0, lost, round(load, 1))


def _last_step(out: Path) -> tuple[int, float]:
    try:
        last = json.loads((out / "losses.jsonl").read_text().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return 0, 0.0
    return int(last["step"]), float(last["time"])


def _wait(is_so: Callable[[], bool], limit_s: float, log: Path) -> None:
    end_s = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {limit_s:.0f} s; {log.read_text()[-1500:] if log.exists() else 'no log'}")
        time.sleep(0.2)


def table(rows: Sequence[Played]) -> str:
    """A line for each case, as Markdown: median (longest)."""
    lines = [
        "| case | runs | seconds to the first step | of them without a step | beyond a usual step | machines kept | steps lost | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == case]
        cells = [_spread([getattr(row, name) for row in mine]) for name in ("seconds", "stood", "beyond", "kept", "lost", "load")]
        lines.append(f"| {case} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):g} ({max(values):g})" if len(values) > 1 else f"{values[0]:g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES[:3]))
    parser.add_argument("--slurm", action="store_true", help="also a requeue in a real Slurm of this machine: minutes")
    parser.add_argument("--out", type=Path, help="write the rows there as JSON")
    options = parser.parse_args()
    rows: list[Played] = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            rows += play(Path(folder) / "out", seed, lambda line: print(line, flush=True), options.cases)
        if options.slurm:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(requeue_in_slurm(Path(folder), seed))
            print(json.dumps(asdict(rows[-1])), flush=True)
    print(table(rows))
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
