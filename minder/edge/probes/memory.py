"""How fast memory is copied by all processors at once, and whether the copies are the same; and that of each GPU where torch sees one.

As STREAM's copy: blocks that are larger than the caches, one thread per processor. The copies are compared with the pattern that was
written.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts, cpus
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="memory",
    version=1,
    says="memory bandwidth, and whether what is copied stays the same",
    limit_s=45.0,
    measures={
        "memory_copy": "B/s read and written by all processors together",
        "gpu_memory_copy": "B/s read and written of one GPU, where torch is installed",
    },
    source="STREAM copy (McCalpin)",
)

_BLOCK_BYTES = 32 << 20
_MOST_THREADS = 32
_PATTERN = bytes((number * 167 + 13) & 255 for number in range(4096))
Copy = Callable[[Any, Any, int], Any]


def measure(options: Mapping[str, Any], copy: Copy = ctypes.memmove) -> Finding:
    """options: seconds (1.0), block_bytes. copy: as memmove, which lets other threads run meanwhile."""
    seconds, block_bytes = float(options.get("seconds", 1.0)), int(options.get("block_bytes", _BLOCK_BYTES))
    threads = min(cpus(), _MOST_THREADS)
    needed, free = 2 * threads * block_bytes, psutil.virtual_memory().available
    if needed > free // 2:
        threads = max(1, free // 4 // block_bytes)
    if 2 * threads * block_bytes > free:
        return Finding("not_applicable", f"{free >> 20} MiB of memory are free: the test needs {2 * block_bytes >> 20}")
    rate, wrong = _copy_all(threads, block_bytes, seconds, copy)
    measures = [Measurement("memory_copy", rate, "B/s", "higher")]
    facts = {**cpu_facts(), "threads": str(threads)}
    gpu_measures, gpu_facts, gpu_wrong = _gpus(seconds)
    faults = [f"{wrong} of {threads} blocks of main memory differ from what was written"] if wrong else []
    faults += gpu_wrong
    return Finding("failed" if faults else "measured", "; ".join(faults), (*measures, *gpu_measures), {**facts, **gpu_facts})


def _copy_all(threads: int, block_bytes: int, seconds: float, copy: Copy) -> tuple[float, int]:
    """B/s of all rounds but the first, and how many blocks were not what they should be at the end. It is the mean: a processor that is
    throttled stands still between rounds, and a median of short ones would not see it."""
    blocks = [_Block(block_bytes, copy) for _ in range(threads)]
    took: list[float] = []
    end_s = time.monotonic() + seconds
    while len(took) < 3 or time.monotonic() < end_s:
        workers = [threading.Thread(target=block.turn) for block in blocks]
        begun = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        took.append(time.perf_counter() - begun)
    rate = 2.0 * threads * block_bytes * (len(took) - 1) / sum(took[1:])
    return rate, sum(not block.is_right() for block in blocks)


class _Block:
    """Two halves, each copied to the other in turn."""

    def __init__(self, size: int, copy: Copy) -> None:
        self._size, self._copy = size, copy
        pattern = (_PATTERN * (size // len(_PATTERN) + 1))[:size]
        self._sum = zlib.crc32(pattern)
        self._from, self._to = ctypes.create_string_buffer(pattern, size), ctypes.create_string_buffer(size)

    def turn(self) -> None:
        self._copy(self._to, self._from, self._size)
        self._from, self._to = self._to, self._from

    def is_right(self) -> bool:
        return zlib.crc32(memoryview(self._from)) == self._sum


def _gpus(seconds: float) -> tuple[list[Measurement], dict[str, str], list[str]]:
    """The same for each GPU; nothing without torch, or without one. torch is not loaded where no driver is."""
    import importlib.util
    from pathlib import Path

    if not Path("/dev/nvidiactl").exists() or importlib.util.find_spec("torch") is None:
        return [], {}, []
    import torch

    measures, wrong = [], []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        with torch.cuda.device(index):
            rate, right = _copy_on_gpu(index, seconds)
        measures.append(Measurement("gpu_memory_copy", rate, "B/s", "higher", f"gpu{index}"))
        wrong += [] if right else [f"gpu{index}: a copy in its memory differs"]
    return measures, {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__} if measures else {}, wrong


def _copy_on_gpu(index: int, seconds: float) -> tuple[float, bool]:
    import torch

    free = torch.cuda.mem_get_info(index)[0]
    source = torch.arange(min(1 << 30, free // 4) // 8, dtype=torch.int64, device=f"cuda:{index}")
    target, rates, end_s = torch.empty_like(source), list[float](), time.monotonic() + seconds
    while len(rates) < 3 or time.monotonic() < end_s:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        rates.append(2.0 * source.nbytes / (time.perf_counter() - begun))
    return statistics.median(rates[1:]), bool(torch.equal(source, target))


if __name__ == "__main__":
    run(PROBE, measure)
