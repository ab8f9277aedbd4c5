"""A training job that counts what minder costs it: `counted.py --output DIR --seconds 120`, run by bench/overhead.py under `minder launch`.

Short blocks of steps with minder and without it alternate in one process, in pairs of random order: the two blocks of a pair see the same
machine. With: a heartbeat and the tracer in each step, the threads of the control channel and of the kept dumps awake. Without: the bare
loop, those threads parked. A third of the pairs compares the bare loop with itself, which shows what the method cannot tell. What those
threads take is counted in a stretch of steps with minder at the end, a third of the time, in which they are not parked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import minder
from minder.edge.worker import control, dumps
from minder.edge.worker.tracer import is_sampled

WIDTH, LAYERS, BATCH, WARM_UP = 256, 6, 128, 50
THREADS = ("minder-control", "minder-dumps", "minder-tracer")
BARE, AGAIN, MINDER = "bare", "bare again", "minder"


class Parked:
    """Background threads stand still while `with parked:`."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        dumps.time = SimpleNamespace(sleep=self._sleep, time=time.time)  # type: ignore[assignment]
        channel = control.current()
        assert channel is not None
        self._poll = channel._incoming.poll
        channel._incoming = SimpleNamespace(poll=self._wait)  # type: ignore[assignment]

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self._open.wait()

    def _wait(self, milliseconds: float) -> Any:
        self._open.wait()
        return self._poll(milliseconds)

    def __enter__(self) -> None:
        self._open.clear()

    def __exit__(self, *unused: object) -> None:
        self._open.set()


class Loop:
    """The job: a small network, its steps bare or with minder."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(0)
        layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self.rank, self.step = rank, 0
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batch = torch.randn(BATCH, WIDTH)

    def bare(self) -> None:
        self.step += 1
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        loss.item()
        self.optimizer.zero_grad()

    def watched(self) -> None:
        self.step += 1
        with minder.trace_step(self.step, dp_rank=self.rank) as trace:
            with trace.op("forward-compute", mb=0, mc=0):
                loss = self.model(self.batch).square().mean()
            with trace.op("backward-compute", mb=0, mc=0):
                loss.backward()
            self.optimizer.step()
        minder.heartbeat(self.step, loss.item())
        self.optimizer.zero_grad()


def thread_s(name: str) -> float:
    """Processor seconds of the process's threads of that name."""
    found = [thread for thread in threading.enumerate() if thread.name == name and thread.ident is not None]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) for thread in found if thread.ident is not None)


def block(loop: Loop, parked: Parked, kind: str, steps: int) -> dict[str, Any]:
    """Processor seconds of each step, all threads together; which of them were traced; and how long the block took."""
    with contextlib.nullcontext() if kind == MINDER else parked:
        one, first, began_s, cpu_s = loop.watched if kind == MINDER else loop.bare, loop.step + 1, time.monotonic(), []
        for _ in range(steps):
            before_s = time.process_time()
            one()
            cpu_s.append(time.process_time() - before_s)
        traced = [kind == MINDER and is_sampled(step, 0.1) for step in range(first, first + steps)]
        return {"kind": kind, "cpu_s": cpu_s, "traced": traced, "wall_s": time.monotonic() - began_s}


def pairs(loop: Loop, parked: Parked, seconds: float, steps: int) -> Iterator[list[dict[str, Any]]]:
    """Until the first rank says that the time is over. The same order on all ranks."""
    order, end_s = random.Random(1), time.monotonic() + seconds
    while goes_on(end_s):
        kinds = (BARE, MINDER if order.random() < 2 / 3 else AGAIN)
        yield [block(loop, parked, kind, steps) for kind in order.sample(kinds, 2)]


def undisturbed(loop: Loop, seconds: float, steps: int) -> dict[str, Any]:
    """Processor seconds of each thread of minder's while steps with minder follow one another, in so many seconds and steps."""
    began_s, before_s, count = time.monotonic(), {name: thread_s(name) for name in THREADS}, 0
    while goes_on(began_s + seconds):
        for _ in range(steps):
            loop.watched()
        count += steps
    return {"threads_s": {name: thread_s(name) - before_s[name] for name in THREADS}, "wall_s": time.monotonic() - began_s, "steps": count}


def goes_on(end_s: float) -> bool:
    """Whether the first rank says that there is time left."""
    more = torch.tensor([float(time.monotonic() < end_s)])
    dist.broadcast(more, 0)
    return bool(more)


def main(options: argparse.Namespace) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    loop, parked = Loop(rank), Parked()
    for _ in range(WARM_UP):
        loop.watched()
    found = list(pairs(loop, parked, options.seconds * 2 / 3, options.steps))
    result = {"rank": rank, "pairs": found} | undisturbed(loop, options.seconds / 3, options.steps)
    new = options.output / f"new-{rank}"
    new.write_text(json.dumps(result))
    new.rename(options.output / f"rank-{rank}.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    chosen = parser.parse_args()
    minder.run(lambda: main(chosen))
