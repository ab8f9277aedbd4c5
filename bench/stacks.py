"""How long `minder stacks` takes for a large job, and how much memory: prints a table.

    .venv/bin/python bench/stacks.py [PROCESSES]

Writes dumps of that many processes (default 10,000; 8 a machine, six threads each, one machine reading a file) in each format to a
scratch folder, then runs the command on it as a process of its own. "grouping" is the analysis without reading the files.
"""

from __future__ import annotations

import json
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
_CHILD = """
import sys, time, resource, json
from pathlib import Path
begin = time.perf_counter()
from minder.stacks import analyse_captures, read_captures, to_document
from minder.telemetry.jobfile import read_job
folder = Path(sys.argv[1])
captures = read_captures(folder)
topology = read_job(folder / "job.toml").topology()
read = time.perf_counter()
document = json.dumps(to_document(analyse_captures(captures, topology)))
end = time.perf_counter()
mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
answer = {"read_s": read - begin, "group_s": end - read, "cpu_s": time.process_time(), "mib": mib}
print(json.dumps(answer | {"evict": json.loads(document)["evict"]["machines"]}))
"""


def measure(dump: str, processes: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), processes // RANKS, RANKS, dump)
        job.stand([places.GRAD_SYNC, *THREADS]).stand([places.RECV, *THREADS], range(processes // RANKS // PIPELINE))
        job.stand([places.READ, *THREADS], [processes // RANKS - 1])
        job.topology(RANKS, PIPELINE)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", _CHILD, folder], capture_output=True, text=True, check=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer | {"wall_s": time.perf_counter() - begin, "input_mb": size / 1e6, "right": answer["evict"] == [job.machines[-1]]}


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"| {processes:,} processes | input MB | reading s | grouping s | command s | processor s | peak MiB | right |")
    print("|---|---|---|---|---|---|---|---|")
    for dump in FORMATS:
        row = measure(dump, processes)
        times = " | ".join(f"{row[name]:.2f}" for name in ("read_s", "group_s", "wall_s", "cpu_s"))
        numbers = f"{row['input_mb']:.0f} | {times} | {row['mib']:.0f}"
        print(f"| {dump} | {numbers} | {'yes' if row['right'] else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
