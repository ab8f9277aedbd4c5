"""Why is it stuck: real faults in a real job of the lab, and whom minder names; quiet phases, and that it names no machine.

    python bench/stuck.py [--kinds sleep,disk] [--seeds 5] [--first-seed 0] [--out bench-out/stuck]

Each kind is a run of bench/jobs/stuck.py under `minder run --act` with launchers and agents, one after the other; each seed hits another
machine, three steps later. A line per run goes to `stuck.jsonl`, the table of all lines to `stuck.md`: a bench that was stopped goes on.
`masked`: stopped states and the other fingerprints of the injector are hidden from the agents.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.act.controller.reporting.status import read_status
from minder.model.errors import LabError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import MASKED_METRICS, Stage
from minder.simulate.lab.machine import LabMachine

_STEP, _PAUSE_S, _RANKS = 24, 20.0, 4
_SETTLE_S = 20.0  # a machine that is paged and should stay is given so long to be evicted after all
_SAVER = ((0,),)  # rank 0 saves, whatever the seed


@dataclass(frozen=True, slots=True)
class Kind:
    """machine: those at fault must be evicted; else none may be named or evicted. ranks: where it happens with seed 0; none: everywhere.

    paged: those at fault must be named and must stay: what names them is enough for a person and not for an eviction.
    among: the places that the seeds take in turn, from `ranks` on; none: every single rank, or every pipeline where ranks are two.
    """

    what: str
    machine: bool
    ranks: tuple[int, ...] = (2,)
    watch_s: float = 90.0
    step: int = _STEP
    among: tuple[tuple[int, ...], ...] = ()
    paged: bool = False

    def ranks_of(self, seed: int) -> tuple[int, ...]:
        """Where it happens with this seed."""
        if not self.ranks:
            return ()
        places = self.among or (((1, 3), (0, 2)) if len(self.ranks) == 2 else tuple((rank,) for rank in range(_RANKS)))
        return places[(places.index(self.ranks) + seed) % len(places)]

    def step_of(self, seed: int) -> int:
        """At which step; a first step stays the first."""
        return self.step + 3 * seed if self.step > 1 else self.step


KINDS = {
    "sigstop": Kind("SIGSTOP inside an all-reduce", True),
    "sleep": Kind("a rank sleeps in Python before the collective", True),
    "disk": Kind("a rank in uninterruptible sleep (D) before the collective", True),
    "frozen-disk": Kind("a rank writes to a file system that stands (fsfreeze): state D, which no signal ends", True),
    "socket": Kind("two ranks talk over a socket of their own; one stops answering", True, among=((2,), (1,))),
    "pipeline": Kind("SIGSTOP of both ranks of one pipeline inside an all-reduce", True, (1, 3)),
    "stages-sigstop": Kind("DP x PP: SIGSTOP of both ranks of one pipeline among their messages", True, (1, 3)),
    "stages-sleep": Kind("DP x PP: a rank sleeps in Python before it sends", True, (3,)),
    "stages-slow-python": Kind("DP x PP: a rank's Python code takes 2 s longer in every step: steps go on", True, (3,), 180.0, paged=True),
    "stages-causes": Kind(
        "DP x PP, traced: uneven sequences, then a longer last stage, then a rank that computes slowly", True, (1,), 90.0, 36
    ),
    "stages-fewer-steps": Kind("DP x PP: a replica's data end a step early: it waits in a barrier", False, (1, 3)),
    "stages-checkpoint": Kind("quiet, DP x PP: rank 0 saves for 20 s, and the script does not say so", False, (0,), 50.0, among=_SAVER),
    "stages-evaluation": Kind("quiet, DP x PP: all evaluate for 20 s", False, (), 50.0),
    "slow-python": Kind("a rank's Python code takes 2 s longer in every step: steps go on", True, watch_s=180.0, paged=True),
    "loader": Kind("a data-loader worker waits for a lock for ever", False),
    "other-collective": Kind("a rank broadcasts where the others all-reduce", False),
    "wrong-shape": Kind("a rank all-reduces another number of elements", False),
    "fewer-steps": Kind("a rank's data end a step early: it waits in a barrier", False),
    "checkpoint": Kind("quiet: rank 0 saves for 20 s", False, (), 50.0),
    "undeclared": Kind("quiet: rank 0 saves for 20 s, and the script does not say so", False, (0,), 50.0, among=_SAVER),
    "evaluation": Kind("quiet: all evaluate for 20 s", False, (), 50.0),
    "slow-data": Kind("quiet: every rank waits for slow data in every step, 0.5 to 2.5 s", False, (), 120.0),
    "compile": Kind("quiet: the first step compiles for 20 s", False, (), 50.0, 1),
    "debugger": Kind("quiet: a debugger holds all ranks for 20 s", False, (), 50.0),
}


class StuckStage(Stage):
    """The lab's stage with this bench's job on it."""

    def __init__(self, name: str, masked: bool, out: Path, seed: int, disk: Path | None = None) -> None:
        super().__init__(DemoOptions("none", out, machines=4, standbys=2, machine=2, seed=seed, telemetry="scrape", masked=masked))
        self.name = name
        self.disk = disk
        self.output = self.folder / "train"

    def __enter__(self) -> StuckStage:
        super().__enter__()
        return self

    def _start_launcher(self, machine: LabMachine) -> None:
        kind = KINDS[self.name]
        seed = self.options.seed
        order = f"{self.name}@{kind.step_of(seed)}:{','.join(map(str, kind.ranks_of(seed)))}"
        flags = ["--job", self.job, "--slots", "1", "--barrier", "script", "--env", f"GLOO_SOCKET_IFNAME={machine.place.data_interface}"]
        flags += ["--env", f"LAB_DATA_ADDRESS={machine.place.data_address}"]
        program = "stages.py" if self.name.startswith("stages-") else "stuck.py"
        script = [str(Path(__file__).parent / "jobs" / program), "--output", str(self.output), "--stuck", order]
        script += ["--disk", str(self.disk)] if self.disk is not None else []
        self.lab.start_launcher(machine, self.tokens / machine.name, 9402, [*flags, "--", *script])

    def _job_toml(self, telemetry: dict[str, Any]) -> str:
        axes = "\n[parallelism]\npipeline = 2\ndata = 2\n" if self.name == "pipeline" or self.name.startswith("stages-") else ""
        return super()._job_toml(telemetry) + axes


def run(name: str, masked: bool, out: Path, seed: int, limit_s: float = 240.0) -> dict[str, Any]:
    """One run. Raises LabError if the job never comes as far as the fault."""
    kind = KINDS[name]
    with ExitStack() as stack:
        disk = stack.enter_context(loop_disk()) if name == "frozen-disk" else None
        stage = stack.enter_context(StuckStage(name, masked, out, seed, disk))
        if disk is not None:
            stack.callback(_thaw, disk)  # before the stage ends its processes: a frozen writer cannot be ended
        stage.start_controller()
        _until(stage, lambda: any(stage.output.glob("stuck*")), limit_s)
        began_s = (stage.output / "stuck").stat().st_mtime
        if name == "debugger":
            time.sleep(_PAUSE_S)
            _let_go(stage)
        end_s = began_s + kind.watch_s
        while time.time() < end_s and stage.controller_status() is None and not _over(stage, kind):
            time.sleep(0.5)
        steps = int((read_status(stage.status_path) or {}).get("step") or 0)
        stage.stop_controller()
        with stage.ledger() as ledger:
            events = ledger.events(job=stage.job)
        culprits = [stage.lab.machines[rank].name for rank in kind.ranks_of(seed)] if kind.machine else []
        return judge(name, culprits, began_s, events) | {"masked": masked, "seed": seed, "step": steps}


@contextmanager
def loop_disk() -> Iterator[Path]:
    """A small file system of its own, mounted before any machine starts. Raises LabError where that cannot be."""
    with tempfile.TemporaryDirectory(prefix="minder-disk-") as folder:
        image, disk = Path(folder) / "image", Path(folder) / "disk"
        disk.mkdir()
        with image.open("wb") as file:
            file.truncate(32 << 20)
        for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(disk)]):
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
            except (OSError, subprocess.SubprocessError) as error:
                said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
                raise LabError(f"no file system of its own to freeze: {command[0]}: {said}") from error
        try:
            yield disk
        finally:
            _thaw(disk)
            subprocess.run(["umount", "--lazy", str(disk)], check=False, timeout=60)


def _thaw(disk: Path) -> None:
    """Does nothing where it is not frozen."""
    subprocess.run(["fsfreeze", "--unfreeze", str(disk)], check=False, capture_output=True, timeout=60)


def judge(name: str, culprits: Sequence[str], began_s: float, events: Sequence[LedgerEvent]) -> dict[str, Any]:
    """What was said after the fault, and whether that is right."""
    verdicts = [event for event in events if event.kind == kinds.VERDICT and event.payload["kind"] != "recovered"]
    named = list(dict.fromkeys(machine for event in verdicts for machine in event.payload["machines"]))
    evicted = list(dict.fromkeys(str(event.payload["machine"]) for event in events if event.kind == kinds.BARRED))
    first = verdicts[0].payload if verdicts else {}
    alarms = [event.time_s for event in events if event.kind == kinds.NOTE and " alarm: " in str(event.payload.get("text"))]
    return {
        "kind": name,
        "right": set(named) == set(culprits) and set(evicted) == (set() if KINDS[name].paged else set(culprits)),
        "named": named,
        "evicted": evicted,
        "verdict": first.get("kind"),
        "after_s": round(verdicts[0].time_s - began_s, 1) if verdicts else None,
        "alarm_after_s": round(min(alarms) - began_s, 1) if alarms else None,
        "sources": list(first.get("sources", ())),
        "pages": [source for event in verdicts if not event.payload["machines"] for source in event.payload["sources"]],
        "evicting": [source for event in verdicts if event.payload["tier"] == "evict" for source in event.payload["sources"]],
        "says": [item["message"] for item in first.get("evidence", ()) if item["source"] in ("stacks", "collectives")],
        "load": round(os.getloadavg()[0], 1),
    }


def _until(stage: Stage, reached: Callable[[], bool], limit_s: float) -> None:
    end_s = time.time() + limit_s
    while not reached():
        if stage.controller_status() is not None or time.time() > end_s:
            raise LabError(f"the job did not come as far as the fault: see {stage.folder}")
        time.sleep(0.2)


def _over(stage: StuckStage, kind: Kind) -> bool:
    """An eviction whose job steps again, or a program whose fault was reported: nothing more will come of it."""
    with stage.ledger() as ledger:
        events = ledger.events(job=stage.job)
    if kind.machine and not kind.paged:
        return sum(event.kind == kinds.FIRST_STEP for event in events) > 1
    after_s = _SETTLE_S if kind.paged else 0.0
    return bool(kind.ranks) and any(event.kind == kinds.VERDICT and time.time() - event.time_s > after_s for event in events)


def _let_go(stage: Stage) -> None:
    """What the debugger of all ranks does at its end."""
    for machine in stage.lab.machines:
        for file in (machine.run_dir / "jobs").glob("*.json"):
            for worker in json.loads(file.read_text())["workers"]:
                if worker.get("pid"):
                    os.kill(int(worker["pid"]), signal.SIGCONT)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """All rows of one kind in one line. Of a seed that ran twice the later row counts."""
    rows = list({(row["kind"], row["masked"], row["seed"]): row for row in rows}.values())
    lines = ["| what happens | expected | right | named | first verdict after s | alarm after s | sources | load |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, masked in dict.fromkeys((row["kind"], row["masked"]) for row in rows):
        mine = [row for row in rows if (row["kind"], row["masked"]) == (name, masked)]
        named = {("a machine" if row.get("named") else "") or row.get("verdict") or "no machine" for row in mine}
        after = ", ".join(f"{row['after_s']:.0f}" for row in mine if row.get("after_s") is not None) or "-"
        alarm = ", ".join(f"{row['alarm_after_s']:.0f}" for row in mine if row.get("alarm_after_s") is not None) or "-"
        sources = sorted({source for row in mine for source in row.get("sources", ())})
        expected = ("its machine, by a page" if KINDS[name].paged else "its machine") if KINDS[name].machine else "no machine"
        what = KINDS[name].what + (" (masked)" if masked else "")
        right = f"{sum(row['right'] for row in mine)}/{len(mine)}"
        loads = [row["load"] for row in mine if "load" in row]
        load = f"{min(loads):.0f} to {max(loads):.0f}" if loads else "-"
        cells = (what, expected, right, ", ".join(sorted(named)), after, alarm, ", ".join(sources) or "-", load)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "stuck.jsonl").read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--masked", action="store_true", help=f"hide {', '.join(MASKED_METRICS)} and process states")
    parser.add_argument("--out", type=Path, default=Path("bench-out/stuck"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.kinds.split(","):
            folder = arguments.out / f"{name}-{seed}-{int(time.time())}"
            try:
                row = run(name, arguments.masked, folder, seed)
            except LabError as error:
                row = {"kind": name, "masked": arguments.masked, "seed": seed, "right": False, "error": str(error)}
            rows.append(row)
            with (arguments.out / "stuck.jsonl").open("a") as log:
                log.write(json.dumps(row) + "\n")
            (arguments.out / "stuck.md").write_text(table(read(arguments.out)))
            print(json.dumps(row), flush=True)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
