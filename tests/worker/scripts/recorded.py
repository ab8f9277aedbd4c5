"""One of two ranks that all-reduce four times over gloo; rank 1 then never joins the fifth. torch knows nothing of minder but one line."""

import os
import sys
import time

import minder

minder.keep_dumps()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo", f"file://{sys.argv[1]}", rank=int(os.environ["RANK"]), world_size=2)
values = torch.ones(4)
for _ in range(4):
    dist.all_reduce(values)
print("stands", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(120)
dist.all_reduce(values)
