"""A small training job that gets stuck in one way, once: `stuck.py --output DIR --stuck KIND@STEP:RANKS`, run by bench/stuck.py.

DDP over gloo, its batches from a data loader with a worker process, a checkpoint every ten steps. Each kind is a function below; what
it does is real: a stopped process, a lock that is never freed, a system call that does not return.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import io
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import minder

STEP_S = 0.25
FOR_EVER_S = 3600.0
SLOW_S = 2.0  # by which the rank's code takes longer in every step
STOPS = ("sigstop", "pipeline")
FIFREEZE = 0xC0045877  # <linux/fs.h>


class Batches(Dataset[torch.Tensor]):
    """Endless in effect. `locks_at`: the worker process that loads this item waits for a lock that is never freed."""

    def __init__(self, locks_at: int | None) -> None:
        self._locks_at = locks_at

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self._locks_at:
            lock = threading.Lock()
            with lock:
                lock.acquire()
        return torch.randn(64)


class SlowFile(io.BytesIO):
    """A store that takes 20 s for a small checkpoint."""

    def write(self, data: Any) -> int:
        time.sleep(max(0.0, 20.0 - self.tell()))
        return super().write(data)


class Trouble:
    """What this rank does at which step, once in the life of the job."""

    def __init__(self, order: str, output: Path, rank: int, disk: Path = Path("disk")) -> None:
        self.kind, _, place = order.partition("@")
        step, _, who = place.partition(":")
        self.step, self.output, self.rank, self.disk = int(step or -1), output, rank, disk
        self.mine = who == "" or str(rank) in who.split(",")
        self.slow = False  # from some step on for as long as this process lives

    @property
    def marker(self) -> Path:
        return self.output / "stuck"

    def comes(self, step: int, *kinds: str) -> bool:
        """Whether it begins now; the marker's time is the fault's."""
        if self.kind not in kinds or step != self.step or not self.mine:
            return False
        try:
            (self.output / f"stuck-{self.rank}").touch(exist_ok=False)
        except FileExistsError:
            return False
        self.marker.touch()
        return True


def stop_inside_the_collective(trouble: Trouble) -> None:
    """SIGSTOP from a thread while the main thread is on its way through a large all-reduce."""
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGSTOP)).start()


def wait_for_the_disk(folder: Path) -> None:
    """State D, for real: posix_spawn waits uninterruptibly for a child that hangs in the open of a pipe that has no writer."""
    pipe = folder / "pipe"
    with contextlib.suppress(FileExistsError):
        os.mkfifo(pipe)
    library = ctypes.CDLL(None)
    actions = ctypes.create_string_buffer(512)
    library.posix_spawn_file_actions_init(actions)
    library.posix_spawn_file_actions_addopen(actions, 0, str(pipe).encode(), os.O_RDONLY, 0)
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    library.posix_spawn(ctypes.byref(ctypes.c_int()), b"/bin/true", actions, None, arguments, None)


def write_to_a_frozen_disk(disk: Path) -> None:
    """State D that not even SIGKILL ends: the file system takes no writes any more (as where its device has stopped answering)."""
    folder = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(folder, FIFREEZE, 0)
    (disk / "checkpoint").write_bytes(b"0")


class Neighbours:
    """Ranks 1 and 2 talk over a socket of their own in every step, outside any collective library."""

    def __init__(self, rank: int, folder: Path) -> None:
        self._socket: socket.socket | None = None
        address = os.environ.get("LAB_DATA_ADDRESS", "127.0.0.1")
        place = folder / f"port-{os.environ.get('MINDER_GENERATION', '0')}"
        if rank == 1:
            listener = socket.create_server((address, 0))
            place.with_suffix(".new").write_text(f"{address} {listener.getsockname()[1]}")
            place.with_suffix(".new").rename(place)
            self._socket, _ = listener.accept()
        if rank == 2:
            while not place.exists():
                time.sleep(0.05)
            host, port = place.read_text().split()
            self._socket = socket.create_connection((host, int(port)))

    def exchange(self) -> None:
        if self._socket is not None:
            self._socket.sendall(b"x" * 1000)
            left = 1000
            while left:
                left -= len(self._socket.recv(left))


def count_tokens(seconds: float) -> None:
    """Code of the script's own that waits for something, as a service or a file far away: nothing in it is a processor's work."""
    time.sleep(seconds)


def before_the_collective(trouble: Trouble, step: int, values: torch.Tensor) -> None:
    trouble.slow |= trouble.comes(step, "slow-python")
    if trouble.slow and trouble.kind == "slow-python":
        count_tokens(SLOW_S)
    if trouble.comes(step, "sleep", "socket"):
        time.sleep(FOR_EVER_S)
    if trouble.comes(step, "disk"):
        wait_for_the_disk(trouble.output)
    if trouble.comes(step, "frozen-disk"):
        write_to_a_frozen_disk(trouble.disk)
    if trouble.comes(step, "other-collective"):
        dist.broadcast(values, src=trouble.rank)
    if trouble.comes(step, "wrong-shape"):
        dist.all_reduce(torch.ones(7))
    if trouble.comes(step, "fewer-steps"):
        dist.barrier()  # its data ended one step early: it goes to the evaluation


def wait_for_slow_data(trouble: Trouble, step: int) -> None:
    """Storage that all ranks share: each step another rank is last."""
    trouble.slow |= trouble.comes(step, "slow-data")
    if trouble.slow and trouble.kind == "slow-data":
        time.sleep(random.uniform(0.5, 2.5))


def pause(trouble: Trouble, step: int) -> None:
    """Quiet phases: what every rank, or rank 0, does now and then."""
    if trouble.comes(step, "compile", "evaluation"):
        with minder.phase(trouble.kind):
            time.sleep(20.0)
    if trouble.comes(step, "checkpoint"):
        with minder.phase("checkpoint"):
            time.sleep(20.0 if trouble.rank == 0 else 0.0)
            dist.barrier()
    if trouble.comes(step, "undeclared"):
        torch.save(torch.ones(4), SlowFile())
    if trouble.comes(step, "debugger"):
        os.kill(os.getpid(), signal.SIGSTOP)  # every rank; bench/stuck.py lets them go on


def main(options: argparse.Namespace) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    trouble = Trouble(options.stuck, options.output, rank, options.disk)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    neighbours = Neighbours(rank, options.output) if trouble.kind == "socket" else None
    locks = trouble.kind == "loader" and trouble.mine and not (options.output / f"stuck-{rank}").exists()
    batches = batches_of(Batches(8 * trouble.step if locks else None))
    large = torch.ones(16 << 20) if trouble.kind in STOPS else torch.ones(1)
    for step in range(1, options.steps + 1):
        began_s = time.monotonic()
        pause(trouble, step)
        if locks and step == trouble.step:
            trouble.comes(step, "loader")
        wait_for_slow_data(trouble, step)
        batch = next(batches)
        if neighbours is not None and step != trouble.step:
            neighbours.exchange()
        elif neighbours is not None:
            before_the_collective(trouble, step, large)
            neighbours.exchange()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reduced = loss.detach().clone()
        if trouble.kind != "socket":
            before_the_collective(trouble, step, reduced)
        dist.all_reduce(reduced)
        if trouble.kind in STOPS and step == trouble.step:
            if trouble.comes(step, *STOPS):
                stop_inside_the_collective(trouble)
            dist.all_reduce(large)
        minder.heartbeat(step, float(reduced))
        if rank == 0 and step % 10 == 0:
            torch.save(model.state_dict(), options.output / "model.pt")
        time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))
    dist.destroy_process_group()


def batches_of(data: Batches) -> Iterator[torch.Tensor]:
    """Batches of eight, loaded in order by a process of its own."""
    return iter(DataLoader(data, batch_size=8, num_workers=1, shuffle=False, multiprocessing_context="fork"))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--stuck", default="", help="KIND@STEP:RANK,RANK; without ranks every rank")
    parser.add_argument("--disk", type=Path, default=Path("disk"), help="mounted: a file system that a rank freezes")
    parser.add_argument("--steps", type=int, default=100_000)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = parse(sys.argv[1:])
    run: Callable[[Callable[[], object]], object] = minder.run
    run(lambda: main(chosen))
