"""The lab's training job: a small GPT under DDP on gloo, whose losses do not change by one bit when it is restarted.

    python train.py --output DIR [--steps N] [--seed S] [--checkpoint-every 1] [--plain]

It runs under the environment variables of torchrun. `--plain` neither imports nor calls minder. What makes a restart equal:
one thread, deterministic kernels, a batch that is a pure function of (seed, step, rank), random generators in the checkpoint,
and find_unused_parameters=True, which keeps DDP from rebuilding its buckets after the first step of every process (a rebuilt
bucket is summed in another order).

MINDER_LAB_DEVICE=cuda: on NCCL, all ranks on the first GPU. NCCL takes each of them for a machine of its own and joins them by sockets.

Faults of the script itself, from MINDER_LAB_FAULT or the file `fault` in --output: `exception@STEP` (every rank raises, in one generation
only), `nan@STEP:RANK` (one rank's own gradient becomes NaN, once ever), `spike@STEP:RANK` (it becomes a thousand times what it is). A rank
that gets the first real-time signal computes for ever: it is busy, and its peers wait.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import signal
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from minder.simulate.lab import corpus, model, plain
else:

    def _beside(name: str) -> Any:
        """A module of this folder, without importing the package around it: --plain must not load minder."""
        spec = importlib.util.spec_from_file_location(f"lab_{name}", Path(__file__).with_name(f"{name}.py"))
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    corpus, model, plain = _beside("corpus"), _beside("model"), _beside("plain")

_DEVICE = os.environ.get("MINDER_LAB_DEVICE", "cpu")
_ONE_GPU = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
}  # fmt: skip
if _DEVICE != "cpu":
    os.environ.update({name: os.environ.get(name, value) for name, value in _ONE_GPU.items()})
_LEARNING_RATE = 3e-3
_POISONS = {"nan": math.nan, "spike": 1_000.0}
_EVALUATION_STEP = -1  # a batch that no training step uses


@dataclass(slots=True)
class Job:
    """One generation of the job, as one rank sees it."""

    options: argparse.Namespace
    rank: int
    generation: int
    corpus: torch.Tensor
    model: torch.nn.Module
    ddp: Any
    optimizer: torch.optim.Optimizer
    loop: Any

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the lab's model.")
    parser.add_argument("--output", type=Path, required=True, help="folder for losses.jsonl and final.json")
    parser.add_argument("--checkpoint-dir", type=Path, help="default: MINDER_CHECKPOINT_DIR, else OUTPUT/checkpoints")
    parser.add_argument("--memory", action="store_true", help="checkpoints in the machines' memory, in no folder")
    parser.add_argument("--flush-dir", type=Path, help="with --memory: a step goes to this folder too, now and then")
    parser.add_argument("--flush-every", type=int, default=100, help="with --flush-dir: every so many steps")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--stop-file", type=Path, help="a file that names an earlier last step once it is there; write it well ahead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-seconds", type=float, default=0.2, help="a step takes at least this long")
    parser.add_argument("--checkpoint-every", type=int, default=1, help="0: never")
    parser.add_argument("--evaluate-every", type=int, default=0, help="0: never")
    parser.add_argument("--evaluate-seconds", type=float, default=2.0)
    parser.add_argument("--collective-timeout", type=float, default=1800.0, help="seconds; torch's own default is 1800")
    parser.add_argument("--init-method", default="env://", help="where the ranks meet")
    parser.add_argument("--no-sync", action="store_true", help="do not flush checkpoints to disk")
    parser.add_argument("--no-in-place", action="store_true", help="a rank whose peer dies dies too: a new process takes its place")
    parser.add_argument("--plain", action="store_true", help="use nothing of minder")
    parser.add_argument("--log-format", choices=("megatron", "huggingface"), default="megatron", help="of --plain")
    parser.add_argument("--log-every-rank", action="store_true", help="in --plain, all ranks print")
    return parser.parse_args(arguments)


def main(options: argparse.Namespace) -> None:
    """One generation, from the process group to the last step."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("NCCL_HOSTID", os.environ.get("MINDER_LAB_MACHINE") or f"rank-{rank}")  # or it refuses a GPU of two ranks
    backend, limit = ("gloo" if _DEVICE == "cpu" else "nccl"), timedelta(seconds=options.collective_timeout)
    dist.init_process_group(backend, options.init_method, rank=rank, world_size=world_size, timeout=limit)
    job = _prepare(options, rank)
    step = job.loop.load(job.state)
    while step < _last_step(options):
        step += 1
        started_s = time.monotonic()
        _train_step(job, step)
        if options.checkpoint_every and step % options.checkpoint_every == 0:
            job.loop.save(step, job.state)
        if options.evaluate_every and step % options.evaluate_every == 0:
            _evaluate(job)
        time.sleep(max(0.0, started_s + options.step_seconds - time.monotonic()))
    _finish(job)
    job.loop.close()
    # DDP's reducer frees a group while it holds the interpreter's lock, and a group waits for threads that may want that lock
    # (seen: a finished rank that never ended). So DDP goes first; the group's own reference goes without the lock.
    job.loop = job.ddp = None
    dist.destroy_process_group()


def _last_step(options: argparse.Namespace) -> int:
    """--steps, or what the stop file says: ranks are a step apart at most, so all of them have read it before they get there."""
    try:
        return min(options.steps, int(options.stop_file.read_text())) if options.stop_file else int(options.steps)
    except (OSError, ValueError):
        return int(options.steps)


def _prepare(options: argparse.Namespace, rank: int) -> Job:
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    module = model.CharacterModel(len(corpus.ALPHABET)).to(_DEVICE)
    ddp = DistributedDataParallel(module, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(module.parameters(), lr=_LEARNING_RATE, fused=True)
    folder = options.checkpoint_dir or Path(os.environ.get("MINDER_CHECKPOINT_DIR") or options.output / "checkpoints")
    options.output.mkdir(parents=True, exist_ok=True)
    if options.plain:
        loop: Any = plain.PlainLoop(folder, options.steps, options.log_format, options.log_every_rank)
    else:
        from minder.simulate.lab.watched import WatchedLoop

        flush = {"flush_dir": options.flush_dir, "flush_every": options.flush_every} if options.memory else {}
        loop = WatchedLoop("memory" if options.memory else folder, sync_files=not options.no_sync, **flush)
    loop.guard(ddp)
    torch.manual_seed(options.seed * 1_000 + rank)  # every rank drops out other channels
    return Job(options, rank, _generation(), torch.tensor(corpus.encoded()), module, ddp, optimizer, loop)


def _generation() -> int:
    return int(os.environ.get("MINDER_GENERATION") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def _train_step(job: Job, step: int) -> None:
    _raise_if_asked(job, step)
    poison = _poison_if_asked(job, step)
    job.ddp.train()
    loss = job.ddp(*_batch(job.corpus, job.options.seed, step, job.rank))
    job.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if poison is not None:
        poison.remove()
    gradient_norm = float(torch.nn.utils.clip_grad_norm_(job.model.parameters(), 1.0))
    reduced = loss.detach().clone()
    dist.all_reduce(reduced)
    reduced /= dist.get_world_size()
    if not math.isfinite(gradient_norm):
        raise FloatingPointError(f"step {step}: the gradient is not finite, the step is not taken")
    job.optimizer.step()
    if job.rank == 0:
        line = {"step": step, "loss": float(reduced).hex(), "generation": job.generation, "time": time.time()}
        _append(job.options.output / "losses.jsonl", json.dumps(line) + "\n")
    job.loop.stepped(step, float(reduced), gradient_norm, _LEARNING_RATE)


def _batch(*which: Any) -> tuple[torch.Tensor, ...]:
    return tuple(part.to(_DEVICE) for part in model.batch(*which))


def _append(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())  # one write: a kill leaves the whole line or nothing
    finally:
        os.close(handle)


def _evaluate(job: Job) -> None:
    with job.loop.evaluation(), torch.no_grad():
        job.ddp.eval()
        job.model(*_batch(job.corpus, job.options.seed, _EVALUATION_STEP, job.rank))
        time.sleep(job.options.evaluate_seconds)


def _finish(job: Job) -> None:
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, model.parameters_sha256(job.model))
    if job.rank == 0:
        final = {"steps": _last_step(job.options), "parameters_sha256": digests[0], "ranks_agree": len(set(digests)) == 1}
        (job.options.output / "final.json").write_text(json.dumps({**final, "generation": job.generation}) + "\n")


def _fault(options: argparse.Namespace) -> tuple[str, int, int]:
    """What MINDER_LAB_FAULT or the file asks for: (kind, step, rank); ("", 0, 0) for nothing."""
    wanted = os.environ.get("MINDER_LAB_FAULT", "")
    if not wanted:
        try:
            wanted = (options.output / "fault").read_text()
        except OSError:
            return "", 0, 0
    kind, _, place = wanted.partition("@")
    step, _, rank = place.partition(":")
    return (kind, int(step), int(rank or 0)) if step.isdigit() else ("", 0, 0)


def _raise_if_asked(job: Job, step: int) -> None:
    kind, at_step, _ = _fault(job.options)
    if kind != "exception" or step != at_step:
        return
    marker = job.options.output / "fault-exception"
    try:
        with marker.open("x") as stream:
            stream.write(str(job.generation))
    except FileExistsError:
        pass
    dist.barrier()  # the marker is written, and no rank dies of its peers before it can raise
    if marker.read_text() == str(job.generation):
        raise RuntimeError(f"step {step}: this bug is in the training script")


def _poison_if_asked(job: Job, step: int) -> Any:
    """Make this rank's own gradient of the last layer NaN or far too large in this step's backward pass, once in the life of the job."""
    kind, at_step, at_rank = _fault(job.options)
    if kind not in _POISONS or step != at_step or job.rank != at_rank:
        return None
    try:
        (job.options.output / f"fault-{kind}").touch(exist_ok=False)
    except FileExistsError:
        return None
    return job.model.get_parameter("out.weight").register_hook(lambda gradient: gradient * _POISONS[kind])


def _compute_for_ever(number: int, frame: Any) -> None:
    while True:
        math.sqrt(2.0)


def _warm_up(options: argparse.Namespace) -> None:
    """Pay for lazy imports and first calls before the barrier, where no peer waits for them."""
    if not options.plain:
        import minder.simulate.lab.watched  # noqa: F401
    module = model.CharacterModel(len(corpus.ALPHABET)).to(_DEVICE)
    module(*_batch(torch.tensor(corpus.encoded(1_000)), 0, 0, 0)).backward()
    torch.optim.AdamW(module.parameters(), fused=True).step()


if __name__ == "__main__":
    chosen = parse(sys.argv[1:])
    torch.set_num_threads(1)
    signal.signal(signal.SIGRTMIN, _compute_for_ever)
    _warm_up(chosen)
    if chosen.plain or chosen.no_in_place:
        main(chosen)
    else:
        import minder

        minder.run(lambda: main(chosen))
