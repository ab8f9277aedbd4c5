"""What checkpoints in memory cost: how long a step waits for its save, processor time, and how long a gigabyte takes to come back.

    python bench/cache.py [--parts wait restore] [--steps 12] [--step-seconds 1 5 20]
    python bench/cache.py --parts wait --alike --cases 4x50
    python bench/cache.py --faults [--seeds 5]

wait: ranks with a real cache each (two machines of a job on this one), state of 10 and 100 MB a rank on 6 ranks and of 1 GB on 2. A step
is a forward and backward that sleep, then the optimiser's step; its wait is what `save` and the optimiser's hook take. A save that was
left out since two before it were in flight is counted apart, and is no part of the waits. Beside it, in the same job,
torch.distributed.checkpoint into a shared folder at every step, asynchronously and not. restore: 1 GiB of one rank from its own memory,
from a peer's, from a local disk and from a store (a folder that a peer's cache has on its disk). Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from minder import Checkpointer
from minder.edge.cache.client import SOCKET_VARIABLE, CacheClient
from minder.edge.cache.folder import read_record
from minder.edge.cache.members import Member
from minder.edge.cache.record import Record, RecordName, body_path, checksums, draft_path, write_head, wrong_chunk
from minder.edge.checkpoint.memory_tier import MemoryTier
from minder.edge.checkpoint.shards import copy_all, idle_cores

_SKIPPED = 2  # first steps: buffers are made
_GIB = 2**30
WAYS = ("memory", "memory at once", "dcp async", "dcp")
ALIKE = ("once a machine", "each its own")  # --alike: replicas on one machine


class Caches:
    """One cache process for each rank, in named memory. A context manager."""

    def __init__(self, count: int, max_bytes: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="minder-bench-", dir="/dev/shm"))
        self._max_bytes, self._count = max_bytes, count
        self._processes: list[subprocess.Popen[str]] = []
        self._evicted: dict[int, list[subprocess.Popen[str]]] = {}
        self.urls: list[str] = []

    def __enter__(self) -> Caches:
        for index in range(self._count):
            self.start(index)
        return self

    def start(self, index: int) -> None:
        """Also again, after `kill` or `lose`."""
        command = [sys.executable, "-m", "minder", "cache", "--job", "bench", "--machine", self.folder(index).name]
        command += ["--max-bytes", self._max_bytes]
        process = subprocess.Popen(
            [*command, "--folder", str(self.folder(index))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        self._processes[index:] = [process, *self._processes[index + 1 :]]
        self.urls[index:] = [process.stdout.readline().split(" at ")[1].split(",")[0], *self.urls[index + 1 :]]

    def kill(self, index: int) -> None:
        """SIGKILL; its records stay."""
        self._processes[index].kill()
        self._processes[index].wait()

    def lose(self, index: int) -> None:
        """The machine goes with its memory, and another takes its place."""
        self.kill(index)
        shutil.rmtree(self.folder(index))
        self.start(index)

    def evict(self, index: int) -> None:
        """Another machine takes its place; its own cache goes on."""
        self._evicted.setdefault(index, []).append(self._processes[index])
        self.start(index)

    def __exit__(self, *unused: object) -> None:
        for process in [*self._processes, *(process for each in self._evicted.values() for process in each)]:
            process.terminate()
            process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def folder(self, index: int) -> Path:
        return self.root / ("s" * len(self._evicted.get(index, ())) + f"m{index}")

    def client(self, index: int) -> CacheClient:
        return CacheClient(self.folder(index) / "socket")

    def cpu_s(self) -> float:
        """Of all cache processes so far."""
        fields = [Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split() for process in self._processes]
        return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def measure_wait(ranks: int, size_bytes: int, options: argparse.Namespace, way: str, step_s: float) -> dict[str, Any]:
    room = f"{5 * size_bytes * (ranks if way in ALIKE else 1) + 2**26}"
    with Caches(1 if way in ALIKE else ranks, room) as caches, tempfile.TemporaryDirectory() as folder:
        started_cpu_s = caches.cpu_s()
        children = [_fork(rank, ranks, size_bytes, caches, Path(folder), (options.steps, step_s), way) for rank in range(ranks)]
        if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
            raise SystemExit("a rank failed: see above")
        seen = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]
        cache_cpu_s = caches.cpu_s() - started_cpu_s
        most_bytes = max(each["held_bytes"] for each in seen)
    waits_s = sorted(wait for each in seen for wait in each["waits_s"][_SKIPPED:] if wait is not None)
    left_out = sum(each["waits_s"].count(None) for each in seen)
    gigabytes = size_bytes * (ranks * options.steps - left_out) / 1e9
    return {
        "ranks": ranks, "mb_a_rank": size_bytes / 1e6, "way": way, "step_s": step_s, "saves": ranks * options.steps - left_out,
        "left_out": left_out, "errors": sorted({each["error"] for each in seen} - {""}),
        "wait_median_ms": _ms(statistics.median(waits_s)) if waits_s else None,
        "wait_p99_ms": _ms(waits_s[int(0.99 * (len(waits_s) - 1))]) if waits_s else None,
        "cpu_s_per_gb_ranks": round(sum(each["cpu_s"] for each in seen) / gigabytes, 3),
        "cpu_s_per_gb_caches": round(cache_cpu_s / gigabytes, 3), "most_mb_in_a_cache": round(most_bytes / 1e6),
    }  # fmt: skip


def _fork(rank: int, ranks: int, size_bytes: int, caches: Caches, folder: Path, pace: tuple[int, float], way: str) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        own = caches.folder(0 if way in ALIKE else rank)
        os.environ[SOCKET_VARIABLE] = str(own / "socket")
        dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks)
        (folder / f"{rank}.json").write_text(json.dumps(_train(0 if way in ALIKE else rank, size_bytes, pace, _saver(way, folder), own)))
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


class _Memory:
    """Checkpointer("memory"), with or without the overlap of copy and forward, and of replicas' state once."""

    def __init__(self, overlap: bool, once_per: str | None = "machine") -> None:
        self._checkpoints = Checkpointer("memory", overlap=overlap, once_per=once_per)

    def save(self, step: int, state: dict[str, Any]) -> bool:
        """False where it was left out."""
        self._checkpoints.save(step, state)
        tier = self._checkpoints._tier
        return not (isinstance(tier, MemoryTier) and tier._left_out)

    def wait(self) -> str:
        error = self._checkpoints.wait()
        return "" if error is None else str(error)


class _Dcp:
    """torch.distributed.checkpoint into a folder that all ranks share, at every step; asynchronously: a save waits for the one before. In
    a group of its own: the thread that saves and the loop would take each other's messages."""

    def __init__(self, folder: Path, is_async: bool) -> None:
        self._folder, self._is_async, self._future, self._group = folder, is_async, None, dist.new_group(backend="gloo")

    def save(self, step: int, state: dict[str, Any]) -> bool:
        plain = {name: value.state_dict() for name, value in state.items()}
        path = self._folder / f"dcp-{step % 2}"  # the one before the last is written over
        if not self._is_async:
            dcp.save(plain, checkpoint_id=path, process_group=self._group)
            return True
        self.wait()
        self._future = dcp.async_save(plain, checkpoint_id=path, process_group=self._group)
        return True

    def wait(self) -> str:
        if self._future is not None:
            self._future.result()
        return ""


def _saver(way: str, folder: Path) -> Any:
    if way.startswith("dcp"):
        return _Dcp(folder, way == "dcp async")
    return _Memory(way != "memory at once", None if way == "each its own" else "machine")


def _train(rank: int, size_bytes: int, pace: tuple[int, float], checkpoints: Any, own: Path) -> dict[str, Any]:
    """Weights and one moment of the same size: SGD with momentum; each rank has its own values, so that every byte is sent. pace: how many
    steps, and the seconds of one; own: the folder of its cache. A wait is None where the save was left out."""
    steps, step_s = pace
    parameters = [torch.nn.Parameter(torch.full((size_bytes // 80,), float(rank))) for _ in range(10)]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    model = torch.nn.ParameterList(parameters)
    waits_s, cpu_s, held_bytes = [], 0.0, 0
    for step in range(1, steps + 1):
        dist.barrier()
        before_s = _cpu_s()
        begin_s = time.perf_counter()
        is_saved = checkpoints.save(step, {"model": model, "optimizer": optimizer})
        saved_s = time.perf_counter()
        time.sleep(step_s)  # forward and backward
        gate_s = time.perf_counter()
        for hook in optimizer._optimizer_step_pre_hooks.values():
            hook(optimizer, (), {})
        waits_s.append(saved_s - begin_s + time.perf_counter() - gate_s if is_saved else None)
        cpu_s += _cpu_s() - before_s
        optimizer.step()
        held_bytes = max(held_bytes, _held_bytes(own))
    return {"waits_s": waits_s, "cpu_s": cpu_s, "error": checkpoints.wait(), "held_bytes": held_bytes}


def _held_bytes(folder: Path) -> int:
    sizes = {}
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def measure_restore(options: argparse.Namespace) -> dict[str, Any]:
    disk = Path(tempfile.mkdtemp(prefix="minder-bench-", dir=options.disk))
    store = Path(tempfile.mkdtemp(prefix="minder-bench-", dir=options.disk))
    name, found = RecordName(1, 1, 0), {}
    try:
        with Caches(2, "3G") as caches:
            caches.client(0).join(Member(0, 1, 2, caches.urls[1], "bench"))
            caches.client(1).join(Member(1, 1, 2, caches.urls[0], "bench", flush_dir=str(store)))
            _write(caches.folder(0), name)
            found["own memory"] = _timed(lambda: _load(caches.folder(0), name, is_checked=False))
            if why := caches.client(0).keep(name, 300.0):
                raise SystemExit(why)
            _forget(caches, 0, name)
            before_s = caches.cpu_s()
            found["peer memory"] = _timed(lambda: _fetch(caches, name))
            found["peer memory, processor time of both caches"] = round(caches.cpu_s() - before_s, 2)
            for folder in (disk, store):
                _move(caches.folder(0), folder, name)
            found["local disk"] = _timed(lambda: _load(disk, name, is_checked=False))
            _forget(caches, 0, name)
            _forget(caches, 1, name)
            os.sync()
            found["shared store, by a peer"] = _timed(lambda: _fetch(caches, name))
    finally:
        shutil.rmtree(disk)
        shutil.rmtree(store)
    return {"bytes": _GIB, "seconds": found}


def _write(folder: Path, name: RecordName) -> None:
    piece = os.urandom(2**20) * 64
    with draft_path(folder, name).open("wb") as file:
        for _ in range(_GIB // len(piece)):
            file.write(piece)
    body = draft_path(folder, name).read_bytes()
    draft_path(folder, name).rename(body_path(folder, name))
    write_head(folder, Record(name, 2, _GIB, "bench", checksums(memoryview(body)), b""))


def _fetch(caches: Caches, name: RecordName) -> None:
    _load(caches.client(0).fetch(name, caches.urls[1], 300.0), name, is_checked=True)


def _load(folder: Path, name: RecordName, is_checked: bool) -> None:
    """As a rank does it: every checksum where its cache has not just fetched and checked the record, and a copy into tensors, of which
    none has been touched before."""
    record = read_record(folder, name)
    with body_path(folder, name).open("rb") as file:
        body = mmap.mmap(file.fileno(), record.body_bytes, mmap.MAP_PRIVATE)
    if not is_checked and wrong_chunk(memoryview(body), record, idle_cores()) is not None:
        raise SystemExit(f"{folder}: damaged")
    copy_all([(torch.frombuffer(body, dtype=torch.uint8), torch.empty(_GIB, dtype=torch.uint8))])


def _forget(caches: Caches, index: int, name: RecordName) -> None:
    for path in caches.folder(index).glob(f"{name}.*"):
        path.unlink()
    caches.client(index).hello()


def _move(source: Path, target: Path, name: RecordName) -> None:
    for suffix in ("body", "head"):
        shutil.copyfile(source / f"{name}.{suffix}", target / f"{name}.{suffix}")
        with (target / f"{name}.{suffix}").open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # from the disk, not from its cache


def _timed(work: Any) -> float:
    begin_s = time.perf_counter()
    work()
    return round(time.perf_counter() - begin_s, 2)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of checkpoints in memory.")
    parser.add_argument("--parts", nargs="+", choices=("wait", "restore"), default=["wait", "restore"])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--step-seconds", type=float, nargs="+", default=[1.0], help="of a step; several: a curve")
    parser.add_argument("--cases", nargs="+", default=["6x10", "6x100", "2x1000"], help="RANKSxMEGABYTES")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="what saves, in the same job and run")
    parser.add_argument("--alike", action="store_true", help="all ranks are replicas on one machine: their state kept once, and by each")
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--faults", nargs="*", metavar="FAULT", help="what the state survives: see cache_faults.py")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("bench-out/cache-faults"))
    options = parser.parse_args()
    if options.faults is not None:
        import cache_faults

        sys.exit(cache_faults.main(options))
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    if "wait" in options.parts:
        cases = [tuple(map(int, case.split("x"))) for case in options.cases]
        ways = ALIKE if options.alike else options.ways
        result["wait"] = [
            measure_wait(ranks, megabytes * 10**6, options, way, step_s)
            for ranks, megabytes in cases for step_s in options.step_seconds for way in ways
        ]  # fmt: skip
    if "restore" in options.parts:
        result["restore"] = measure_restore(options)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
