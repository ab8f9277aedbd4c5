"""What checkpoints in memory cost: how long a step waits for its save, processor time, and how long a gigabyte takes to come back.

    python bench/cache.py [--parts wait restore] [--steps 12] [--step-seconds 1 5 20]
    python bench/cache.py --parts wait --alike --cases 4x50
    python bench/cache.py --faults [--seeds 5]

wait: ranks with a real cache each (two machines of a job on this one), state of 10 and 100 MB a rank on 6 ranks and of 1 GB on 2. A step
is a forward and backward that sleep, then the optimiser's step; its wait is what `save` and the optimiser's hook take. A save that was
left out since two before it were in flight is counted apart, and is no part of the waits. Beside it, in the same job,
torch.distributed.checkpoint into a shared folder at every step, asynchronously and not. The mean wait is taken apart: computing, waiting
for a processor that is free, and the rest, which is for earlier saves and for others' answers. restore: `load_latest` of a new process, a
model and its optimiser's momentum of 1 GiB together, from its own memory, a peer's, a local disk and a peer's disk. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from minder import Checkpointer
from minder.edge.cache.client import SOCKET_VARIABLE, CacheClient
from minder.edge.checkpoint.memory_tier import MemoryTier

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
        run = partial(_save_steps, (ranks, size_bytes), caches, Path(folder), (options.steps, step_s), way)
        seen = _run_all([partial(run, rank) for rank in range(ranks)], Path(folder))
        cache_cpu_s = caches.cpu_s() - started_cpu_s
        most_bytes = max(each["held_bytes"] for each in seen)
    waits_s = sorted(wait for each in seen for wait in each["waits_s"][_SKIPPED:] if wait is not None)
    left_out = sum(each["waits_s"].count(None) for each in seen)
    parts_s = {part: sum(each["parts_s"][part] for each in seen) for part in seen[0]["parts_s"]}
    gigabytes = size_bytes * (ranks * options.steps - left_out) / 1e9
    return {
        "ranks": ranks, "mb_a_rank": size_bytes / 1e6, "way": way, "step_s": step_s, "saves": ranks * options.steps - left_out,
        "left_out": left_out, "errors": sorted({each["error"] for each in seen} - {""}),
        "wait_median_ms": _ms(statistics.median(waits_s)) if waits_s else None,
        "wait_p99_ms": _ms(waits_s[int(0.99 * (len(waits_s) - 1))]) if waits_s else None,
        "wait_mean_ms": {part: _ms(seconds / len(waits_s)) if waits_s else None for part, seconds in parts_s.items()},
        "cpu_s_per_gb_ranks": round(sum(each["cpu_s"] for each in seen) / gigabytes, 3),
        "cpu_s_per_gb_caches": round(cache_cpu_s / gigabytes, 3), "most_mb_in_a_cache": round(most_bytes / 1e6),
    }  # fmt: skip


def _save_steps(case: tuple[int, int], caches: Caches, folder: Path, pace: tuple[int, float], way: str, rank: int) -> dict[str, Any]:
    """One rank's part. case: how many ranks, and the bytes of each."""
    own = caches.folder(0 if way in ALIKE else rank)
    os.environ[SOCKET_VARIABLE] = str(own / "socket")
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=case[0])
    return _train(0 if way in ALIKE else rank, case[1], pace, _saver(way, folder), own)


def _run_all(works: list[Callable[[], dict[str, Any]]], folder: Path) -> list[dict[str, Any]]:
    """What each returns, in a process of its own."""
    children = [_fork(work, folder / f"{rank}.json") for rank, work in enumerate(works)]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit("a rank failed: see above")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(works))]


def _fork(work: Callable[[], dict[str, Any]], into: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        into.write_text(json.dumps(work()))
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
    """pace: how many steps, and the seconds of one; own: the folder of its cache. A wait is None where the save was left out."""
    steps, step_s = pace
    model, optimizer = _sgd(rank, size_bytes)
    optimizer.step()
    waits_s, cpu_s, held_bytes = [], 0.0, 0
    parts_s = {"computing": 0.0, "in the queue for a processor": 0.0, "all": 0.0}
    for step in range(1, steps + 1):
        dist.barrier()
        before_s = _cpu_s()
        watch = _Watch()
        is_saved = checkpoints.save(step, {"model": model, "optimizer": optimizer})
        watch.stop()
        time.sleep(step_s)  # forward and backward
        watch.go_on()
        for hook in optimizer._optimizer_step_pre_hooks.values():
            hook(optimizer, (), {})
        watch.stop()
        waits_s.append(watch.seconds["all"] if is_saved else None)
        if is_saved and step > _SKIPPED:
            parts_s = {part: seconds + watch.seconds[part] for part, seconds in parts_s.items()}
        cpu_s += _cpu_s() - before_s
        optimizer.step()
        held_bytes = max(held_bytes, _held_bytes(own))
    return {"waits_s": waits_s, "parts_s": parts_s, "cpu_s": cpu_s, "error": checkpoints.wait(), "held_bytes": held_bytes}


class _Watch:
    """What the calling thread's time goes to, from its start to `stop`, and again from `go_on` on."""

    def __init__(self) -> None:
        self.seconds = {"all": 0.0, "computing": 0.0, "in the queue for a processor": 0.0}
        self.go_on()

    def go_on(self) -> None:
        self._begin = self._now()

    def stop(self) -> None:
        for part, now_s, begin_s in zip(self.seconds, self._now(), self._begin, strict=True):
            self.seconds[part] += now_s - begin_s

    def _now(self) -> tuple[float, float, float]:
        queued_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
        return time.perf_counter(), time.thread_time(), queued_ns / 1e9


def _held_bytes(folder: Path) -> int:
    sizes = {}
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def measure_restore(options: argparse.Namespace) -> dict[str, Any]:
    """Two machines of one rank each; the first rank's shard is 1 GiB, the other's small. Saved once, and loaded by new processes from one
    place after the other: what was nearer is lost before each."""
    found: dict[str, Any] = {}
    disks = [Path(tempfile.mkdtemp(prefix="minder-bench-", dir=options.disk)) for _ in range(2)]
    try:
        with Caches(2, "5G") as caches:
            places = list(zip(range(2), disks, strict=True))  # of each rank: its machine's cache and disk
            _run_pair(places, caches, _save)
            _await_flushed(disks[0])
            for source in ("own memory", "peer memory", "local disk", "a peer's disk"):
                lost = {"own memory": [], "peer memory": [0]}.get(source, [0, 1])
                for index in lost:
                    caches.lose(index)
                for disk in disks:
                    _leave_to_the_disk(disk)
                before_s = caches.cpu_s()
                rank = _run_pair(places[::-1] if source == "a peer's disk" else places, caches, _load)
                found[source] = {**rank, "cpu_s_caches": round(caches.cpu_s() - before_s, 2)}
    finally:
        for disk in disks:
            shutil.rmtree(disk)
    return {"bytes": _GIB, "sources": found}


def _run_pair(places: list[tuple[int, Path]], caches: Caches, work: Callable[[int, Checkpointer], dict[str, Any]]) -> dict[str, Any]:
    """What `work` returns in the first rank's process."""
    with tempfile.TemporaryDirectory() as folder:

        def run(rank: int) -> dict[str, Any]:
            index, disk = places[rank]
            os.environ[SOCKET_VARIABLE] = str(caches.folder(index) / "socket")
            dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=len(places))
            checkpoints = Checkpointer("memory", flush_dir=disk, flush_every=1)
            found = work(rank, checkpoints)
            error = checkpoints.wait()
            dist.barrier()
            return found if error is None else {"error": str(error)}

        return _run_all([partial(run, rank) for rank in range(len(places))], Path(folder))[0]


def _save(rank: int, checkpoints: Checkpointer) -> dict[str, Any]:
    model, optimizer = _sgd(rank, 2**20 if rank else _GIB)
    optimizer.step()
    checkpoints.save(1, {"model": model, "optimizer": optimizer})
    return {}


def _load(rank: int, checkpoints: Checkpointer) -> dict[str, Any]:
    """As a script does it: into a model that was just made, and an optimiser that has not stepped yet."""
    model, optimizer = _sgd(rank, 2**20 if rank else _GIB)
    optimizer.zero_grad()
    for parameter in model:
        parameter.detach().fill_(-1.0)
    dist.barrier()
    before_s, begin_s = _cpu_s(), time.perf_counter()
    step = checkpoints.load_latest({"model": model, "optimizer": optimizer})
    seconds = time.perf_counter() - begin_s
    is_back = step == 1 and all(bool((parameter == rank - 0.01).all()) for parameter in model)
    return {"seconds": round(seconds, 2), "cpu_s_rank": round(_cpu_s() - before_s, 2), "is_back": is_back}


def _sgd(rank: int, size_bytes: int) -> tuple[torch.nn.ParameterList, torch.optim.SGD]:
    """Weights and one moment of the same size, with gradients of 1: each rank has its own values, so that every byte is sent."""
    parameters = [torch.nn.Parameter(torch.full((size_bytes // 80,), float(rank))) for _ in range(10)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return torch.nn.ParameterList(parameters), torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _await_flushed(disk: Path) -> None:
    while not list(disk.glob("*.head")):
        time.sleep(0.1)


def _leave_to_the_disk(disk: Path) -> None:
    """What is read next comes from the disk, not from memory that the kernel keeps for it."""
    for path in disk.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
