"""The real torchtitan, Megatron and NVRx, where they lie beside the environment; they are no dependency of the project.

pip install --no-deps --target FOLDER megatron-core torchtitan nvidia-resiliency-ext==0.4.1 tyro einops typeguard docstring-parser
spmd_types torch_checkpointing, then PYTHONPATH=FOLDER. Other tests know these programs by the form of their folders only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.edge.checkpoint.site import newest_site_step, pin, site_checkpoints
from tests.cache.conftest import Running

pytestmark = [pytest.mark.package("torch"), pytest.mark.lab, pytest.mark.timeout(900)]

_RANKS = """
import json, multiprocessing, os, sys, warnings
from datetime import timedelta
import torch, torch.distributed as dist
warnings.filterwarnings("ignore")
{imports}

def begin(rank, size, folder, phase):
    store = dist.FileStore(f"{{folder}}/meet-{{phase}}")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))

{body}

size, children = 2, []
for rank in range(size):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(1, json.dumps({{"rank": rank, **live(rank, size, *sys.argv[1:])}}).encode() + b"\\n")
            status = 0
        except BaseException:
            import traceback; traceback.print_exc()
        finally:
            for helper in multiprocessing.active_children():
                helper.terminate()  # Megatron's, which holds our pipes
            sys.stderr.flush(); os._exit(status)
    children.append(child)
for _ in range(size):
    ended, status = os.wait()
    children.remove(ended)
    if status:
        for child in children:
            os.kill(child, 9)
        sys.exit(1)
"""

_TORCHTITAN_IMPORTS = """
import dataclasses, types
import torch.distributed.fsdp
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
"""
_TORCHTITAN = """
class Loader:
    def __init__(self): self.taken = 0
    def state_dict(self): return {"dp_rank": str(self.taken).encode(), "world_size": 2}
    def load_state_dict(self, state): self.taken = int(state["dp_rank"])

class Numbers:
    def __init__(self): self.step = 0
    def state_dict(self): return {"step": torch.tensor(self.step, dtype=torch.int32)}
    def load_state_dict(self, state): self.step = int(state["step"])

def live(rank, size, sockets, folder, phase, page):
    os.environ["MINDER_CACHE_SOCKET"] = json.loads(sockets)[rank]
    begin(rank, size, folder, phase)
    torch.manual_seed(0 if phase == "first" else 1)  # what is loaded counts, not how it began
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
    torch.distributed.fsdp.fully_shard(model)
    adamw = default_adamw(lr=0.01)
    adamw.implementation = "for-loop"
    optimizers = adamw.build(model_parts=[model])
    schedulers = LRSchedulersContainer.Config(warmup_steps=3).build(optimizers=optimizers, training_steps=10)
    loader, numbers = Loader(), Numbers()
    config = types.SimpleNamespace()
    exec(page, {"config": config})
    settings = dataclasses.replace(config.checkpoint, interval=3, async_mode="async", last_save_model_only=False, flush_dir="")
    manager = settings.build(
        dataloader=loader, model_parts=[model], optimizers=optimizers, lr_schedulers=schedulers,
        states={"train_state": numbers}, sd_adapter=None, base_folder=folder,
    )
    manager.load()
    begun, losses = numbers.step, {}
    while numbers.step < 10:
        numbers.step += 1
        loader.taken += 8
        generator = torch.Generator().manual_seed(1000 * loader.taken + rank)
        optimizers.zero_grad()
        loss = (model(torch.randn(8, 16, generator=generator)) + torch.rand(1)).square().mean()
        loss.backward()
        manager.maybe_wait_for_staging()
        optimizers.step()
        schedulers.step()
        losses[numbers.step] = loss.item().hex()
        if numbers.step <= 8 or phase == "third":
            manager.save(numbers.step, last_step=numbers.step == 10)
    error = None if manager.memory is None else manager.memory.wait()
    manager.maybe_wait_for_saving()
    manager.close()
    return {"begun": begun, "losses": losses, "error": None if error is None else str(error), "taken": loader.taken}
"""

_MEGATRON_IMPORTS = """
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor
torch.cuda.current_device, torch.cuda.synchronize = lambda: torch.device("cpu"), lambda: None  # it asks for its GPU without a look
"""
_MEGATRON = """
def state(rank, size, value):
    part = ShardedTensor.from_rank_offsets("weight", torch.full((4, 8), float(value + rank)), (0, rank, size))
    return {"weight": part, "iteration": value}

def live(rank, size, folder, phase):
    begin(rank, size, folder, phase)
    if phase == "load":
        found = dist_checkpointing.load(state(rank, size, 0), folder + "/pinned/iter_0000010")
        return {"first": found["weight"][0, 0].item(), "iteration": found["iteration"]}
    for step in (10, 20, 30):
        path = f"{folder}/iter_{step:07d}"
        if rank == 0:
            os.mkdir(path)
        dist.barrier()
        request = dist_checkpointing.save(state(rank, size, step), path, async_sharded_save=step == 30)
        if request is not None and request.async_fn is not None:
            request.async_fn(*request.async_fn_args)  # all is written; the job ends before it is made complete
        dist.barrier()
    return {}
"""


def _need(*modules: str) -> None:
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if found is None:
            pytest.skip(f"needs {module} beside the environment: see the first lines of {Path(__file__).name}")


def _run(imports: str, body: str, *arguments: str) -> dict[int, dict[str, Any]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MINDER_PARALLELISM": json.dumps({"data": 2})}
    command = [sys.executable, "-c", _RANKS.format(imports=imports, body=body), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row.pop("rank"): row for row in rows}


_NVRX_IMPORTS = """
from nvidia_resiliency_ext.checkpointing.local.base_state_dict import TensorAwareStateDict
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager
"""

_NVRX = """
class OnProcessors(TensorAwareStateDict):  # its own one takes tensors of a GPU only
    def __init__(self, state):
        self.state, self.popped = state, None
    tensors = property(lambda self: self.state.values())
    is_hollow = property(lambda self: self.popped is not None)
    def pop_tensors(self):
        self.popped = list(self.state.values())
        return self.popped
    def insert_tensors(self, found):
        self.state, self.popped = dict(zip(self.state, found)), None
    def init_tensors(self):
        self.insert_tensors([torch.empty_like(each) for each in self.popped])
    def copy_tensors_to_cpu(self, non_blocking=False):
        pass
    def restore_tensor_device(self, non_blocking=True):
        pass

def live(rank, size, folder, phase):
    begin(rank, size, folder, phase)
    manager = LocalCheckpointManager(f"{folder}/local", session_id="llm")
    newest = manager.find_latest()
    if phase == "save":
        for step in (10, 20):
            manager.save(OnProcessors({"weight": torch.full((4,), float(step + rank))}), step)
    return {"newest": newest, "first": float(next(iter(manager.load()[0].tensors))[0]) if phase == "load" else None}
"""


def test_torchtitan_goes_on_from_memory_after_a_machine_is_lost(start: Callable[..., Running], tmp_path: Path) -> None:
    _need("torchtitan", "tyro")
    caches = [start(f"m{index}") for index in range(2)]
    text = (Path(__file__).resolve().parents[2] / "docs/state.md").read_text()
    page = "from minder.edge.checkpoint.torchtitan" + text.split("from minder.edge.checkpoint.torchtitan")[1].split("```")[0]

    def run(phase: str) -> dict[int, dict[str, Any]]:
        sockets = json.dumps([str(cache.settings.socket_path) for cache in caches])
        return _run(_TORCHTITAN_IMPORTS, _TORCHTITAN, sockets, str(tmp_path), phase, page)

    whole = run("first")
    assert [found["error"] for found in whole.values()] == [None, None]
    kept = [(each.step, each.format, each.missing) for each in site_checkpoints(tmp_path / "checkpoint")]
    assert kept == [(6, "DCP", ""), (3, "DCP", "")]
    caches[1].stop()
    caches[1].cache.memory.remove()
    caches[1] = start("s1")
    for rank, found in run("second").items():
        assert (found["begun"], found["taken"]) == (8, 80)
        assert found["losses"] == {step: loss for step, loss in whole[rank]["losses"].items() if int(step) > 8}
    for index in range(2):  # memory goes with the power, the folder is left
        caches[index].stop()
        caches[index].cache.memory.remove()
        caches[index] = start(f"n{index}", linger_s=0.0)
    assert [found["begun"] for found in run("third").values()] == [6, 6]
    end_s = time.monotonic() + 60.0
    while any(cache.settings.folder.exists() for cache in caches):  # the job is over: its last step is saved
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_megatrons_folders_are_listed_as_megatron_itself_takes_them(tmp_path: Path) -> None:
    _need("megatron.core")
    _run(_MEGATRON_IMPORTS, _MEGATRON, str(tmp_path), "save")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20")
    assert [(each.step, each.format, bool(each.missing)) for each in site_checkpoints(tmp_path)] == [
        (30, "Megatron", True), (20, "Megatron", False), (10, "Megatron", False),
    ]  # fmt: skip
    assert newest_site_step(tmp_path) == 20
    pin(tmp_path, 10)
    shutil.rmtree(tmp_path / "iter_0000010")
    loaded = _run(_MEGATRON_IMPORTS, _MEGATRON, str(tmp_path), "load")
    assert loaded == {rank: {"first": 10.0 + rank, "iteration": 10} for rank in (0, 1)}


def test_nvrxs_local_folders_are_listed_and_read_by_nvrx_afterwards(tmp_path: Path) -> None:
    """Its own rotation leaves the newest step; a file that it was writing as it died counts for nothing."""
    _need("nvidia_resiliency_ext")
    _run(_NVRX_IMPORTS, _NVRX, str(tmp_path), "save")
    local = tmp_path / "local" / "llm"
    (local / "0" / "iter_0000030_0_local.dirty.pt").touch()
    (found,) = site_checkpoints(local)
    assert (found.step, found.format, found.missing) == (20, "NVRx", None)
    assert [path.parent.name for path in found.paths] == ["0", "1"]
    assert newest_site_step(local) is None, "whether other machines have their shards is not known here"
    assert _run(_NVRX_IMPORTS, _NVRX, str(tmp_path), "load") == {rank: {"newest": 20, "first": 20.0 + rank} for rank in (0, 1)}
