"""A training script that knows nothing of minder and prints no step: plain torch over gloo. What happens to it is in its environment:

HANG=sleep|stop|spin|evaluate   what rank 1 (evaluate: every rank) does once, after HANG_AT seconds; the file MARK remembers that it did
SECONDS                         for how long it trains; once it has misbehaved, for five seconds
STICKY                          if set, it misbehaves in every life
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist


def evaluate(model: torch.nn.Module, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end_s:
            model(torch.randn(256, 64))


def misbehave(kind: str, model: torch.nn.Module) -> None:
    if kind == "sleep":
        time.sleep(10_000)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while kind == "spin":
        pass
    if kind == "evaluate":
        evaluate(model, 50.0)


def main() -> None:
    kind, mark = os.environ["HANG"], Path(os.environ["MARK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    begun_s, happened = time.monotonic(), mark.exists() and not os.environ.get("STICKY")
    end_s = begun_s + (5.0 if happened else float(os.environ["SECONDS"]))
    while True:
        model(torch.randn(16, 64)).sum().backward()
        time.sleep(0.1)
        over = torch.tensor([float(time.monotonic() > end_s)])
        if not happened and time.monotonic() - begun_s > float(os.environ["HANG_AT"]):
            happened = True
            end_s += 50.0 if kind == "evaluate" else 0.0
            if dist.get_rank() == 1 or kind == "evaluate":
                mark.write_text(str(time.time()))
                misbehave(kind, model)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        dist.all_reduce(over, dist.ReduceOp.MAX)
        if over.item():
            dist.destroy_process_group()  # else the threads of gloo that are left abort some exits
            return


main()
