"""What minder costs a training loop on one GPU: a save in memory at every step, the gradient guard, traced steps, heartbeats.

Blocks of steps with and without alternate; medians are compared. A step is a chain of matrix products, and an optimiser's step over the
state.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"100 MB": 100e6, "1 GB": 1e9, "4 GB": 4e9}
STEP_S = 0.5


class Loop:
    """state_bytes: of parameters and AdamW's two moments, in single precision. step_s: about how long a step takes on this device."""

    def __init__(self, state_bytes: float, device: str, step_s: float) -> None:
        import torch

        self.torch, self.device = torch, device
        layers, width = 24, max(8, int((state_bytes / 12 / 24) ** 0.5))
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers))).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.inputs = torch.randn(256, width, device=device)
        size = 8192 if device == "cuda" else 256
        self.factor = torch.randn(size, size, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
        self.rounds = 1
        self.step()
        self.synchronize()
        for _ in range(2):
            began_s = time.perf_counter()
            self._work(20)
            self.synchronize()
            once_s = (time.perf_counter() - began_s) / 20
        self.rounds = max(1, int(step_s / 2 / once_s))

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def step(self, before_backward: Callable[[], object] = lambda: None, hook: Callable[[], object] = lambda: None) -> float:
        """One step to its end on the device: half of the work in the forward, half in the backward. Its loss."""
        self._work(self.rounds)
        loss = self.model(self.inputs).square().mean()
        before_backward()
        self._work(self.rounds)
        loss.backward()
        hook()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _work(self, rounds: int) -> None:
        for _ in range(rounds):
            self.torch.matmul(self.factor, self.factor)


def save_rows(out: Path, device: str, seconds: float) -> list[dict[str, Any]]:
    """Checkpointer("memory") at every step; state of several sizes, which share the time. A size that fails is a row."""
    rows = []
    sizes = SIZES if device == "cuda" else {"2 MB": 2e6}
    for name, size in sizes.items():
        try:
            with _Cache(size) as cache:
                rows += _save_rows(name, size, device, seconds / len(sizes), cache)
        except Exception as error:  # noqa: BLE001 - the next size is independent, and what failed is a row
            rows.append(_row(f"save of {name}", None, "", f"failed: {type(error).__name__}: {str(error)[:300]}"))
    return rows


def _save_rows(name: str, size: float, device: str, seconds: float, cache: _Cache) -> list[dict[str, Any]]:
    from minder import Checkpointer

    os.environ["MINDER_CACHE_SOCKET"] = str(cache.socket)
    loop = Loop(size, device, STEP_S if device == "cuda" else 0.02)
    checkpoints = Checkpointer("memory")
    step, saves, left_out = 0, [], 0
    began_s = time.perf_counter()
    checkpoints.save(1, loop.state)
    first_s = time.perf_counter() - began_s
    first_error = checkpoints.wait()
    warm_s = time.perf_counter() - began_s
    times: dict[bool, list[float]] = {True: [], False: []}
    step, end_s = 1, time.perf_counter() + seconds
    while time.perf_counter() < end_s or len(times[True]) < 6:
        for saving in (True, False):
            for place in range(3):
                loop.synchronize()
                began_s = time.perf_counter()
                step += 1
                if saving:
                    checkpoints.save(step, loop.state)
                    saves.append(time.perf_counter() - began_s)
                    left_out += int(getattr(checkpoints._tier, "_left_out", False))
                loop.step()
                if place:  # the first of a block may wait for what the block before it left behind
                    times[saving].append(time.perf_counter() - began_s)
            if saving:
                checkpoints.wait()
    error = checkpoints.wait()
    bare, with_save = statistics.median(times[False]), statistics.median(times[True])
    whole_s = _time(lambda: (checkpoints.save(step + 1, loop.state), checkpoints.wait()))
    right = _is_right(loop, checkpoints, step + 2, device)
    checkpoints.close()
    return [
        _row(f"save of {name}: step without", 1e3 * bare, "ms", f"{len(times[False])} steps"),
        _row(f"save of {name}: wait of a step", 100 * (with_save / bare - 1), "%", f"{1e3 * with_save:.2f} ms with; aim under 0.9 %"),
        _row(
            f"save of {name}: inside save()",
            1e3 * statistics.median(saves),
            "ms",
            f"longest {1e3 * max(saves):.1f} ms; left out {left_out}",
        ),
        _row(f"save of {name}: until it is safe", whole_s, "s", f"{size / whole_s / 1e9:.2f} GB/s; {error or 'no error'}"),
        _row(f"save of {name}: the first, which locks memory", first_s, "s", f"safe after {warm_s:.2f} s; {first_error or 'no error'}"),
        _row(f"save of {name}: bytes equal after more steps", int(right), "", "restored beside a clone taken at the save"),
    ]


def _is_right(loop: Loop, checkpoints: Any, step: int, device: str) -> bool:
    """Save, train on at once without waiting for the device, load: equal to what was there at the save."""
    torch = loop.torch
    wanted = [parameter.detach().clone() for parameter in loop.model.parameters()]
    moments = [value.clone() for state in loop.optimizer.state.values() for value in state.values()]
    checkpoints.save(step, loop.state)
    loop.optimizer.zero_grad()
    for _ in range(3):
        loop.model(loop.inputs).square().mean().backward()
        loop.optimizer.step()
    if checkpoints.wait() is not None or checkpoints.load_latest(loop.state) != step:
        return False
    found = [value for state in loop.optimizer.state.values() for value in state.values()]
    return all(torch.equal(one, other) for one, other in zip([*wanted, *moments], [*loop.model.parameters(), *found], strict=True))


class _Cache:
    """A `minder cache` process, and its folder in memory."""

    def __init__(self, size: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="minder-gpu-day-", dir="/dev/shm"))
        self.socket = self.folder / "socket"
        self._bytes = int(5 * size) + (64 << 20)

    def __enter__(self) -> _Cache:
        command = [sys.executable, "-m", "minder", "cache", "--job", "gpu-day", "--machine", "m0", "--max-bytes", str(self._bytes)]
        self._process = subprocess.Popen(
            [*command, "--folder", str(self.folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
        )  # fmt: skip
        end_s = time.monotonic() + 15.0
        while not self.socket.exists() and time.monotonic() < end_s and self._process.poll() is None:
            time.sleep(0.05)
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def overhead_rows(out: Path, device: str) -> list[dict[str, Any]]:
    """Guard, traced steps and heartbeats, each against the bare loop in the same run."""
    import minder
    from minder.edge.worker.gradients import check_gradient
    from minder.edge.worker.spikes import GradientSpikes
    from minder.edge.worker.tracer import trace_step

    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINDER_HEARTBEAT_FILE"] = str(Path(folder) / "page")
        loop = Loop(1.2e9 if device == "cuda" else 2e6, device, 0.1 if device == "cuda" else 0.02)
        past, steps = GradientSpikes(), iter(range(1_000_000))
        flat = loop.torch.randn(13_107_200 // (2 if device == "cuda" else 200), device=device)  # one bucket of DDP, 25 MiB
        synchronize = loop.torch.cuda.synchronize if device == "cuda" else None

        def traced(share: float) -> None:
            with trace_step(next(steps), sample=share, folder=Path(folder), synchronize=synchronize) as trace:
                with trace.op("forward-compute", mb=0, mc=0):
                    loop._work(1)
                loop.step()

        def beat() -> None:
            minder.heartbeat(next(steps), loop.step())

        def guarded(buckets: int) -> None:
            loop.step(hook=lambda: [check_gradient(flat, next(steps), past=past) for _ in range(buckets)])

        kinds: dict[str, Callable[[], object]] = {
            "bare": loop.step,
            "bare again": loop.step,
            "heartbeat": beat,
            "gradient guard, 4 buckets of 25 MiB": lambda: guarded(4),
            "traced, 10 % of steps": lambda: traced(0.1),
            "traced, every step": lambda: traced(1.0),
        }
        times = _interleave(kinds, 12 if device == "cuda" else 3, loop.synchronize)
        rows = [_row("step of the bare loop", 1e3 * statistics.median(times["bare"]), "ms")]
        rows += [_overhead(kind, found, times["bare"]) for kind, found in times.items() if kind != "bare"]
        alone = _best(lambda: check_gradient(flat, next(steps), past=past), loop.synchronize)
        rows.append(_row("check_gradient of one 25 MiB bucket, host wait included", 1e6 * alone, "µs"))
        rows.append(_row("heartbeat", 1e6 * _best(lambda: minder.heartbeat(next(steps), 1.0), lambda: None), "µs"))
    return [*rows, *_nan_rows(device)]


def _interleave(kinds: dict[str, Callable[[], object]], blocks: int, synchronize: Callable[[], None]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for block in range(blocks + 1):
        for kind, work in kinds.items():
            for _ in range(4):
                spent = _time(work, synchronize)
                if block:  # the first warms up
                    times[kind].append(spent)
    return times


def _overhead(kind: str, found: list[float], bare: list[float]) -> dict[str, Any]:
    share = statistics.median(found) / statistics.median(bare) - 1
    return _row(f"{kind}: longer than a bare step", 100 * share, "%", f"{1e3 * statistics.median(found):.3f} ms, {len(found)} steps")


def _nan_rows(device: str) -> list[dict[str, Any]]:
    """Two ranks under DDP with the guard; the gradient of one becomes NaN: that rank and no other raises."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, str(Path(__file__).with_name("nan.py")), device]
        env = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "MINDER_RUN_DIR": folder}
        env |= dict.fromkeys(("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"), "1")
        env |= {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
        env |= {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        ranks = [
            subprocess.Popen(command, env=env | {"RANK": str(rank), "NCCL_HOSTID": f"m{rank}"}, stdout=subprocess.PIPE, text=True)
            for rank in (0, 1)
        ]
        killer = threading.Timer(40.0, lambda: [rank.kill() for rank in ranks])
        killer.start()
        said = [(rank.communicate()[0] or "").strip()[-200:] for rank in ranks]
        killer.cancel()
    right = "NonFiniteGradient" in said[1] and "NonFiniteGradient" not in said[0]
    return [_row("a NaN of rank 1 is named on rank 1, and on no other", int(right), "", f"rank 0: {said[0]}; rank 1: {said[1]}")]


def _time(work: Callable[[], object], synchronize: Callable[[], None] = lambda: None) -> float:
    synchronize()
    began_s = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - began_s


def _best(work: Callable[[], object], synchronize: Callable[[], None]) -> float:
    return min(_time(work, synchronize) for _ in range(60))


def _row(measure: str, value: Any, unit: str, detail: str = "") -> dict[str, Any]:
    return {"measure": measure, "value": value, "unit": unit, "detail": detail}
