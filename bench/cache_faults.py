"""What checkpoints in memory survive: real ranks (tensor parallel 2, data parallel 2, FSDP2), a real cache process each, one fault a run.

    python bench/cache.py --faults [machine group ...] [--seeds 5] [--out bench-out/cache-faults]

A run trains, suffers the fault, starts again with what is left, and is compared step by step with an undisturbed run: losses bit for bit,
steps that were lost, seconds from the start of the ranks to the loaded state. The table is written as it goes; a run that is in it is
not done again.

machine  a machine goes with its memory                    group    both machines of a tensor-parallel group
both     owner and backup; every 2nd step is on a disk     killed   a cache dies by SIGKILL in a transfer, later a machine goes
chunk    a byte of a record flips in memory                peer     a machine goes, and its backup's cache dies in the recovery
evicted  owner and backup leave the job, and answer
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from cache import Caches

from minder import Checkpointer
from minder.edge.cache.client import SOCKET_VARIABLE
from minder.edge.cache.placement import place_backups
from minder.model.topology import Parallelism

FAULTS = ("machine", "group", "both", "killed", "chunk", "peer", "evicted")
_RANKS, _SAVED, _STEPS, _FLUSH_EVERY = 4, 7, 9, 2
_LAYOUT = Parallelism(tensor=2, data=2)
_EXTRA_BYTES = 16 * 2**20  # of each rank's own, so that a transfer takes long enough to be hit
warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
_BACKUP = place_backups(_LAYOUT, {rank: f"m{rank}" for rank in range(_RANKS)})


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "cache-faults.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for seed in range(options.seeds):
        for fault in options.faults or FAULTS:
            if any((row["fault"], row["seed"]) == (fault, seed) for row in rows):
                continue
            rows.append(measure(fault, seed))
            with path.open("a") as log:
                log.write(json.dumps(rows[-1]) + "\n")
            (options.out / "cache-faults.md").write_text(table(rows))
            print(json.dumps(rows[-1]), flush=True)
    return 0 if all(row["right"] for row in rows) else 1


def measure(fault: str, seed: int) -> dict[str, Any]:
    chance = random.Random(1000 * FAULTS.index(fault) + seed)
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name, Caches(_RANKS, "256M") as caches:
        folder = Path(name)
        whole = run(caches, folder, "first", seed, disturb=_killer(caches, chance) if fault == "killed" else None)
        disturb = damage(fault, caches, folder, chance)
        again = run(caches, folder, "second", seed, disturb=disturb)
        reference = [each["losses"] for each in whole]
        equal = all(
            losses == {step: loss for step, loss in wanted.items() if int(step) > each["begun"]}
            for each, losses, wanted in zip(again, (each["losses"] for each in again), reference, strict=True)
        )
    lost = _SAVED - min(each["begun"] for each in again)
    allowed = _FLUSH_EVERY if fault == "both" else 0
    return {
        "fault": fault, "seed": seed, "right": equal and lost <= allowed, "losses_equal": equal, "steps_lost": lost,
        "load_s": round(max(each["load_s"] for each in again), 2), "load": load,
    }  # fmt: skip


def damage(fault: str, caches: Caches, folder: Path, chance: random.Random) -> Any:
    """Do it, and return what is still to happen while the ranks recover."""
    rank = chance.randrange(_RANKS)
    if fault == "chunk":
        body = next(path for path in caches.folder(rank).glob(f"step-{_SAVED:09d}-*-rank-{rank:05d}.body"))
        with body.open("r+b") as file:
            file.seek(chance.randrange(body.stat().st_size))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))
        return None
    if fault == "evicted":
        for machine in (rank, _BACKUP[rank]):
            caches.evict(machine)
        return None
    group = [2 * (rank // 2), 2 * (rank // 2) + 1]
    gone = {"group": group, "both": [rank, _BACKUP[rank]]}.get(fault, [rank])
    for machine in gone:
        caches.lose(machine)
    if fault == "peer":
        return _peer_killer(caches, rank)
    return None


def _killer(caches: Caches, chance: random.Random) -> Any:
    """SIGKILL of one cache while another's record is coming to it; it is started again, as a launcher does it."""
    victim = chance.randrange(_RANKS)

    def act() -> None:
        _until(lambda: any(path.stat().st_blocks for path in caches.folder(victim).glob("step-00000000[23]*.draft")))
        caches.kill(victim)
        time.sleep(0.2)
        caches.start(victim)

    return act


def _peer_killer(caches: Caches, rank: int) -> Any:
    def act() -> None:
        _until(lambda: any(path.stat().st_blocks * 512 > _EXTRA_BYTES // 8 for path in caches.folder(rank).glob("*.draft")))
        caches.kill(_BACKUP[rank])
        time.sleep(0.5)
        caches.start(_BACKUP[rank])

    return act


def _until(look: Any) -> None:
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        try:
            if look():
                return
        except OSError:
            pass  # a draft that became a record meanwhile
        time.sleep(0.001)


def run(caches: Caches, folder: Path, phase: str, seed: int, disturb: Any = None) -> list[dict[str, Any]]:
    """All ranks of one generation to their end; what each said."""
    children = []
    for rank in range(_RANKS):
        child = os.fork()
        if child == 0:
            _live(rank, caches, folder, phase, seed)
        children.append(child)
    if disturb is not None:
        threading.Thread(target=disturb, daemon=True).start()
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(statuses):
        raise SystemExit("a rank failed: see above")
    return [json.loads((folder / f"{phase}-{rank}.json").read_text()) for rank in range(_RANKS)]


def _live(rank: int, caches: Caches, folder: Path, phase: str, seed: int) -> None:
    status = 1
    try:
        os.environ[SOCKET_VARIABLE] = str(caches.folder(rank) / "socket")
        dist.init_process_group("gloo", store=dist.FileStore(str(folder / f"meet-{phase}")), rank=rank, world_size=_RANKS)
        (folder / f"{phase}-{rank}.json").write_text(json.dumps(_train(rank, folder, seed)))
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(status)


def _train(rank: int, folder: Path, seed: int) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    extra = torch.full((_EXTRA_BYTES // 4,), float(rank))
    state = {"model": model, "optimizer": optimizer, "extra": extra}
    begin_s = time.perf_counter()
    checkpoints = Checkpointer("memory", timeout_s=120, flush_dir=folder / "disk", flush_every=_FLUSH_EVERY, parallelism=_LAYOUT)
    step = checkpoints.load_latest(state) or 0
    load_s, begun, losses = time.perf_counter() - begin_s, step, {}
    while step < _STEPS:
        step += 1
        generator = torch.Generator().manual_seed(1000 * step + rank // 2)
        loss = model(torch.randn(8, 64, generator=generator)).square().mean() + state["extra"][step] * 0
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        state["extra"].add_(1.0)
        losses[step] = (loss.item() + state["extra"][step].item()).hex()
        if step <= _SAVED:
            checkpoints.save(step, state)
            checkpoints.wait()
    checkpoints.wait()
    return {"begun": begun, "losses": losses, "load_s": load_s}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| fault | right | losses equal | steps lost, most | load, median s | worst s |", "|---|---|---|---|---|---|"]
    for fault in FAULTS:
        mine = [row for row in rows if row["fault"] == fault]
        if mine:
            seconds = [row["load_s"] for row in mine]
            cells = [f"{sum(row[key] for row in mine)}/{len(mine)}" for key in ("right", "losses_equal")]
            most = max(row["steps_lost"] for row in mine)
            lines.append(f"| {fault} | {' | '.join(cells)} | {most} | {statistics.median(seconds)} | {max(seconds)} |")
    loads = [row["load"] for row in rows]
    return "\n".join([*lines, "", f"Load average when each run began: {min(loads)} to {max(loads)}."]) + "\n"
