"""How long `minder stacks` takes for a large job, and how much memory: prints a table.

    .venv/bin/python bench/stacks.py [PROCESSES]

Writes dumps of that many processes (default 10,000; 8 a machine, six threads each, one machine reading a file) in each format to a
scratch folder, then runs `minder stacks` on it as a process of its own. "grouping" is the analysis of what was read already; "command" is
all of it, from the start of Python to the document.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "stacks"))

import places
from dumps import FORMATS, Job

RANKS, PIPELINE = 8, 5
THREADS = [places.TQDM, places.PIN_MEMORY, places.TQDM, places.PIN_MEMORY, places.TQDM]
_GROUPING = """
import sys, time
from pathlib import Path
from minder.diagnose.stacks import analyse_captures, place_ranks, read_captures, to_document
from minder.ingest.sources.jobfile import read_job
folder = Path(sys.argv[1])
topology = read_job(folder / "job.toml").topology()
captures = place_ranks(read_captures(folder), topology, {})
begin = time.process_time()
to_document(analyse_captures(captures, topology))
print(time.process_time() - begin)
"""


def write_job(folder: Path, dump: str, processes: int) -> str:
    """Writes the job's dumps, and returns the machine that holds it up."""
    job = Job(folder, processes // RANKS, RANKS, dump)
    job.stand([places.GRAD_SYNC, *THREADS]).stand([places.RECV, *THREADS], range(processes // RANKS // PIPELINE))
    job.stand([places.READ, *THREADS], [processes // RANKS - 1])
    job.topology(RANKS, PIPELINE)
    return job.machines[-1]


def measure(dump: str, processes: int) -> dict[str, float | bool]:
    with tempfile.TemporaryDirectory() as folder:
        culprit = write_job(Path(folder), dump, processes)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        grouping = subprocess.run([sys.executable, "-c", _GROUPING, folder], capture_output=True, text=True, check=True)
        begin = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-m", "minder", "stacks", folder], stdout=subprocess.PIPE)
        assert child.stdout is not None
        document = json.loads(child.stdout.read())
        _, _, used = os.wait4(child.pid, 0)
        return {
            "input_mb": size / 1e6,
            "group_s": float(grouping.stdout),
            "wall_s": time.perf_counter() - begin,
            "cpu_s": used.ru_utime + used.ru_stime,
            "mib": used.ru_maxrss / 1024,
            "right": document["evict"]["machines"] == [culprit],
        }


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"| {processes:,} processes | input MB | grouping, processor s | command, wall s | command, processor s | peak MiB | right |")
    print("|---|---|---|---|---|---|---|")
    for dump in FORMATS:
        row = measure(dump, processes)
        times = " | ".join(f"{row[name]:.2f}" for name in ("group_s", "wall_s", "cpu_s"))
        numbers = f"{row['input_mb']:.0f} | {times} | {row['mib']:.0f}"
        print(f"| {dump} | {numbers} | {'yes' if row['right'] else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
