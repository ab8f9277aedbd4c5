"""A small pipeline that gets stuck in one way, once: `stages.py --output DIR --stuck KIND@STEP:RANKS`, run by bench/stuck.py.

Two stages and two replicas over gloo: rank = replica + 2 * stage. In every step stage 0 sends activations to stage 1 and waits for
their gradients; then each stage all-reduces its own between the replicas, and all ranks the loss. A checkpoint every ten steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from stuck import FOR_EVER_S, SLOW_S, STEP_S, SlowFile, Trouble, count_tokens, parse

import minder

REPLICAS, STAGES, WIDTH, MICROBATCHES = 2, 2, 64, 4


class Stage:
    """One rank's part of the model, and its neighbours."""

    def __init__(self, rank: int) -> None:
        self.replica, self.number = rank % REPLICAS, rank // REPLICAS
        self.module = torch.nn.Linear(WIDTH, WIDTH)
        self.peer = rank + REPLICAS if self.number == 0 else rank - REPLICAS
        groups = [dist.new_group([stage * REPLICAS + replica for replica in range(REPLICAS)]) for stage in range(STAGES)]
        self.group = groups[self.number]

    def microbatch(self) -> torch.Tensor:
        """Forward and backward of one microbatch, with its messages. Returns the loss, 0 on the first stage."""
        received = torch.empty(8, WIDTH)
        if self.number == 0:
            activations = self.module(torch.randn(8, WIDTH))
            dist.send(activations.detach(), self.peer)
            dist.recv(received, self.peer)
            activations.backward(received)
            return torch.zeros(1)
        dist.recv(received, self.peer)
        received.requires_grad_()
        loss = self.module(received).square().mean()
        loss.backward()
        dist.send(received.grad, self.peer)
        return loss.detach().reshape(1)

    def reduce_gradients(self) -> None:
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, group=self.group)


def trouble_before_the_step(trouble: Trouble, step: int) -> None:
    """Quiet phases, and a stop that comes in the middle of the messages."""
    if trouble.comes(step, "stages-evaluation"):
        with minder.phase("evaluation"):
            time.sleep(20.0)
    if trouble.comes(step, "stages-checkpoint"):
        torch.save(torch.ones(4), SlowFile())
    if trouble.comes(step, "stages-sigstop"):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    if trouble.comes(step, "stages-fewer-steps"):
        dist.barrier()  # its replica's data ended one step early


def main(options: Any) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    trouble = Trouble(options.stuck, options.output, rank)
    torch.manual_seed(rank)
    stage = Stage(rank)
    optimizer = torch.optim.SGD(stage.module.parameters(), lr=0.01)
    for step in range(1, options.steps + 1):
        began_s = time.monotonic()
        trouble_before_the_step(trouble, step)
        optimizer.zero_grad()
        loss = torch.zeros(1)
        for microbatch in range(MICROBATCHES):
            if microbatch == 1 and trouble.comes(step, "stages-sleep"):
                time.sleep(FOR_EVER_S)
            trouble.slow |= trouble.comes(step, "stages-slow-python")
            if microbatch == 1 and trouble.slow:
                count_tokens(SLOW_S)
            loss += stage.microbatch()
        stage.reduce_gradients()
        optimizer.step()
        dist.all_reduce(loss)
        minder.heartbeat(step, float(loss))
        if rank == 0 and step % 10 == 0:
            torch.save(stage.module.state_dict(), options.output / "model.pt")
        time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = parse(sys.argv[1:])
    minder.run(lambda: main(chosen))
