"""A batch that makes every number wrong, left out of a real job: `python bench/skip_batch.py [--seeds 5]`.

Three machines of the lab with a rank each, DDP over gloo, a checkpoint at every step. `all`: a batch is not a number on all ranks; the job
meets it, is started again, meets it again, goes back and leaves it out. `memory`: the same with
checkpoints in memory. `rank`: in one rank's part only; the rank is tried on another
machine first. `machine`: one machine computes wrongly, at two batches: it is evicted, and nothing is left out. The losses are compared, bit
by bit and step by step, with those of a run whose data never had the batch (of `machine`: with those of an undisturbed run).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage

SCRIPT = Path(__file__).parent / "jobs" / "skipped.py"
MACHINES, STEPS, BATCH, LATER = 3, 40, 14, 22
POLICY = """skip_batches = "auto"

[policy.ladder]
rungs = [
    {rung = "skip_batch", on = ["data"], after = 1},
    {rung = "reattempt", on = ["program", "data", "unknown", "standstill", "order"]},
    {rung = "reattempt", on = ["nan"], times = 1},
    {rung = "trial", on = ["nan"]},
    {rung = "evict", on = ["machine", "hang", "slow"]},
]
"""  # without diagnosis and replay, whose time is no matter of this
BAD: dict[str, dict[str, Any]] = {
    "all": {"batch": BATCH},
    "memory": {"batch": BATCH},
    "rank": {"batch": BATCH, "rank": 1},
    "machine": {"batches": [BATCH, LATER]},
}
_LIMIT_S = 600.0


@dataclass(frozen=True)
class Played:
    """equal: all losses are those of the run that never had it. seconds: from the first wrong number to the first step past the batch."""

    case: str
    seed: int
    outcome: str
    equal: bool
    skipped: str
    evicted: int
    generations: int
    restarts: int
    seconds: float
    load: float


@contextmanager
def staged(folder: Path, case: str, seed: int) -> Iterator[Stage]:
    """A lab with the job on it; its controller is not started yet."""
    lab: dict[str, Any] = {"machines": MACHINES, "standbys": 1, "telemetry": "scrape", "machine": 1, "step_seconds": 0.1}
    options = DemoOptions(fault="none", steps=STEPS, at_step=20, seed=seed, out=folder, memory=case == "memory", **lab)
    with patch("minder.simulate.demo.stage.training_script", lambda: SCRIPT), Stage(options) as stage:
        train = stage.folder / "train"
        train.mkdir(parents=True, exist_ok=True)
        bad = BAD[case] | ({"machine": stage.lab.all_machines[1].name} if case == "machine" else {})
        (train / "bad.json").write_text(json.dumps(bad))
        path = stage.folder / "job.toml"
        path.write_text(path.read_text().replace("cooldown_s = 4.0\n", f"cooldown_s = 4.0\n{POLICY}", 1))
        yield stage


def play(folder: Path, case: str, seed: int) -> Played:
    """Raises TimeoutError where the job does not end in time."""
    load = os.getloadavg()[0]
    with staged(folder, case, seed) as stage:
        stage.start_controller()
        end_s = time.monotonic() + _LIMIT_S
        while True:
            with stage.ledger() as ledger:
                events = ledger.events(job=stage.job)
            if any(event.kind == kinds.JOB_ENDED for event in events):
                break
            if time.monotonic() > end_s or stage.controller_status() is not None:
                raise TimeoutError((stage.folder / "controller.log").read_text()[-3000:])
            time.sleep(0.2)
        found = losses(stage.folder / "train" / "losses.jsonl")
    wanted = reference(folder / "reference", seed, () if case == "machine" else (BATCH,))
    started = [event for event in events if event.kind == kinds.GENERATION_STARTED]
    first = next((event.time_s for event in events if event.kind == kinds.VERDICT), 0.0)
    last = [event.time_s for event in events if event.kind == kinds.FIRST_STEP][-1]
    restarts = sum(event.kind == kinds.INTENT and event.payload.get("action") == "restart" for event in events)
    evicted = sum(event.kind == kinds.BARRED for event in events)
    outcome = str(next(event.payload["outcome"] for event in events if event.kind == kinds.JOB_ENDED))
    skipped = str(started[-1].payload.get("skip_batches") or "")
    seconds = round(last - first, 1)
    return Played(case, seed, outcome, found == wanted, skipped, evicted, len(started), restarts, seconds, round(load, 1))


def losses(path: Path) -> dict[int, str]:
    """Step to its loss, of the newest generation that made it."""
    return {row["step"]: row["loss"] for row in map(json.loads, path.read_text().splitlines())}


def reference(folder: Path, seed: int, without: Sequence[int]) -> dict[int, str]:
    """The same ranks without minder's launchers, controller, guard and checkpoints, on data that never had these batches."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, MACHINES, is_master=True, wait_for_workers=False)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(MACHINES), "OMP_NUM_THREADS": "1"}
    common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "MINDER_RUN_DIR": str(folder / "run"), "GLOO_SOCKET_IFNAME": "lo"}
    words = [
        sys.executable,
        str(SCRIPT),
        "--output",
        str(folder),
        "--steps",
        str(STEPS),
        "--seed",
        str(seed),
        "--step-seconds",
        "0",
        "--bare",
    ]
    words += [word for batch in without for word in ("--without", str(batch))]
    ranks = [subprocess.Popen(words, env=os.environ | common | {"RANK": str(rank)}, stderr=subprocess.DEVNULL) for rank in range(MACHINES)]
    assert [rank.wait(600) for rank in ranks] == [0] * MACHINES
    return losses(folder / "losses.jsonl")


def table(rows: Sequence[Played]) -> str:
    """A line for each case, as Markdown."""
    lines = ["| case | runs | equal losses | left out | machines evicted | generations | seconds | load |", "|---" * 8 + "|"]
    for case in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == case]
        spread = [f"{min(values)} to {max(values)}" for values in ([getattr(row, name) for row in mine] for name in _SPREAD)]
        skipped = ", ".join(sorted({row.skipped or "none" for row in mine}))
        evicted, equal = sorted({row.evicted for row in mine}), sum(row.equal and row.outcome == "finished" for row in mine)
        lines.append(f"| {case} | {len(mine)} | {equal} | {skipped} | {', '.join(map(str, evicted))} | {' | '.join(spread)} |")
    return "\n".join(lines)


_SPREAD = ("generations", "seconds", "load")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--case", choices=tuple(BAD), action="append", help="default: `all` with every seed, the others with one")
    parser.add_argument("--out", type=Path, help="write the rows there as JSON")
    options = parser.parse_args()
    plan = [(case, seed) for seed in range(options.seeds) for case in options.case or BAD if options.case or case == "all" or not seed]
    rows: list[Played] = []
    for case, seed in plan:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(play(Path(folder) / "out", case, seed))
            print(json.dumps(asdict(rows[-1])), flush=True)
    print(table(rows))
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if all(row.equal and row.outcome == "finished" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
