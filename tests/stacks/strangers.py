"""Dump folders as strangers make them: any tool and naming, other versions on each machine, threads and processes beside the ranks."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from beside import BESIDE, ELASTIC, LOADER_WORKER
from dumps import FORMATS
from frameworks import Frames

Place = Frames
NAMINGS = ("pid", "rank", "table")


@dataclass
class Cluster:
    """machines x gpus ranks; `place` says where a rank stands (None: there is no dump of it), `states` what the kernel says of it."""

    machines: int
    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    order: str = "tp-dp-pp"
    states: Mapping[int, str] = field(default_factory=dict)
    known: bool = True

    @property
    def world(self) -> int:
        return self.machines * self.gpus

    def machine(self, rank: int) -> str:
        return f"gpu-{100 + rank // self.gpus}"

    def stage(self, rank: int) -> int:
        """Of ranks that are ordered tp-dp-pp or tp-pp-dp."""
        data = self.world // self.tensor // self.pipeline
        return rank // (self.tensor * data) if self.order == "tp-dp-pp" else rank // self.tensor % self.pipeline


def write_folder(folder: Path, cluster: Cluster, place: Callable[[int], Place | None], seed: int = 0) -> Path:
    """One capture; the seed chooses the tool, the names, the extra threads, and how much versions differ."""
    chance = random.Random(seed)
    dump, naming = chance.choice(sorted(FORMATS)), chance.choice(NAMINGS)
    suffix = {"py-spy json": ".json", "gdb": ".gdb"}.get(dump, chance.choice([".txt", ".log", ".dump", ""]))
    beside = chance.sample(sorted(BESIDE), chance.randrange(5))
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for rank in range(cluster.world):
        frames, pid = place(rank), 20000 + 7 * rank
        if frames is None:
            continue
        threads = [_jitter(frames, chance), *(BESIDE[name] for name in beside)]
        name = {"pid": f"{cluster.machine(rank)}_pid{pid}{suffix}", "rank": f"{cluster.machine(rank)}-rank{rank}{suffix}"}
        file = name.get(naming, f"stack.{rank:04d}{suffix}")
        (folder / file).write_bytes(FORMATS[dump](threads, pid))
        rows.append({"file": file, "machine": cluster.machine(rank), "pid": pid, "rank": rank, "state": cluster.states.get(rank, "S")})
    if naming == "table" or cluster.states or naming == "pid":  # a pid alone is no rank: who has several on a machine writes the table
        (folder / "processes.json").write_text(json.dumps(rows + _beside_ranks(folder, cluster, chance, naming, dump)))
    if cluster.known:
        write_job(folder, cluster)
    return folder


def _beside_ranks(folder: Path, cluster: Cluster, chance: random.Random, naming: str, dump: str) -> list[dict[str, object]]:
    """A launcher and some data-loading workers on each machine, half of the time."""
    rows: list[dict[str, object]] = []
    if chance.random() < 0.5 or naming == "rank":
        return rows
    for index in range(cluster.machines):
        for place, frames in enumerate([ELASTIC, LOADER_WORKER, LOADER_WORKER]):
            machine, pid = f"gpu-{100 + index}", 90000 + 10 * index + place
            file = f"{machine}_pid{pid}.txt"
            (folder / file).write_bytes(FORMATS[dump]([frames], pid))
            rows.append({"file": file, "machine": machine, "pid": pid, "rank": None, "state": "S"})
    return rows


def _jitter(frames: Frames, chance: random.Random) -> Frames:
    """Another version of Python and of torch on this machine: other install paths, and other lines in the libraries."""
    version, shift = chance.choice(["3.10", "3.11", "3.12"]), chance.choice([0, 0, 0, 3])
    return [
        (function, re.sub(r"python3\.\d+", f"python{version}", file), line + (shift if "site-packages" in file else 0))
        for function, file, line in frames
    ]


def write_job(folder: Path, cluster: Cluster) -> None:
    names = json.dumps([f"gpu-{100 + index}" for index in range(cluster.machines)])
    data = cluster.world // cluster.tensor // cluster.pipeline
    (folder / "job.toml").write_text(
        f'name = "job"\nmachines = {names}\ngpus_per_machine = {cluster.gpus}\n\n[parallelism]\n'
        f'tensor = {cluster.tensor}\npipeline = {cluster.pipeline}\ndata = {data}\nrank_order = "{cluster.order}"\n'
    )
