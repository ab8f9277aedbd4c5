"""All-to-all among the machine's own devices: NCCL over its GPUs, gloo over processes where it has none. Right, and how fast.

Each rank sends every other one a block that says whose it is; what arrives must be that, to the last byte.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts, cpus
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="all_to_all",
    version=1,
    says="all-to-all among the machine's GPUs (NCCL), or among processes (gloo)",
    limit_s=120.0,
    needs=("torch",),
    measures={"all_to_all_bandwidth": "B/s that one rank sends and receives", "all_to_all_latency": "s, median of small blocks"},
    source="MegaScale and ByteRobust: intra-machine all-to-all before anything crosses the network",
)

_MOST_RANKS, _CPU_BYTES, _GPU_BYTES = 8, 4 << 20, 64 << 20
_ROUNDS = 10
_LEAST_S = 5.0


def measure(options: Mapping[str, Any]) -> Finding:
    """options: ranks (the GPUs; else 2 to 4 processes), block_bytes, corrupt_rank (for tests: that rank sends one wrong byte)."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # CUDA must begin in the ranks, which are forked
    try:
        import torch
    except ImportError:
        return Finding("not_applicable", "torch is not installed")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus == 1:
        return Finding("not_applicable", "one GPU has no other to talk to")
    ranks = int(options.get("ranks", min(_MOST_RANKS, gpus) or min(4, max(2, cpus()))))
    bytes_ = int(options.get("block_bytes", _GPU_BYTES if gpus else _CPU_BYTES))
    limit_s = max(_LEAST_S, float(options.get("limit_s", PROBE.limit_s)) - 5.0)
    plan = {"ranks": ranks, "bytes": bytes_, "backend": "nccl" if gpus else "gloo", "limit_s": limit_s}
    answers = _play(plan | {"corrupt_rank": options.get("corrupt_rank", -1)})
    wrong = [f"rank {index} received {answer['wrong']} wrong bytes" for index, answer in enumerate(answers) if answer["wrong"]]
    measures = (
        Measurement("all_to_all_bandwidth", min(answer["bandwidth"] for answer in answers), "B/s", "higher"),
        Measurement("all_to_all_latency", max(answer["latency_s"] for answer in answers), "s", "lower", tolerance=100e-6),
    )
    facts = {"torch": torch.__version__, "backend": str(plan["backend"]), "ranks": str(ranks), "block": str(bytes_), **cpu_facts()}
    facts |= {"gpu": str(answers[0]["gpu"])} if gpus else {}
    return Finding("failed" if wrong else "measured", "; ".join(wrong), measures, facts)


def _play(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each rank says. A rank that fails, or is silent, ends the probe (RuntimeError): what it was is not known then.

    The ranks are forked from this process, which has loaded torch: loading it once takes seconds.
    """
    forked = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="minder-probe-") as folder:
        pipes, children = [], []
        for rank in range(int(plan["ranks"])):
            ours, theirs = forked.Pipe(duplex=False)
            mine = {**plan, "rank": rank, "store": str(Path(folder) / "store")}
            children.append(forked.Process(target=_play_rank, args=(mine, theirs), daemon=True))
            children[-1].start()
            theirs.close()
            pipes.append(ours)
        return [_hear(rank, pipe, float(plan["limit_s"])) for rank, pipe in enumerate(pipes)]


def _hear(rank: int, pipe: Connection, limit_s: float) -> dict[str, Any]:
    try:
        if pipe.poll(limit_s):
            return dict(pipe.recv())
    except EOFError:
        raise RuntimeError(f"rank {rank} of the all-to-all ended before its time") from None
    raise RuntimeError(f"rank {rank} of the all-to-all said nothing within {limit_s:g} s")


def _play_rank(plan: Mapping[str, Any], answer: Connection) -> None:
    if plan["backend"] == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # it must find itself on a machine whose host name leads nowhere
    answer.send(_take_part(plan))
    answer.close()


def _take_part(plan: Mapping[str, Any]) -> dict[str, Any]:
    """One rank. The blocks say from whom and to whom they are."""
    import torch
    import torch.distributed as dist

    rank, ranks, size = int(plan["rank"]), int(plan["ranks"]), int(plan["bytes"])
    device = torch.device(f"cuda:{rank}" if plan["backend"] == "nccl" else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    store = dist.FileStore(str(plan["store"]), ranks)
    dist.init_process_group(str(plan["backend"]), store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=plan["limit_s"]))

    def turn(block: int) -> tuple[float, Any]:
        sent = torch.cat([torch.full((block,), _mark(rank, to), dtype=torch.uint8, device=device) for to in range(ranks)])
        if rank == plan.get("corrupt_rank"):
            sent[-1] ^= 4
        received = torch.empty_like(sent)
        dist.barrier()
        begun = time.perf_counter()
        dist.all_to_all_single(received, sent)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun, received

    small = [turn(64)[0] for _ in range(_ROUNDS)]
    large = [turn(size) for _ in range(_ROUNDS)]
    expected = torch.cat([torch.full((size,), _mark(sender, rank), dtype=torch.uint8, device=device) for sender in range(ranks)])
    wrong = max(int((received != expected).sum()) for _, received in large)
    dist.destroy_process_group()
    rate = 2.0 * size * (ranks - 1) / statistics.fmean(seconds for seconds, _ in large[1:])
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {"gpu": gpu, "bandwidth": rate, "latency_s": statistics.median(small[1:]), "wrong": wrong}


def _mark(sender: int, receiver: int) -> int:
    return (sender * 16 + receiver + 1) & 255


if __name__ == "__main__":
    run(PROBE, measure)
