"""What goes wrong inside a training script of bench/matrix.py, and the steps that the script has taken.

MATRIX_PLAN names a JSON file: a list of {what, step, rank?, machine?, times, kernel_log?}. A trouble of a rank comes at exactly its step
(the data or the code at that step), one of a machine at its step or later (the machine is bad). times: how often in the life of the job,
0 for always. Beside the file, in memory: a trace of steps per process and a marker per trouble that came. The trace is a mapped page and
no system call, so that a job which stands shows no trace of ours.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_HEADER = struct.Struct("<iiq")  # rank, records, start ticks of the process
_RECORD = struct.Struct("<id")  # step, unix time
_PAGE_BYTES = 1 << 16


class Trace:
    """The steps of one process: header and records in `<folder>/<machine>.<pid>.trace`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._rank, self._count = rank, 0
        self._ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        path = folder / f"{os.environ['MINDER_MACHINE']}.{os.getpid()}.trace"
        with path.open("w+b") as file:
            file.truncate(_PAGE_BYTES)
            self._page = mmap.mmap(file.fileno(), _PAGE_BYTES)
        self._note()

    def add(self, step: int) -> None:
        place = _HEADER.size + self._count * _RECORD.size
        if place + _RECORD.size <= _PAGE_BYTES:
            _RECORD.pack_into(self._page, place, step, time.time())
            self._count += 1
            self._note()

    def last_step(self) -> int:
        """From the page: a forked worker sees what its parent has written since."""
        count = int(_HEADER.unpack_from(self._page)[1])
        return int(_RECORD.unpack_from(self._page, _HEADER.size + (count - 1) * _RECORD.size)[0]) if count else 0

    def _note(self) -> None:
        _HEADER.pack_into(self._page, 0, self._rank, self._count, self._ticks)


class Trouble:
    """Made by every rank once the process group stands, before data-loader workers are forked (they see the same trace)."""

    def __init__(self) -> None:
        self.rank = dist.get_rank() if dist.is_initialized() else int(os.environ["RANK"])
        plan = Path(os.environ["MATRIX_PLAN"])
        self._folder = plan.parent
        self._machine = os.environ["MINDER_MACHINE"]
        self._plan: list[dict[str, Any]] = json.loads(plan.read_text())
        self._trace = Trace(self._folder, self.rank)
        self._groups: dict[str, Any] = {}

    def begin(self, step: int) -> None:
        """Called before each step, counted from 1."""
        self._make_groups()
        for number, trouble in enumerate(self._plan):
            act = _ACTS.get(trouble["what"])
            if act is not None and self._comes(number, trouble, step):
                act(self, trouble)

    def done(self, step: int) -> None:
        """Called after each step."""
        self._trace.add(step)

    def batch(self, step: int, values: torch.Tensor) -> torch.Tensor:
        """The batch of this step, or what a corrupt shard makes of it."""
        corrupt = any(t["what"] == "nan" and self._comes(number, t, step) for number, t in enumerate(self._plan))
        return values * float("nan") if corrupt else values

    def loaded(self) -> None:
        """Called for each item, in a worker process of the data loader."""
        for number, trouble in enumerate(self._plan):
            step = self._trace.last_step() + 1
            if trouble["what"] == "loader" and step >= trouble["step"] and self._comes(number, {**trouble, "step": step}, step):
                read_shard(self._folder)

    def _comes(self, number: int, trouble: dict[str, Any], step: int) -> bool:
        bad_machine = trouble.get("machine") is not None
        mine = self._machine == trouble["machine"] if bad_machine else self.rank == trouble["rank"]
        if not mine or (step < trouble["step"] if bad_machine else step != trouble["step"]):
            return False
        before = len(list(self._folder.glob(f"trouble-{number}-*")))
        if trouble["times"] and before >= trouble["times"]:
            return False
        coming = {"what": trouble["what"], "rank": self.rank, "machine": self._machine, "step": step, "pid": os.getpid()}
        coming["time_s"] = time.time()
        draft = self._folder / f"draft-{os.getpid()}"
        draft.write_text(json.dumps(coming))
        draft.rename(self._folder / f"trouble-{number}-{before}")
        return True

    def _make_groups(self) -> None:
        """A group of some ranks, as programs with parallelism have; every rank takes part in making it."""
        wanted = [trouble for trouble in self._plan if trouble["what"] == "other-group"]
        if wanted and not self._groups:
            rank = wanted[0]["rank"]
            self._groups["pair"] = dist.new_group([rank, (rank + 1) % dist.get_world_size()])

    def reduce_twice(self) -> None:
        dist.all_reduce(torch.ones(1))

    def reduce_in_pair(self) -> None:
        dist.all_reduce(torch.ones(1), group=self._groups["pair"])


def read_shard(folder: Path) -> bytes:
    """A read that never returns: no one writes into this pipe."""
    pipe = folder / "shard"
    if not pipe.exists():
        os.mkfifo(pipe)
    return pipe.read_bytes()


def poll_device() -> None:
    """What a library does that waits for a device: it asks again and again, and the processor is busy."""
    answered = torch.zeros(1)
    while not answered.item():
        pass


def tokenize(text: str) -> int:
    if not text.isascii():
        raise ValueError(f"cannot decode sample {text!r}")
    return len(text)


def synchronize() -> None:
    raise RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported at some other call.")


def _log_as_the_kernel(pipe: str) -> None:
    """One record of the kernel's log, as /dev/kmsg gives it."""
    micros = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    with open(pipe, "wb", buffering=0) as file:
        file.write(f"2,4711,{micros},-;{line}\n".encode())


def _launch_failure(trouble: Trouble, plan: dict[str, Any]) -> None:
    if plan.get("kernel_log"):
        _log_as_the_kernel(plan["kernel_log"])
    synchronize()


_ACTS: dict[str, Any] = {
    "exit": lambda trouble, plan: sys.exit(3),
    "exception": lambda trouble, plan: tokenize("\N{REPLACEMENT CHARACTER} 0x8f"),
    "extra-all-reduce": lambda trouble, plan: trouble.reduce_twice(),
    "other-group": lambda trouble, plan: trouble.reduce_in_pair(),
    "busy-poll": lambda trouble, plan: poll_device(),
    "text": _launch_failure,
}
