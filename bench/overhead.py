"""What everything that is always on costs a real training job: the same job with minder and without, in turns, in one run.

    python bench/overhead.py [--rounds 4] [--steps 200] [--ranks 2]

Two ranks train a small network over gloo (DDP). With minder every step sends a heartbeat, a tenth of the steps is traced, and the
Flight Recorder's dumps are kept. Compared is the processor time of a step, all threads of the rank together: wall time would measure
who else is on the machine. The median over the rounds counts; the spread of the plain job's rounds says how much a difference means.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WARM_UP, WIDTH, LAYERS, BATCH = 20, 512, 8, 128


def train(rank: int, ranks: int, steps: int, with_minder: bool, folder: str) -> None:
    """One rank; writes its processor seconds per step into the folder."""
    torch.set_num_threads(1)
    os.environ["RANK"], os.environ["MINDER_RUN_DIR"] = str(rank), folder
    if with_minder:
        os.environ["TORCH_FR_BUFFER_SIZE"] = "1000"
        import minder

        minder.keep_dumps()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(BATCH, WIDTH)
    began_s = 0.0
    for step in range(steps + WARM_UP):
        if step == WARM_UP:
            began_s = time.process_time()
        if with_minder:
            with minder.trace_step(step, dp_rank=rank, folder=Path(folder) / "traces") as trace:
                with trace.op("forward-compute", mb=0, mc=0):
                    loss = model(batch).square().mean()
                with trace.op("backward-compute", mb=0, mc=0):
                    loss.backward()
                optimizer.step()
            minder.heartbeat(step, loss.item())
        else:
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()
        optimizer.zero_grad()
    (Path(folder) / f"seconds-{rank}").write_text(str((time.process_time() - began_s) / steps))
    dist.destroy_process_group()


def step_s(ranks: int, steps: int, with_minder: bool) -> float:
    """Processor seconds of a step, the mean of the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (ranks, steps, with_minder, folder), nprocs=ranks)
        return statistics.mean(float((Path(folder) / f"seconds-{rank}").read_text()) for rank in range(ranks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    plain, watched = [], []
    for number in range(options.rounds):
        for with_minder in (number % 2 == 0, number % 2 == 1):
            (watched if with_minder else plain).append(step_s(options.ranks, options.steps, with_minder))
        print(
            f"round {number + 1}: {plain[-1] * 1e3:.2f} ms plain, {watched[-1] * 1e3:.2f} ms with minder, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    less, more = statistics.median(plain), statistics.median(watched)
    spread = (max(plain) - min(plain)) / less
    change = f"{less * 1e3:.2f} ms without, {more * 1e3:.2f} ms with: {100 * (more / less - 1):+.2f} %"
    print(f"{change}; the plain rounds differ by {100 * spread:.1f} %")


if __name__ == "__main__":
    main()
