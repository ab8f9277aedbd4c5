"""A small pipeline that gets stuck in one way, once: `stages.py --output DIR --stuck KIND@STEP:RANKS`, run by bench/stuck.py.

Two stages and two replicas over gloo: rank = replica + 2 * stage. In every step stage 0 sends activations to stage 1 and waits for
their gradients; then each stage all-reduces its own between the replicas, and all ranks the loss. A checkpoint every ten steps.

`stages-causes@STEP:RANK` traces every step, and is slow for three reasons, one after the other: microbatches of uneven length, then a last
stage with more layers, and from STEP on a rank that computes slowly. Its computes take a device's time (`DEVICE_S`), not a processor's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from stuck import FOR_EVER_S, SLOW_S, STEP_S, SlowFile, Trouble, count_tokens, parse

import minder

REPLICAS, STAGES, WIDTH, MICROBATCHES = 2, 2, 64, 4
DEVICE_S = 0.04  # of a forward compute of mean length; a backward takes twice as long
LENGTHS = ((0.4, 0.5, 0.6, 0.3), (1.2, 2.0, 1.4, 1.6))  # of the microbatches of a replica, in turn
LONGER, SLOWER = 2.5, 2.5  # the last stage's computes; the slow rank's


class Device:
    """What a step's computes take besides the work itself; nothing in any other kind of trouble."""

    def __init__(self, trouble: Trouble, replica: int, stage: int) -> None:
        self._trouble, self._replica, self._stage = trouble, replica, stage
        self.traced = trouble.kind == "stages-causes"
        self._factors = [0.0] * MICROBATCHES

    def begin(self, step: int) -> None:
        if not self.traced:
            return
        trouble = self._trouble
        trouble.slow |= trouble.comes(step, trouble.kind)
        uneven, long = 2 * step < trouble.step, trouble.step <= 2 * step < 2 * trouble.step
        factor = (LONGER if long and self._stage == STAGES - 1 else 1.0) * (SLOWER if trouble.slow else 1.0)
        lengths = LENGTHS[(step + self._replica) % 2] if uneven else (1.0,) * MICROBATCHES
        self._factors = [factor * length for length in lengths]

    def work(self, microbatch: int, seconds: float) -> None:
        time.sleep(self._factors[microbatch] * seconds)


class Stage:
    """One rank's part of the model, and its neighbours."""

    def __init__(self, rank: int, trouble: Trouble) -> None:
        self.replica, self.number = rank % REPLICAS, rank // REPLICAS
        self.module = torch.nn.Linear(WIDTH, WIDTH)
        self.peer = rank + REPLICAS if self.number == 0 else rank - REPLICAS
        groups = [dist.new_group([stage * REPLICAS + replica for replica in range(REPLICAS)]) for stage in range(STAGES)]
        self.group = groups[self.number]
        self.device = Device(trouble, self.replica, self.number)
        self._sender, self._sent = ThreadPoolExecutor(1), list[Future[None]]()
        self._open: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # microbatch to what came for it, and what its forward gave

    def microbatches(self) -> list[tuple[bool, int]]:
        """(forward?, microbatch): one after the other; traced, in the order of 1F1B, in which the first stage is one forward ahead."""
        ahead = STAGES - 1 - self.number if self.device.traced else 0
        order = [(True, mb) for mb in range(ahead)]
        for mb in range(MICROBATCHES):
            order += [(True, mb + ahead)] * (mb + ahead < MICROBATCHES) + [(False, mb)]
        return order

    def forward(self, mb: int, trace: Any) -> torch.Tensor:
        """With its message. Returns the loss, 0 on the first stage."""
        if self.number == 0:
            with trace.op("forward-compute", mb=mb, mc=0):
                self._open[mb] = (torch.empty(0), self.module(torch.randn(8, WIDTH)))
                self.device.work(mb, DEVICE_S)
            self._send("forward-send", mb, self._open[mb][1].detach(), trace)
            return torch.zeros(1)
        received = torch.empty(8, WIDTH)
        with trace.op("forward-recv", mb=mb):
            dist.recv(received, self.peer)
        received.requires_grad_()
        with trace.op("forward-compute", mb=mb, mc=0):
            loss = self.module(received).square().mean()
            self._open[mb] = (received, loss)
            self.device.work(mb, DEVICE_S)
        return loss.detach().reshape(1)

    def backward(self, mb: int, trace: Any) -> None:
        came, output = self._open.pop(mb)
        gradient = torch.empty(8, WIDTH) if self.number == 0 else None
        if gradient is not None:
            with trace.op("backward-recv", mb=mb):
                dist.recv(gradient, self.peer)
        with trace.op("backward-compute", mb=mb, mc=0):
            output.backward(gradient)
            self.device.work(mb, 2 * DEVICE_S)
        if self.number > 0:
            self._send("backward-send", mb, came.grad, trace)

    def _send(self, kind: str, mb: int, values: torch.Tensor, trace: Any) -> None:
        """Where the job is traced, beside the computes: gloo's send ends with the receive."""

        def send() -> None:
            with trace.op(kind, mb=mb):
                dist.send(values, self.peer)

        if self.device.traced:
            self._sent.append(self._sender.submit(send))
        else:
            send()

    def end_sends(self) -> None:
        while self._sent:
            self._sent.pop(0).result()

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
    stage = Stage(rank, trouble)
    optimizer = torch.optim.SGD(stage.module.parameters(), lr=0.01)
    for step in range(1, options.steps + 1):
        began_s = time.monotonic()
        trouble_before_the_step(trouble, step)
        stage.device.begin(step)
        loss = torch.zeros(1)
        with minder.trace_step(step, stage.replica, stage.number, sample=1.0 if stage.device.traced else 0.0) as trace:
            optimizer.zero_grad()
            for is_forward, microbatch in stage.microbatches():
                if not is_forward:
                    stage.backward(microbatch, trace)
                    continue
                if microbatch == 1 and trouble.comes(step, "stages-sleep"):
                    time.sleep(FOR_EVER_S)
                trouble.slow |= trouble.comes(step, "stages-slow-python")
                if microbatch == 1 and trouble.slow and not stage.device.traced:
                    count_tokens(SLOW_S)
                loss += stage.forward(microbatch, trace)
            stage.end_sends()
            with trace.op("grads-reduce-scatter", mc=0):
                stage.reduce_gradients()
            with trace.op("optimizer-clip-main-grad"):
                dist.all_reduce(loss)
            with trace.op("optimizer"):
                optimizer.step()
        minder.heartbeat(step, float(loss))
        if rank == 0 and step % 10 == 0:
            torch.save(stage.module.state_dict(), options.output / "model.pt")
        time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = parse(sys.argv[1:])
    minder.run(lambda: main(chosen))
