"""Real ranks, sharded as people shard: machines go with their memory, and training goes on as it would have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.client import SOCKET_VARIABLE
from minder.edge.cache.record import RecordName
from tests.cache.conftest import Running

pytestmark = [pytest.mark.package("torch"), pytest.mark.lab, pytest.mark.timeout(240)]

_PROGRAM = """
import json, os, sys
from datetime import timedelta
import torch, torch.distributed as dist
import torch.distributed.checkpoint, torch.distributed.fsdp, torch.distributed.tensor.parallel
from minder import Checkpointer
sockets, (layout, folder, phase) = json.loads(sys.argv[1]), sys.argv[2:5]
size = len(sockets)

def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
    if layout == "ddp":
        return model, torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)  # rebuilds no buckets
    if layout == "fsdp2":
        return torch.distributed.fsdp.fully_shard(model), model
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return torch.distributed.fsdp.fully_shard(model, mesh=mesh["dp"]), model

def body(rank):
    os.environ["MINDER_CACHE_SOCKET"] = sockets[rank]
    store = dist.FileStore(f"{folder}/meet-{phase}")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    model, run = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = {"model": model, "optimizer": optimizer}
    checkpoints = Checkpointer("memory", timeout_s=60)
    step = checkpoints.load_latest(state) or 0
    begun, losses = step, {}
    while step < 6:
        step += 1
        generator = torch.Generator().manual_seed(1000 * step + (rank // 2 if layout == "tp" else rank))
        loss = (run(torch.randn(8, 64, generator=generator)) + torch.rand(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.item().hex()
        if step <= 4:
            checkpoints.save(step, state)
            if step == 3:
                assert checkpoints.wait() is None
    error = checkpoints.wait()
    said = {"rank": rank, "begun": begun, "losses": losses, "error": None if error is None else str(error)}
    os.write(1, json.dumps(said).encode() + b"\\n")  # in one piece: the ranks share the pipe

children = []
for rank in range(size):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.manual_seed(rank)
            body(rank)
            status = 0
        except BaseException:
            import traceback; traceback.print_exc()
        finally:
            sys.stdout.flush(); sys.stderr.flush(); os._exit(status)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def _run(caches: Sequence[Running], layout: str, folder: Path, phase: str) -> dict[int, dict[str, Any]]:
    """All ranks of one generation to their end; what each said."""
    sockets = json.dumps([str(cache.settings.socket_path) for cache in caches])
    parallelism = {"tp": {"tensor": 2, "data": 2}}.get(layout, {"data": len(caches)})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MINDER_PARALLELISM": json.dumps(parallelism)}
    environment.pop(SOCKET_VARIABLE, None)
    command = [sys.executable, "-c", textwrap.dedent(_PROGRAM), sockets, layout, str(folder), phase]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {found["rank"]: found for found in map(json.loads, done.stdout.splitlines())}


def _lose(cache: Running) -> None:
    cache.stop()
    cache.cache.memory.remove()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("layout", "lost", "damaged"), [("ddp", [1], None), ("fsdp2", [1], 3), ("tp", [0, 1], None)], ids=["ddp", "fsdp2", "tp"]
)  # fmt: skip
def test_what_is_left_is_the_same_to_the_bit(
    start: Callable[..., Running], tmp_path: Path, layout: str, lost: list[int], damaged: int | None
) -> None:
    """One machine; one machine and, on another, a flipped bit in memory; both machines of a tensor-parallel group."""
    machines = [start(f"m{index}") for index in range(4)]
    first = _run(machines, layout, tmp_path, "first")
    assert all(found["begun"] == 0 and found["error"] is None for found in first.values())
    for index in lost:
        _lose(machines[index])
        machines[index] = start(f"s{index}")
    if damaged is not None:
        _flip(machines[damaged].settings.folder / f"{RecordName(4, 0, damaged)}.body")
    second = _run(machines, layout, tmp_path, "second")
    for rank, found in second.items():
        assert found["begun"] == 4
        assert found["losses"] == {step: loss for step, loss in first[rank]["losses"].items() if int(step) > 4}
