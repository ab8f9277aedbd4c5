"""Data that resumes exactly: loaders are killed at random, a rank too, and what was trained on is compared with the plan.

    python bench/data.py [--trainers ddp,fsdp2,hf,lightning] [--kills 200] [--seed 0] [--out bench-out/data] [--no-overhead]

Each trainer is a job of two ranks (bench/jobs/planned.py). Kills are SIGKILL, one in five SIGSTOP, of the loader at work, its shadow or
its worker; in the middle one rank is killed and both go on from a checkpoint. What each step's batch held, by the training loop's own
word, is compared with the plan: gaps, duplicates, samples in another rank. Then what a batch costs the training process, beside torch's
DataLoader. A line per trainer goes to `data.jsonl`, the table of all lines to `data.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.edge.data.audit import audit
from minder.edge.data.plan import Plan, Share
from minder.edge.data.reading import read_logs

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).parent / "jobs" / "planned.py"
TRAINERS = ("ddp", "fsdp2", "hf", "lightning")
PLAN = Plan(samples=500, global_batch=8, seed=11)  # as in planned.py
WORLD = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainers", default=",".join(TRAINERS))
    parser.add_argument("--kills", type=int, default=200, help="of loaders, over all trainers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench-out/data"))
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds that one trainer may take")
    parser.add_argument("--no-overhead", action="store_true")
    options = parser.parse_args()
    trainers = options.trainers.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for index, trainer in enumerate(trainers):
        kills = options.kills * (index + 1) // len(trainers) - options.kills * index // len(trainers)
        rows.append(play(Job(trainer, options.out / trainer, random.Random(f"{options.seed} {trainer}")), kills, options.patience))
        with (options.out / "data.jsonl").open("a") as log:
            log.write(json.dumps(rows[-1]) + "\n")
        (options.out / "data.md").write_text(table(rows))
        print(json.dumps(rows[-1]), flush=True)
    if not options.no_overhead:
        measured = overhead()
        (options.out / "overhead.json").write_text(json.dumps(measured, indent=1))
        print(json.dumps(measured), flush=True)
    return 0 if all(row["gaps"] == row["duplicates"] == row["elsewhere"] == 0 and row["audit"] for row in rows) else 1


@dataclass
class Job:
    """Two ranks of a trainer in a folder; generation counts their starts."""

    trainer: str
    folder: Path
    random: random.Random
    generation: int = 0
    ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self.generation += 1
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(WORLD):
            env = {
                **os.environ, "RANK": str(rank), "LOCAL_RANK": "0" if self.trainer == "lightning" else str(rank), "NODE_RANK": str(rank),
                "GROUP_RANK": str(rank), "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "data", "MINDER_GENERATION": str(self.generation),
                "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
            }  # fmt: skip
            command = [sys.executable, str(SCRIPT), self.trainer, "--output", str(self.folder), "--workers", str(rank)]
            with (self.folder / f"rank-{rank}.out").open("ab") as log:
                self.ranks.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))

    def step(self) -> int:
        """The newest of rank 0."""
        lines = consumed_lines(self.folder, 0)
        return lines[-1][0] if lines else 0

    def loaders(self) -> list[int]:
        """Of all ranks, with their workers."""
        return [pid for rank in self.ranks for loader in children(rank.pid) for pid in (loader, *children(loader))]

    def check(self) -> None:
        for rank, process in enumerate(self.ranks):
            if process.poll() not in (None, 0):
                raise SystemExit(f"{self.trainer}: rank {rank} ended with {process.returncode}: {self.folder}/rank-{rank}.out")

    def kill_rank(self) -> None:
        """Rank 1 dies; the other one is ended, as a launcher does it."""
        for process in reversed(self.ranks):
            process.kill()
            process.wait()
        self.ranks = []

    def end(self, patience_s: float) -> None:
        (self.folder / "stop").touch()
        try:
            for process in self.ranks:
                process.wait(timeout=patience_s)
        finally:
            for process in self.ranks:
                process.kill()
        self.check()


def play(job: Job, kills: int, patience_s: float) -> dict[str, Any]:
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    begun, numbers = time.monotonic(), Counter[str]()
    try:
        for part in (kills // 2, kills - kills // 2):
            job.start()
            await_steps(job, job.step() + 25, begun + patience_s)  # two checkpoints, before anything happens
            for _ in range(part):
                numbers[kill_one(job)] += 1
                await_steps(job, job.step() + job.random.choice((0, 0, 1, 3, 7)), begun + patience_s)
            await_steps(job, job.step() + 5, begun + patience_s)
            if job.generation == 1:
                job.kill_rank()
        job.end(patience_s)
    finally:
        for process in job.ranks:
            process.kill()
    return {"trainer": job.trainer, **numbers, "rank_kills": 1, **judge(job.folder), "seconds": round(time.monotonic() - begun)}


def kill_one(job: Job) -> str:
    """A loader, a shadow or a worker of a rank."""
    while True:
        job.check()
        number = signal.SIGSTOP if job.random.random() < 0.2 else signal.SIGKILL
        found = job.loaders()
        if found:
            try:
                os.kill(job.random.choice(found), number)
            except ProcessLookupError:
                continue
            time.sleep(job.random.random() * 0.3)
            return "stops" if number == signal.SIGSTOP else "kills"
        time.sleep(0.05)


def await_steps(job: Job, step: int, until_s: float) -> None:
    while job.step() < step:
        job.check()
        if time.monotonic() > until_s:
            raise SystemExit(f"{job.trainer}: step {step} did not come: {job.folder}")
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return found


def consumed_lines(folder: Path, rank: int) -> list[tuple[int, float, list[int]]]:
    path = folder / f"consumed-{rank}.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(line[0]), float(line[1]), [int(word) for word in line[2:]]) for line in lines if len(line) > 2]


def trained_on(folder: Path, rank: int) -> dict[int, list[int]]:
    """By step, as the last process trained it: a step that comes again cuts off what was trained behind it."""
    found: dict[int, list[int]] = {}
    for step, _, ids in consumed_lines(folder, rank):
        found = {each: value for each, value in found.items() if each < step} | {step: ids} if step in found else {**found, step: ids}
    return found


def judge(folder: Path) -> dict[str, Any]:
    ranks = [trained_on(folder, rank) for rank in range(WORLD)]
    last = min(max(steps) for steps in ranks)
    found: Counter[str] = Counter(gaps=0, duplicates=0, elsewhere=0)
    for step in range(1, last + 1):
        planned, trained = Counter(PLAN.samples_of(step - 1)), Counter(sample for steps in ranks for sample in steps.get(step, ()))
        found["gaps"] += (planned - trained).total()
        found["duplicates"] += (trained - planned).total()
        found["elsewhere"] += sum(ranks[rank].get(step) != PLAN.samples_of(step - 1, Share(rank, WORLD)) for rank in range(WORLD))
    waits = sorted(wait for rank in range(WORLD) for _, wait, _ in consumed_lines(folder, rank))
    checked = audit(read_logs(folder / "data"))
    return {
        "steps": last, **found, "audit": checked.is_right, "audit_says": [*checked.problems, *checked.unknown],
        "replaced": sum(checked.replaced.values()), "again": len(consumed_lines(folder, 0)) - last,
        "wait_ms_median": round(1000 * statistics.median(waits), 2), "wait_ms_p99": round(1000 * waits[int(0.99 * len(waits))], 1),
        "wait_s_longest": round(waits[-1], 2),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    head = ("trainer", "steps", "kills", "stops", "rank_kills", "replaced", "again", "gaps", "duplicates", "elsewhere", "audit",
            "wait_ms_median", "wait_ms_p99", "wait_s_longest")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(str(row.get(name, 0)) for name in head)} |" for row in rows)]) + "\n"


class Texts:
    """Sequences of 2,048 tokens."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((2048,), index, dtype=torch.int64)


def overhead(batches: int = 300) -> dict[str, Any]:
    """Of the training process: processor time a batch, and how long `next` takes where batches lie ready."""
    import tempfile

    import torch

    import minder

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "torch, 1 worker": lambda: torch.utils.data.DataLoader(Texts(), batch_size=8, shuffle=True, num_workers=1),
            "minder": lambda: minder.DataLoader(Texts(), 8),
            "minder, log": lambda: minder.DataLoader(Texts(), 8, log_dir=folder),
            "minder, log, 1 worker": lambda: minder.DataLoader(Texts(), 8, log_dir=folder, num_workers=1),
        }
        measured: dict[str, Any] = {name: {"cpu_us": [], "next_us": []} for name in ways}
        for _ in range(3):
            for name, make in ways.items():
                cpu_us, next_us = measure(iter(make()), batches)
                measured[name]["cpu_us"].append(cpu_us)
                measured[name]["next_us"].append(next_us)
    return {name: {unit: round(statistics.median(values), 1) for unit, values in found.items()} for name, found in measured.items()}


def measure(batches: Iterator[Any], count: int) -> tuple[float, float]:
    for _ in range(10):
        next(batches)
    cpu_s, waits = 0.0, []
    for _ in range(count):
        time.sleep(0.004)  # a step, in which the next batch is loaded
        begun_s, cpu_begun_s = time.perf_counter(), time.process_time()
        batch = next(batches)
        waits.append(time.perf_counter() - begun_s)
        cpu_s += time.process_time() - cpu_begun_s
        del batch
    return 1e6 * cpu_s / count, 1e6 * statistics.median(waits)


if __name__ == "__main__":
    sys.exit(main())
