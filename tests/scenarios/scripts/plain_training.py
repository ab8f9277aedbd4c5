"""A training script that knows nothing of minder: gloo all-reduces, and step lines as Megatron-LM prints them, on rank 0.

Usage: plain_training.py STEPS [SECONDS_PER_STEP [CRASH_STEP]]. At CRASH_STEP rank 1 kills itself, once (a file in the working
directory remembers it).
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

steps = int(sys.argv[1])
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.3
crash_step = int(sys.argv[3]) if len(sys.argv) > 3 else -1
dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(50_000)
for step in range(1, steps + 1):
    begun = time.monotonic()
    if step == crash_step and rank == 1 and not Path("crashed").exists():
        Path("crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    if rank == 0:
        taken = (time.monotonic() - begun) * 1000
        line = f"iteration {step:8d}/{steps:8d} | elapsed time per iteration (ms): {taken:.1f} | lm loss: {8 / step:.6E} |"
        print(f" [1970-01-01 00:00:00] {line} grad norm: 1.000 |", flush=True)
dist.destroy_process_group()
