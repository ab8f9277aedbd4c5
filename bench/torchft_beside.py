"""What torchft costs a step, and what a lost replica costs its job, beside checkpoints in memory: `python bench/torchft_beside.py`.

torchft (0.2, CPU, gloo) keeps no step: a replica that comes back takes the live state of another one over HTTP. So it needs two whole
replicas, and the losses after a loss are those of fewer ranks for a while. The same state as in `bench/cache.py --cases 2x10`: weights and
one moment, SGD. Two replicas of one rank; one is killed by SIGKILL at a third of the steps and started again at once. Prints JSON: what a
step takes beyond its sleep, how long the survivor stood, how long until the other was back with the survivor's own bytes. Before
it, in the same run, two ranks with as much state and the same steps save each of them: into memory, with and without overlap, by
torch.distributed.checkpoint into a folder, asynchronously and not. Needs `pip install torchft==0.2.0`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from cache import WAYS, measure_wait


def main(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    saves = [measure_wait(2, int(options.megabytes * 1e6), options, way, options.step_seconds) for way in WAYS]

    from torchft.coordination import LighthouseServer  # it starts threads, and what is above forks

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000)
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        replicas = [_start(index, lighthouse.address(), folder, options) for index in (0, 1)]
        _until(lambda: len(_rows(folder, 0)) >= options.steps // 3)
        killed_s = time.time()
        replicas[1].send_signal(signal.SIGKILL)
        replicas[1].wait()
        replicas[1] = _start(1, lighthouse.address(), folder, options)
        codes = [replica.wait(600) for replica in replicas]
        rows = [_rows(folder, index) for index in (0, 1)]
    lighthouse.shutdown()
    torchft = {"load": load, "codes": codes, **_figures(rows, killed_s, options)}
    print(json.dumps({"mb_a_rank": options.megabytes, "saves": saves, "torchft": torchft}, indent=1))
    return 0


def _figures(rows: list[list[dict[str, Any]]], killed_s: float, options: argparse.Namespace) -> dict[str, Any]:
    survivor, other = rows
    calm = sorted(row["beyond_s"] for row in survivor if row["time_s"] < killed_s)[:-1]  # but for the first, which meets
    gaps = [(b["time_s"] - a["time_s"], b["time_s"]) for a, b in itertools.pairwise(survivor)]
    back = [row for row in other if row["time_s"] > killed_s]
    digests = {row["step"]: row["digest"] for row in survivor}
    return {
        "step_beyond_median_ms": round(statistics.median(calm) * 1000, 1), "step_beyond_worst_ms": round(calm[-1] * 1000, 1),
        "survivor_stood_s": round(max(gap for gap, at in gaps if at > killed_s) - options.step_seconds, 1),
        "back_after_s": round(back[0]["time_s"] - killed_s, 1) if back else None,
        "steps_thrown_away": sum(not row["committed"] for row in survivor),
        "bytes_equal_after": bool(back) and all(digests.get(row["step"]) == row["digest"] for row in back if row["step"] in digests),
    }  # fmt: skip


def _start(index: int, lighthouse: str, folder: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    words = ["--replica", str(index), "--lighthouse", lighthouse, "--out", str(folder / f"{index}.jsonl")]
    words += ["--steps", str(options.steps), "--step-seconds", str(options.step_seconds), "--megabytes", str(options.megabytes)]
    with (folder / f"{index}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, __file__, *words], stdout=log, stderr=log)


def _rows(folder: Path, index: int) -> list[dict[str, Any]]:
    path = folder / f"{index}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _until(look: Any) -> None:
    end_s = time.monotonic() + 300.0
    while not look():
        if time.monotonic() > end_s:
            raise SystemExit("the replicas make no steps")
        time.sleep(0.1)


def replica(options: argparse.Namespace) -> None:
    """One replica of one rank."""
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    parameters = [torch.nn.Parameter(torch.zeros(int(options.megabytes * 1e6) // 80)) for _ in range(10)]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    model = torch.nn.ParameterList(parameters)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    wait = timedelta(seconds=60)
    manager = Manager(
        ProcessGroupGloo(timeout=wait), load, lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, 1, timeout=wait,
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=options.lighthouse,
        replica_id=f"replica_{options.replica}", hostname="127.0.0.1",
    )  # fmt: skip
    while manager.current_step() < options.steps:
        begin_s = time.perf_counter()
        manager.start_quorum()
        time.sleep(options.step_seconds)  # forward and backward
        gradient = torch.full((1,), float(manager.current_step()))  # the gradients themselves are the job's cost, not torchft's
        manager.allreduce(gradient).wait()
        committed = manager.should_commit()
        beyond_s = time.perf_counter() - begin_s - options.step_seconds
        if committed:
            for parameter in parameters:
                parameter.grad = gradient.expand_as(parameter)
            optimizer.step()
        digest = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in parameters)).hexdigest()
        row = {"step": manager.current_step(), "time_s": time.time(), "beyond_s": beyond_s, "committed": committed, "digest": digest}
        with options.out.open("a") as log:
            log.write(json.dumps(row) + "\n")
    manager.shutdown(wait=False)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--step-seconds", type=float, default=1.0)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--replica", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lighthouse", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.replica is not None:
        replica(chosen)
    else:
        sys.exit(main(chosen))
