"""Two ranks that exchange messages over one connection, and write of each what NCCL's Inspector would write: its file name, its fields,
its order (README of the plugin, format v4.0). A line is flushed in two halves, as a full buffer is.

Usage: inspected_ring.py RANK PORT FOLDER ROUNDS_PER_STEP. A file `slow` in FOLDER makes rank 1 wait before it reads.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

SIZE = 1 << 18
rank, port, folder, rounds = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
if rank == 0:
    with socket.create_server(("127.0.0.1", port)) as listener:
        peer, _ = listener.accept()
else:
    for _attempt in range(600):
        try:
            peer = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
dumps = folder / f"inspector-{rank}"
dumps.mkdir(parents=True, exist_ok=True)
log = (dumps / f"{socket.gethostname()}-pid{os.getpid()}.log").open("w")


def receive() -> None:
    left = SIZE
    while left:
        left -= len(peer.recv(left))


def record(sequence: int, begun: float) -> None:
    taken = time.monotonic() - begun
    entry = {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 2, "nnodes": 2},
        "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface"},
        "coll_perf": {"coll": "AllReduce", "coll_sn": sequence, "coll_msg_size_bytes": SIZE, "coll_exec_time_us": int(taken * 1e6)},
    }
    entry["metadata"] |= {"dump_timestamp_us": int(time.time() * 1e6), "hostname": socket.gethostname(), "pid": os.getpid()}
    entry["coll_perf"] |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": SIZE / taken / 1e9, "coll_busbw_gbs": SIZE / taken / 1e9}
    text = json.dumps(entry) + "\n"
    for part in (text[:100], text[100:]):
        log.write(part)
        log.flush()


for sequence in range(1, 1_000_000):
    begun = time.monotonic()
    time.sleep(0.1)
    if rank == 0:
        peer.sendall(b"x" * SIZE)
        receive()
    else:
        if (folder / "slow").exists():
            time.sleep(0.7)
        receive()
        peer.sendall(b"x" * SIZE)
    record(sequence, begun)
    if rank == 0 and sequence % rounds == 0:
        print(f"iteration {sequence // rounds:8d}/ 100000 | elapsed time per iteration (ms): 100.0 | lm loss: 1.0E+00 |", flush=True)
