"""Real ranks, sharded as people shard: machines go with their memory, and training goes on as it would have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.client import SOCKET_VARIABLE
from minder.edge.cache.record import RecordName
from minder.model.errors import CheckpointError
from tests.cache.conftest import Running

pytestmark = [pytest.mark.package("torch"), pytest.mark.lab, pytest.mark.timeout(420)]

_PROGRAM = """
import json, os, sys
from datetime import timedelta
import torch, torch.distributed as dist
import torch.distributed.checkpoint, torch.distributed.fsdp, torch.distributed.tensor.parallel
from minder import Checkpointer
from minder.edge.checkpoint.dcp import CacheReader, CacheWriter
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
sockets, (layout, folder, phase), options = json.loads(sys.argv[1]), sys.argv[2:5], json.loads(sys.argv[5])
size = len(sockets)

def dcp_load(checkpoints, state):
    reader = CacheReader(checkpoints)
    step = reader.newest_step()
    if step is not None:
        model, optimizer = get_state_dict(state["model"], state["optimizer"])
        found = {"model": model, "optimizer": optimizer}
        dcp.load(found, storage_reader=reader)
        set_state_dict(state["model"], state["optimizer"], model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    return step

def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
    if layout == "wide":  # more than eight chunks a rank: enough to know equal bodies
        model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 64))
    if layout in ("ddp", "wide"):
        return model, torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)  # rebuilds no buckets
    if layout == "fsdp2" or layout == "dcp":
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
    if "domains" in options:
        os.environ["MINDER_DOMAIN"] = json.dumps({"rack": options["domains"][rank]})
    once_per = options.get("once_per", "machine")
    checkpoints = Checkpointer("memory", timeout_s=60, flush_dir=options.get("flush_dir"), flush_every=2, once_per=once_per)
    if layout == "dcp":
        step = dcp_load(checkpoints, state) or 0
    else:
        step = checkpoints.load_latest(state) or 0
    begun, losses, unsaved = step, {}, []
    while step < 6:
        step += 1
        generator = torch.Generator().manual_seed(1000 * step + (rank // 2 if layout == "tp" else rank))
        loss = (run(torch.randn(8, 64, generator=generator)) + torch.rand(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.item().hex()
        if [rank, step] == options.get("differs"):
            with torch.no_grad():
                next(model.parameters())[7, 7] += 1e-3  # silent corruption
        if step <= 4:
            if layout == "dcp":
                found = get_state_dict(model, optimizer)
                dcp.save({"model": found[0], "optimizer": found[1]}, checkpoint_id=f"step-{step}", storage_writer=CacheWriter(checkpoints))
            else:
                checkpoints.save(step, state)
            waited = checkpoints.wait() if step == 3 or options.get("differs") else None
            assert waited is None or "differ" in str(waited), waited
            unsaved += [step] if waited is not None else []
    error = checkpoints.wait()
    said = {"rank": rank, "begun": begun, "losses": losses, "unsaved": unsaved, "error": None if error is None else str(error)}
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


def _run(caches: Sequence[Running], layout: str, folder: Path, phase: str, **options: Any) -> dict[int, dict[str, Any]]:
    """All ranks of one generation to their end; what each said."""
    sockets = json.dumps([str(cache.settings.socket_path) for cache in caches])
    parallelism = {"tp": {"tensor": 2, "data": 2}}.get(layout, {"data": len(caches)})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MINDER_PARALLELISM": json.dumps(parallelism)}
    environment.pop(SOCKET_VARIABLE, None)
    command = [sys.executable, "-c", textwrap.dedent(_PROGRAM), sockets, layout, str(folder), phase, json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
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
    ("layout", "lost", "damaged"),
    [("ddp", [1], None), ("fsdp2", [1], 3), ("tp", [0, 1], None), ("dcp", [2], None)],
    ids=["ddp", "fsdp2", "tp", "dcp"],
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


def test_owner_and_backup_together_cost_the_steps_since_the_last_flush(start: Callable[..., Running], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    machines = [start(f"m{index}") for index in range(4)]
    first = _run(machines, "fsdp2", tmp_path, "first", flush_dir=str(disk))
    assert {len(list(disk.glob(f"step-{step:09d}-*.head"))) for step in (2, 4)} == {4}
    for path in disk.glob("step-000000004-*"):
        path.unlink()  # as if the last flush had not come to its end
    for index in (0, 1):  # rank 0 and the machine that has its backup
        _lose(machines[index])
        machines[index] = start(f"s{index}")
    second = _run(machines, "fsdp2", tmp_path, "second", flush_dir=str(disk))
    for rank, found in second.items():
        assert found["begun"] == 2
        assert found["losses"] == {step: loss for step, loss in first[rank]["losses"].items() if int(step) > 2}


@pytest.mark.parametrize(
    ("doubted", "begun"), [([], 4), (["m0", "m1"], 2)], ids=["one answers and one hangs", "their numbers are in doubt"]
)
def test_owner_and_backup_that_are_evicted_and_answer_cost_no_step(
    start: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doubted: list[str], begun: int
) -> None:
    """Both machines are out of the job and their caches are not: their memory is asked where nothing else has a committed step."""
    monkeypatch.setenv("MINDER_DOUBTED", json.dumps(doubted))
    disk, released = tmp_path / "disk", threading.Event()
    machines = [start(f"m{index}") for index in range(4)]
    first = _run(machines, "fsdp2", tmp_path, "first", flush_dir=str(disk))
    for path in disk.glob("step-000000004-*"):
        path.unlink()  # as if the last flush had not come to its end
    machines[0].cache.hello = lambda *unused: {"hangs": released.wait(60.0)}  # type: ignore[method-assign]
    machines[:2] = [start("s0"), start("s1")]
    try:
        _goes_on(first, _run(machines, "fsdp2", tmp_path, "second", flush_dir=str(disk)), begun)
    finally:
        released.set()


def test_a_shared_store_is_read_once_where_all_memory_is_lost(start: Callable[..., Running], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    machines = [start(f"m{index}") for index in range(4)]
    first = _run(machines, "wide", tmp_path, "first", flush_dir=str(disk))
    for index in range(4):
        _lose(machines[index])
        machines[index] = start(f"s{index}")
    read: list[str] = []
    for machine in machines:
        find_body = machine.cache.find_body

        def note(name: RecordName, find_body: Any = find_body) -> Any:
            found = find_body(name)
            if found[0].parent == disk:
                read.append(str(name))
            return found

        machine.cache.find_body = note  # type: ignore[method-assign]
    second = _run(machines, "wide", tmp_path, "second", flush_dir=str(disk))
    assert set(read) == {str(RecordName(4, 0, 0))}
    for rank, found in second.items():
        assert (found["begun"], found["error"]) == (4, None)
        assert found["losses"] == {step: loss for step, loss in first[rank]["losses"].items() if int(step) > 4}


def test_a_peer_that_dies_for_good_in_a_recovery_leaves_the_next_copy_or_step(
    start: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk has an older step: that is what all ranks take then."""
    from minder.edge.cache import cache as module

    monkeypatch.setattr(module, "RETURNS_S", 0.5)
    disk = tmp_path / "disk"
    machines = [start(f"m{index}") for index in range(4)]
    first = _run(machines, "fsdp2", tmp_path, "first", flush_dir=str(disk))
    for path in disk.glob("step-000000004-*"):
        path.unlink()
    _lose(machines[0])
    machines[0] = start("s0")
    backup = machines[1].cache

    find_body = backup.find_body

    def lost(name: RecordName) -> Any:
        if name == RecordName(4, 0, 0):
            raise CheckpointError(f"no record {name} here")
        return find_body(name)

    backup.find_body = lost  # type: ignore[method-assign]
    second = _run(machines, "fsdp2", tmp_path, "second", flush_dir=str(disk))
    for rank, found in second.items():
        assert found["begun"] == 2
        assert found["losses"] == {step: loss for step, loss in first[rank]["losses"].items() if int(step) > 2}


def _goes_on(first: dict[int, dict[str, Any]], second: dict[int, dict[str, Any]], step: int) -> None:
    for rank, found in second.items():
        assert (found["begun"], found["error"]) == (step, None)
        assert found["losses"] == {at: loss for at, loss in first[rank]["losses"].items() if int(at) > step}


def _bodies(machine: Running, step: int) -> list[int]:
    """Ranks whose bodies lie there."""
    found = (RecordName.parse(path.stem) for path in machine.settings.folder.glob(f"step-{step:09d}-*.body") if path.stat().st_size)
    return sorted(name.rank for name in found if name is not None)


def test_replicas_on_one_machine_keep_their_state_once_and_any_machine_may_go(start: Callable[..., Running], tmp_path: Path) -> None:
    machines = [start("m0", max_bytes=48 * 2**20), start("m1", max_bytes=48 * 2**20)]  # bodies of each rank would need three times as much
    first = _run([machines[0], machines[0], machines[0], machines[1]], "wide", tmp_path, "first")
    assert all(found["error"] is None for found in first.values())
    assert len({path.stat().st_ino for path in machines[0].settings.folder.glob("step-000000004-*.body") if path.stat().st_size}) == 1
    assert {0} <= set(_bodies(machines[0], 4)) <= {0, 3}, "ranks 1 and 2 have none"
    _lose(machines[0])
    machines[0] = start("s0", max_bytes=48 * 2**20)
    second = _run([machines[0], machines[0], machines[0], machines[1]], "wide", tmp_path, "second")
    _goes_on(first, second, 4)


def test_state_is_kept_once_a_rack_and_a_rack_may_go(start: Callable[..., Running], tmp_path: Path) -> None:
    machines = [start(f"m{index}") for index in range(4)]
    racks = ["r0", "r0", "r1", "r1"]
    first = _run(machines, "wide", tmp_path, "first", domains=racks, once_per="rack")
    assert all(found["error"] is None for found in first.values())
    own = [rank in _bodies(machine, 4) for rank, machine in enumerate(machines)]
    assert own == [True, False, True, False]
    for index in (0, 1):
        _lose(machines[index])
        machines[index] = start(f"s{index}")
    second = _run(machines, "wide", tmp_path, "second", domains=racks, once_per="rack")
    _goes_on(first, second, 4)


def test_a_replica_that_differs_costs_a_step_and_keeps_its_own_state_from_then_on(start: Callable[..., Running], tmp_path: Path) -> None:
    machine = start("m0")
    first = _run([machine] * 2, "wide", tmp_path, "first", differs=[1, 2])
    assert [found["unsaved"] for found in first.values()] == [[2], [2]]
    assert _bodies(machine, 4) == [0, 1]
    second = _run([machine] * 2, "wide", tmp_path, "second")
    for rank, found in second.items():
        assert found["begun"] == 4
        assert found["losses"] == {at: loss for at, loss in first[rank]["losses"].items() if int(at) > 4}
