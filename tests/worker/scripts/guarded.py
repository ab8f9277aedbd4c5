"""Two gloo ranks train a little model with DDP: RANK PORT MODE, with MODE plain, guard, record, nan, spike (one
rank) or spikes (both); prints one JSON line."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from minder.edge.worker import NonFiniteGradient, heartbeat, install_gradient_guard, is_victim
from minder.wire.heartbeat import read_heartbeat

rank, port, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
torch.set_num_threads(1)
store = dist.TCPStore("127.0.0.1", port, 2, is_master=False)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)), find_unused_parameters=True
)
if mode != "plain":
    install_gradient_guard(model, action="record" if mode == "record" else "raise")
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
found: dict[str, object] = {"rank": rank, "losses": []}
try:
    for step in range(60 if mode.startswith("spike") else 6):
        batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(step * 2 + rank))
        loss = model(batch).square().mean()
        optimiser.zero_grad()
        if mode in ("nan", "record") and rank == 1 and step == 3:
            loss = loss * float("nan")
        if step == 40 and (mode == "spikes" or (mode == "spike" and rank == 1)):
            loss = loss * 300.0
        loss.backward()
        optimiser.step()
        if mode.startswith("spike"):
            heartbeat(step)
        found["losses"].append(loss.item().hex())  # type: ignore[attr-defined]
except RuntimeError as error:
    kind = type(error).__name__
    found.update(error=kind, message=str(error), victim=is_victim(kind, str(error)), own=isinstance(error, NonFiniteGradient))
weights = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
found["weights"] = hashlib.sha256(weights).hexdigest()
page = os.environ["MINDER_HEARTBEAT_FILE"]
found["flags"] = [record.flags for record in read_heartbeat(page).recent] if Path(page).exists() else []
found["spikes"] = [(item.step, item.squared, item.usual) for item in read_heartbeat(page).spikes] if Path(page).exists() else []
print(json.dumps(found), flush=True)
os._exit(0)
