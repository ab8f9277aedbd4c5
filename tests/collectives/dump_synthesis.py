"""Synthetic Flight Recorder dumps: a small simulator of ranks that launch collectives, with a fault put into one of them.

Every rank runs a program of its own (tensor, pipeline and data parallel groups, 1F1B). An operation completes when all its
participants have launched it with the same signature; a rank that waits for one that never completes stops there. What each rank
has launched and seen complete by then is written in the recorder's formats. The analyser is not told anything of this.
"""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_NS = 1_760_000_000_000_000_000
Program = list[dict[str, Any]]


@dataclass
class Layout:
    """tp fastest, then dp, then pp, as in `rank_order = "tp-dp-pp"`."""

    tp: int
    dp: int
    pp: int
    microbatches: int = 4
    layers: int = 2
    steps: int = 3
    groups: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def world(self) -> int:
        return self.tp * self.dp * self.pp

    def __post_init__(self) -> None:
        self.groups["0"] = ("default_pg", tuple(range(self.world)))
        self.of: dict[tuple[str, int], str] = {("world", rank): "0" for rank in range(self.world)}
        strides = {"tp": (1, self.tp), "dp": (self.tp, self.dp), "pp": (self.tp * self.dp, self.pp)}
        for axis, (stride, size) in strides.items():
            for rank in range(self.world):
                if size > 1 and (rank // stride) % size == 0:
                    ranks = tuple(rank + k * stride for k in range(size))
                    name = str(len(self.groups))
                    self.groups[name] = (f"{axis.upper()}_GROUP", ranks)
                    self.of.update({(axis, member): name for member in ranks})

    def stage(self, rank: int) -> int:
        return rank // (self.tp * self.dp)

    def job_toml(self) -> str:
        names = ", ".join(f'"node-{k}"' for k in range(self.world))
        return (
            f'name = "synthetic"\nmachines = [{names}]\ngpus_per_machine = 1\n[parallelism]\n'
            f'tensor = {self.tp}\npipeline = {self.pp}\ndata = {self.dp}\nrank_order = "tp-dp-pp"\n'
        )


def program(layout: Layout, rank: int, rng: random.Random) -> Program:
    """What a healthy rank does, step after step."""
    found: Program = []
    stage, stride = layout.stage(rank), layout.tp * layout.dp
    before, after = (rank - stride if stage else None), (rank + stride if stage + 1 < layout.pp else None)
    pp, tp, dp = layout.of.get(("pp", rank)), layout.of.get(("tp", rank)), layout.of.get(("dp", rank))

    def compute(kind: str) -> None:
        for layer in range(layout.layers):
            found.append({"do": "compute", "s": rng.uniform(0.009, 0.011)})
            if tp:
                found.append(collective(tp, ("all_gather", "all_reduce", "reduce_scatter")[layer % 3], 64 * (layer + 1), kind))

    def forward() -> None:
        if before is not None:
            found.append(messages(pp, [("recv", before)]))
        compute("forward")

    def backward() -> None:
        compute("backward")
        if before is not None:
            found.append(messages(pp, [("send", before)], blocks=False))

    warm = min(layout.pp - 1 - stage, layout.microbatches)
    for _ in range(layout.steps):
        for _ in range(warm):
            forward()
            if after is not None:
                found.append(messages(pp, [("send", after)], blocks=False))
        for _ in range(layout.microbatches - warm):
            forward()
            if after is not None:
                found.append(messages(pp, [("send", after), ("recv", after)]))
            backward()
        for _ in range(warm):
            if after is not None:
                found.append(messages(pp, [("recv", after)]))
            backward()
        if dp:
            found += [collective(dp, "all_reduce", 1000 + k, "gradients", blocks=False) for k in range(3)]
        found.append(collective("0", "all_reduce", 1, "norm"))
        found.append({"do": "compute", "s": 0.005})
    return found


def collective(group: str, verb: str, size: int, tag: str, blocks: bool = True) -> dict[str, Any]:
    return {"do": "collective", "group": group, "verb": verb, "size": size, "dtype": "Float", "blocks": blocks, "tag": tag}


def messages(group: str | None, parts: list[tuple[str, int]], blocks: bool = True) -> dict[str, Any]:
    return {"do": "messages", "group": group, "parts": parts, "blocks": blocks, "size": 4096}


@dataclass
class Op:
    """One launched operation; `done_s` is None while it is open."""

    rank: int
    item: dict[str, Any]
    sequence: int
    p2p: int
    created_s: float
    keys: list[tuple[Any, ...]]
    order: int
    done_s: float | None = None


class Simulation:
    """Runs programs until nobody can go on. `dead` are operations (group, sequence) that never complete."""

    def __init__(self, layout: Layout, programs: list[Program], dead: set[tuple[str, int]] | None = None) -> None:
        self.layout, self.programs, self.dead = layout, programs, dead or set()
        size = layout.world
        self.ops: list[list[Op]] = [[] for _ in range(size)]
        self.now = [0.0] * size
        self._at = [0] * size
        self._sequences: list[Counter[str]] = [Counter() for _ in range(size)]
        self._p2p: list[Counter[str]] = [Counter() for _ in range(size)]
        self._pairs: Counter[tuple[Any, ...]] = Counter()
        self._parties: dict[tuple[Any, ...], dict[int, Op]] = defaultdict(dict)
        self._done_s: dict[tuple[Any, ...], float | None] = {}

    def run(self) -> None:
        going = True
        while going:
            going = False
            for rank in range(self.layout.world):
                while self._advance(rank):
                    going = True

    def _advance(self, rank: int) -> bool:
        if self._at[rank] >= len(self.programs[rank]):
            return False
        item = self.programs[rank][self._at[rank]]
        if item["do"] == "stop":
            return False
        if item["do"] == "compute":
            self.now[rank] += item["s"]
        else:
            last = self.ops[rank][-1] if self.ops[rank] else None
            op = last if last is not None and last.item is item else self._launch(rank, item)
            if item["blocks"]:
                self._complete(op)
                if op.done_s is None:
                    return last is not op
                self.now[rank] = max(self.now[rank], op.done_s)
        self._at[rank] += 1
        return True

    def _launch(self, rank: int, item: dict[str, Any]) -> Op:
        group = item["group"]
        keys: list[tuple[Any, ...]]
        if item["do"] == "collective":
            self._sequences[rank][group] += 1
            keys = [(group, self._sequences[rank][group])]
        else:
            self._p2p[rank][group] += 1
            keys = []
            for verb, peer in item["parts"]:
                ends = (rank, peer) if verb == "send" else (peer, rank)
                self._pairs[(rank, group, *ends)] += 1
                keys.append((group, "p2p", *ends, self._pairs[(rank, group, *ends)]))
        op = Op(rank, item, self._sequences[rank][group], self._p2p[rank][group], self.now[rank], keys, len(self.ops[rank]))
        self.ops[rank].append(op)
        for key in keys:
            self._parties[key][rank] = op
        return op

    def _complete(self, op: Op) -> None:
        times = [self._key_done(key) for key in op.keys]
        if op.done_s is None and all(time is not None for time in times):
            op.done_s = max(time for time in times if time is not None)

    def _key_done(self, key: tuple[Any, ...]) -> float | None:
        """Nothing changes any more once every party has come."""
        if key not in self._done_s:
            wanted = 2 if key[1] == "p2p" else len(self.layout.groups[key[0]][1])
            if len(self._parties[key]) < wanted:
                return None
            self._done_s[key] = self._all_done(key)
        return self._done_s[key]

    def _all_done(self, key: tuple[Any, ...]) -> float | None:
        parties = self._parties[key]
        if (key[0], key[1]) in self.dead:
            return None
        if len({(op.item.get("verb"), op.item["size"], op.item.get("dtype")) for op in parties.values()}) > 1:
            return None
        return max(op.created_s for op in parties.values()) + 0.001

    def finish(self) -> None:
        for ops in self.ops:
            for op in ops:
                self._complete(op)


def entries_of(simulation: Simulation, rank: int, until_s: float, skew_s: float) -> list[dict[str, Any]]:
    """The recorder's entries of one rank (version 2.x), oldest first, as seen at `until_s`."""
    layout, found = simulation.layout, []
    local = {name: k for k, name in enumerate(name for name, (_, ranks) in layout.groups.items() if rank in ranks)}
    operations: Counter[str] = Counter()
    for op in simulation.ops[rank]:
        if op.created_s > until_s:
            continue
        done = op.done_s is not None and op.done_s <= until_s
        description, ranks = layout.groups[op.item["group"]]
        shared = {
            "pg_id": local[op.item["group"]], "process_group": (op.item["group"], description), "thread_name": "python", "thread_id": "1",
            "collective_seq_id": op.sequence, "p2p_seq_id": op.p2p, "timeout_ms": 600000,
            "time_created_ns": START_NS + int((op.created_s + skew_s) * 1e9), "time_discovered_started_ns": None,
        }  # fmt: skip
        finished = START_NS + int((op.done_s + skew_s) * 1e9) if done and op.done_s is not None else None
        state = {"state": "completed" if done else "scheduled", "time_discovered_completed_ns": finished, "retired": done}
        parts = op.item.get("parts")
        names = [f"nccl:{op.item['verb']}"] if parts is None else [
            f"nccl:{verb} {ranks.index(rank)}{'->' if verb == 'send' else '<-'}{ranks.index(peer)}" for verb, peer in parts
        ]  # fmt: skip
        batch = parts is not None and len(parts) > 1
        for name in names + (["nccl:coalesced"] if batch else []):
            operations[op.item["group"]] += 1
            is_open = batch and name != "nccl:coalesced"
            own = {"state": "scheduled", "time_discovered_completed_ns": None, "retired": False} if is_open else state
            given, taken = _shapes(name, op.item["size"], len(ranks))
            types = [] if name == "nccl:coalesced" else [op.item.get("dtype", "Float")]
            found.append(
                {**shared, **own, "record_id": len(found), "op_id": operations[op.item["group"]], "profiling_name": name,
                 "input_sizes": given, "input_dtypes": types, "output_sizes": taken, "output_dtypes": types, "is_p2p": parts is not None}
            )  # fmt: skip
    return found


def _shapes(name: str, size: int, ranks: int) -> tuple[list[list[int]], list[list[int]]]:
    """Input and output sizes as NCCL wants them: a gather gives more than it takes."""
    if name == "nccl:coalesced":
        return [], []
    return [[size * ranks if "reduce_scatter" in name else size]], [[size * ranks if "all_gather" in name else size]]


def status_of(entries: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        sequence = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
        item = found.setdefault(
            str(entry["pg_id"]), {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1}
        )
        item["last_enqueued_collective"] = sequence
        if entry["state"] == "completed":
            item["last_completed_collective"] = sequence
    return found


def document(layout: Layout, rank: int, entries: list[dict[str, Any]], style: str, ring: int) -> dict[str, Any]:
    """One rank's dump. style: nccl, active (only what is open, as a watchdog dumps it), old (keys of version 1), gloo."""
    config = {
        name: {"name": name, "desc": description, "ranks": str(list(ranks))}
        for name, (description, ranks) in layout.groups.items() if rank in ranks
    }  # fmt: skip
    status = status_of(entries)
    kept = entries[-ring:] if ring else entries
    if style == "active":
        batches = {(e["pg_id"], e["p2p_seq_id"]): e["retired"] for e in entries if e["profiling_name"] == "nccl:coalesced"}
        kept = [e for e in kept if not e["retired"] and not batches.get((e["pg_id"], e["p2p_seq_id"] if e["is_p2p"] else -1), False)]
    if style == "old":
        names = {"collective_seq_id": "seq_id"}
        renamed = [{names.get(key, key): value for key, value in entry.items() if "dtypes" not in key} for entry in kept]
        return {"version": "1.5", "entries": renamed, "pg_config": config}
    if style == "gloo":
        return {"version": "2.10", "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}, "comm_lib_version": "",
                "pg_status": {}, "entries": _as_gloo(kept)}  # fmt: skip
    return {"version": "2.9", "pg_config": config, "nccl_version": "2.27.3", "pg_status": status, "entries": kept}


def _as_gloo(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """gloo records no point to point, no times of completion, and leaves the state at "scheduled"."""
    return [
        {**entry, "process_group": (entry["process_group"][0], "default_pg" if entry["process_group"][0] == "0" else "undefined"),
         "profiling_name": entry["profiling_name"].replace("nccl", "gloo"), "state": "scheduled", "time_discovered_completed_ns": None}
        for entry in entries if not entry["is_p2p"]
    ]  # fmt: skip


def write(folder: Path, documents: dict[int, dict[str, Any]], layout: Layout, as_json: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(layout.job_toml(), encoding="utf-8")
    for rank, item in documents.items():
        if as_json:
            (folder / f"rank_{rank:02d}.json").write_text(json.dumps(item), encoding="utf-8")
        else:
            (folder / f"_dump_{rank}").write_bytes(pickle.dumps(item, protocol=2))
