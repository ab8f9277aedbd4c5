"""What one world is before any number is computed: the job, its site, what will happen and to which machine.

Every choice has its own generator, so that a world without its fault is the same world. Legend: M machines, U units (a machine, or one
of its GPUs where the site exports them).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np

from minder.simulate.worlds.families.measured.kinds import CAUSES, ENDING, FAULTS, GREY, NEEDS, NUISANCES
from minder.simulate.worlds.world import NO_FAULT

__all__ = ["OF_GPU", "Happening", "Sketch", "rng_for", "sketch"]

OF_GPU = (
    *("gpu_duty_cycle_ratio", "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_fp_activity_ratio", "gpu_power_draw_watts"),
    *("gpu_graphics_activity_ratio", "gpu_temperature_celsius", "gpu_clock_hertz", "gpu_memory_used_ratio", "gpu_memory_bandwidth_ratio"),
    *("nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second", "gpu_throttle_reasons", "pcie_link_width"),
    *("gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total"),
)
_OF_HOST = (
    *("cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "rdma_throughput_bytes_per_second", "tcp_throughput_bytes_per_second"),
    *("link_errors_per_second", "link_downs_total", "tcp_retransmits_per_second", "step_seconds", "steps_total"),
)
_FABRICS = (("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second"), ("rdma_xmit_wait_per_second",), ())
_RARE = {"step_seconds": 0.3, "steps_total": 0.3, "gpu_fp_activity_ratio": 0.3, "gpu_graphics_activity_ratio": 0.3, "pcie_link_width": 0.4}
_FIRST_S, _ROWS_AT_MOST, _INTERVALS_S = 240.0, 350_000, (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0)


def rng_for(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator of its own for each purpose of each seed."""
    return np.random.default_rng((zlib.crc32("/".join(map(str, purpose)).encode()), 7411, seed))


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens to `who` (indices of machines), from start to end in seconds. size 0 to 1; card: which GPU, -1 for all."""

    name: str
    who: tuple[int, ...]
    start: float
    end: float
    size: float
    card: int = -1
    grey: bool = False


@dataclass(frozen=True, slots=True)
class Sketch:
    """One world's choices. kind, other_kind: profile of the job and of the machines in `others` (roles). exchanged: by a restart."""

    seed: int
    count: int
    cards: int
    duration_s: float
    interval_s: float
    cycle: float
    kind: str
    site: str
    metrics: tuple[str, ...]
    stages: int
    others: int
    rack: int
    switch: int
    topology: bool
    fault: Happening | None
    cause: Happening | None
    exchanged: int | None
    nuisances: tuple[Happening, ...]

    @property
    def units(self) -> int:
        """U."""
        return self.count * self.cards

    def stage_of(self, machine: int) -> int:
        """The pipeline stage: neighbours share one."""
        return machine * self.stages // self.count

    def group(self, way: str, machine: int) -> tuple[int, ...]:
        """The machines that share this one's rack, switch or stage."""
        size = {"rack": self.rack, "switch": self.switch}
        same = (lambda k: self.stage_of(k)) if way == "stage" else (lambda k: k // size[way])
        return tuple(k for k in range(self.count) if same(k) == same(machine))


def _metrics(seed: int) -> tuple[str, ...]:
    """About a fifth of the metrics are missing at a site, and always another fifth; power is there nearly always."""
    rng = rng_for(seed, "metrics")
    kept = [name for name in (*OF_GPU, *_OF_HOST) if rng.random() < _RARE.get(name, 0.97 if "power" in name or "cpu" in name else 0.77)]
    fabric = _FABRICS[int(rng.integers(len(_FABRICS)))]
    return tuple(sorted({*kept, *fabric, "gpu_power_draw_watts" if rng.random() < 0.9 else "gpu_sm_activity_ratio"}))


def _plain(seed: int, machines: int | None, duration_s: float | None) -> Sketch:
    rng = rng_for(seed, "job")
    own = 4.0 * 32.0 ** rng.random() if rng.random() < 0.85 else 128.0 * 31.25 ** rng.random()
    count, length = machines or round(own), duration_s or float(rng.uniform(900, 2400))
    cards = int(rng.choice([2, 4, 8])) * int(rng.random() < 0.35)
    cards = cards if cards and count * cards <= 256 else 1
    wanted = float(rng.choice(_INTERVALS_S))
    interval = max(wanted, min((s for s in _INTERVALS_S if count * cards * length / s <= _ROWS_AT_MOST), default=30.0))
    kind = str(rng.choice(["ddp", "ddp", "accumulation", "fsdp", "expert"]))
    stages = int(rng.choice([1, 1, 2, 4, 8]))
    others = max(2, count // 4) if rng.random() < 0.12 and count >= 10 else 0
    return Sketch(
        seed=seed,
        count=count,
        cards=cards,
        duration_s=length,
        interval_s=interval,
        cycle=float(rng.random()),
        kind=kind,
        site=str(rng.choice(["h100", "h100", "kalos", "seren"])),
        metrics=_metrics(seed),
        stages=1 if others else min(stages, max(1, count // 2)),
        others=others,
        rack=int(rng.choice([4, 6, 8, 12])),
        switch=int(rng.choice([8, 12, 24])),
        topology=bool(rng.random() < 0.6),
        fault=None,
        cause=None,
        exchanged=None,
        nuisances=(),
    )


def _cause(plain: Sketch, faulty: bool) -> Sketch:
    rng = rng_for(plain.seed, "cause")
    happens = rng.random() < (0.2 if faulty else 2 / 3)
    name = str(rng.choice([kind for kind in CAUSES if not (faulty and kind in ENDING)]))
    early, late, lasts, size = rng.uniform(0.15, 0.6), rng.uniform(0.65, 0.85), float(rng.uniform(90, 800)), float(rng.random())
    start = plain.duration_s * float(late if name in ENDING else early)
    replaced = int(rng.integers(plain.count)) if rng.random() < 0.6 and name == "restart" else None
    if not happens:
        return plain
    lasts = {"restart": 60 + 200 * size, "compilation": 30 + 100 * size, "evaluation": 60 + 240 * size}.get(name, lasts)
    end = np.inf if name in ENDING or name == "load_shift" else start + lasts
    return replace(plain, cause=Happening(name, tuple(range(plain.count)), start, end, size), exchanged=replaced)


def _nuisances(plain: Sketch) -> Sketch:
    rng = rng_for(plain.seed, "nuisances")
    chosen = rng.permutation([name for name in NUISANCES if name != "unlike_roles"])[: int(rng.choice([0, 1, 1, 2, 3]))]
    out = []
    for name in map(str, chosen):
        machine, start, size = int(rng.integers(plain.count)), float(rng.uniform(0.1, 0.85)) * plain.duration_s, float(rng.random())
        lasts = float(rng.uniform(60, 900))
        who: tuple[int, ...] = (0,) if name == "rank0_writes" else (machine,)
        if name == "hot_aisle":
            who = tuple(k for k in range(plain.count) if k % 5 == machine % 5)
        if name == "unit_change" and size < 0.4:
            who = tuple(range(plain.count)) if size < 0.2 else plain.group("rack", machine)
        lasts = {"agent_lost": np.inf, "unit_change": np.inf, "rank0_writes": np.inf, "agent_restart": 20 + 100 * size}.get(name, lasts)
        lasts = 150.0 if name == "evaluation_agent" else lasts
        out.append(Happening(name, who, 0.0 if name == "rank0_writes" else start, start + lasts, size))
    if plain.others:
        out.append(Happening("unlike_roles", (), 0.0, np.inf, 1.0))
    return replace(plain, nuisances=tuple(out))


def _culprits(plain: Sketch, name: str, rng: np.random.Generator) -> tuple[int, ...]:
    busy = {k for nuisance in plain.nuisances if len(nuisance.who) == 1 for k in nuisance.who} | {plain.exchanged}
    free = [k for k in range(plain.count) if k not in busy] or list(range(plain.count))
    machine = int(rng.choice(free))
    if not name.startswith("group"):
        second = int(rng.choice([k for k in (free if len(free) > 1 else range(plain.count)) if k != machine]))
        return tuple(sorted((machine, second))) if name == "two_slow" else (machine,)
    ways = ["rack", "switch"] + ["stage"] * (plain.stages > 1)
    group = plain.group(str(rng.choice(ways)), machine)
    return group if 2 <= len(group) <= plain.count // 2 else tuple(sorted({machine, (machine + 1) % plain.count}))


def _fault(plain: Sketch, name: str) -> Sketch:
    rng = rng_for(plain.seed, "fault", name)
    who = _culprits(plain, name, rng)
    latest = 0.55 * plain.duration_s
    start = float(rng.uniform(min(_FIRST_S, latest / 2), max(latest, _FIRST_S + 1)))
    start = {"early_stall": float(rng.uniform(20, 170)), "slow_from_start": -1e5}.get(name, min(start, 0.6 * plain.duration_s))
    grey = bool(rng.random() < 0.55) and name in GREY
    size = float(rng.uniform(0.05, 0.4) if grey else rng.uniform(0.5, 1.0))
    end = max(start, 0.0) + float(rng.uniform(300, 800)) if rng.random() < 0.25 and name in GREY else np.inf
    card = int(rng.integers(plain.cards)) if rng.random() < 0.7 else -1
    return replace(plain, fault=Happening(name, who, start, min(end, plain.duration_s), size, card, grey))


def sketch(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> Sketch:
    """Everything that `draw` would compute, as choices only. Raises ValueError for an unknown fault."""
    if fault is not None and fault != NO_FAULT and fault not in FAULTS:
        raise ValueError(f"fault: no {fault!r} in this family; it has {', '.join(FAULTS)}")
    plain = _plain(seed, machines, duration_s)
    rng = rng_for(seed, "own fault")
    seen = [name for name in FAULTS if not NEEDS.get(name) or NEEDS[name] & set(plain.metrics)]
    own = str(rng.choice([name for name in seen if plain.count >= 8 or not name.startswith(("group", "two"))]))
    faulty = bool(rng.random() < 2 / 3)
    plain = _nuisances(_cause(plain, faulty))
    chosen = fault or (own if faulty else NO_FAULT)
    return plain if chosen == NO_FAULT else _fault(plain, chosen)
