"""Threads beside the main one, and processes beside the ranks."""

from __future__ import annotations

from frameworks import LOOP, NEXT, SITE, STD, TORCH, Frames

BESIDE: dict[str, Frames] = {
    "pin memory": [
        ("select", f"{STD}/selectors.py", 416),
        ("wait", f"{STD}/multiprocessing/connection.py", 931),
        ("get", f"{STD}/multiprocessing/queues.py", 113),
        ("do_one_step", f"{TORCH}/utils/data/_utils/pin_memory.py", 32),
        ("_pin_memory_loop", f"{TORCH}/utils/data/_utils/pin_memory.py", 55),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "feeder": [
        ("wait", f"{STD}/threading.py", 320),
        ("_feed", f"{STD}/multiprocessing/queues.py", 231),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "progress": [("wait", f"{STD}/threading.py", 324), ("run", f"{SITE}/tqdm/_monitor.py", 60), ("_bootstrap", f"{STD}/threading.py", 973)],
    "wandb": [
        ("wait", f"{STD}/threading.py", 324),
        ("_loop_check_status", f"{SITE}/wandb/sdk/wandb_run.py", 302),
        ("check_network_status", f"{SITE}/wandb/sdk/wandb_run.py", 358),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "tensorboard": [
        ("get", f"{STD}/queue.py", 171),
        ("_run", f"{SITE}/tensorboard/summary/writer/event_file_writer.py", 269),
        ("run", f"{SITE}/tensorboard/summary/writer/event_file_writer.py", 244),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "own prefetcher": [
        ("wait", f"{STD}/threading.py", 320),
        ("put", f"{STD}/queue.py", 140),
        ("_fill", "/app/data/prefetch.py", 30),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "checkpoint writer": [
        ("wait", f"{STD}/threading.py", 320),
        ("_write_loop", "/app/ckpt.py", 120),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "pool": [
        ("_worker", f"{STD}/concurrent/futures/thread.py", 81),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "metrics server": [
        ("select", f"{STD}/selectors.py", 416),
        ("serve_forever", f"{STD}/socketserver.py", 232),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "event loop": [
        ("select", f"{STD}/selectors.py", 469),
        ("_run_once", f"{STD}/asyncio/base_events.py", 1871),
        ("run_forever", f"{STD}/asyncio/base_events.py", 603),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
    "gpu sampler": [
        ("sleep", "/app/monitor.py", 40),
        ("sample_power", "/app/monitor.py", 41),
        ("run", f"{STD}/threading.py", 953),
        ("_bootstrap", f"{STD}/threading.py", 973),
    ],
}
LOADER_WORKER: Frames = [
    ("poll", f"{STD}/multiprocessing/connection.py", 257),
    ("get", f"{STD}/multiprocessing/queues.py", 113),
    ("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 318),
    ("run", f"{STD}/multiprocessing/process.py", 108),
    ("_launch", f"{STD}/multiprocessing/popen_fork.py", 71),
    *NEXT,
    *LOOP["plain"],
]
ELASTIC: Frames = [
    ("_invoke_run", f"{TORCH}/distributed/elastic/agent/server/api.py", 870),
    ("run", f"{TORCH}/distributed/elastic/agent/server/api.py", 696),
    ("launch_agent", f"{TORCH}/distributed/launcher/api.py", 260),
    ("<module>", "/opt/conda/bin/torchrun", 8),
]
