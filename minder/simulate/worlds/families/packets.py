"""Packets: the network decides. Collectives are flows through a fat tree, and what is exported is read off flows and waits.

Machines sit under leaf switches whose uplinks go to spines. In each step a machine loads, computes and exchanges: with its replica (stages
of a pipeline, experts), then in a ring or tree with its data-parallel peers. A collective takes one rate in all ports that it crosses, and
collectives share ports max-min fair; where more is offered than a port carries there are marks, pauses and waits. A step ends when its last
machine is done: a machine's time is a row of phases, and a metric is a level of each phase, averaged over the scrape's window or met at a
moment. Faults, nuisances and causes turn knobs: capacities, error rates, routes, stretches of computing.
Legend: R scrapes, M machines, K metrics, S steps, F phases, E epochs (5 s over which knobs and rates stand still), L edges (one machine
sends to another), P ports, D leaves, X the ports of an edge or parts of a state, I pairs of edge and port, C collectives, N samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]

NAME = "packets"
_EPOCH_S, _BEFORE_S, _SPINES = 5.0, 100.0, 4  # steps begin so long before the recording: no window is empty
_CELLS, _STEPS = 110_000, 250_000  # scrapes times machines, steps times machines: what a second or so computes
_LOAD, _COMPUTE, _RECV, _WAIT, _SEND, _WRITE, _REST, _STUCK, _DOWN = range(9)
# Factors of 1 multiply, all else adds up from 0; flags hold as they are. stop: 1 a kernel spins, 2 the process is gone, 3 it waits as its
# peers do, 4 as 2 from the next checkpoint on. unit: a metric's unit changes. past: what counters held before.
_LINKS = ("tx", "rx", "path", "core", "spine", "pcie", "loss", "pause")
_FACTORS = {"clock", "drag", "work", "load", "write", "nvl", "power", "net", *_LINKS[:6]}
_FLAGS = {"stop", "gone", "frozen", "blank", "halted", "down", "unit", "reasons"}
_OF_GPU = {"clock", "drag", "nvl", "heat", "power", "reasons", "ecc"}  # of one device, where a world has devices


class _Row(NamedTuple):
    """What a fault, nuisance or cause does: knob -> value or (least, most[, shape over time]). span_s: how long; None: to the end."""

    text: str
    knobs: dict[str, Any]
    span_s: tuple[float, float] | None = None
    shape: str = "hold"
    where: str = "one"


_SOME, _SHORT, _EVER = (150.0, 900.0), (50.0, 260.0), (np.inf, np.inf)
_GREY: dict[str, _Row] = {
    "clock_pinned": _Row("A clock stays low.", {"clock": (0.5, 0.8)}), "nvlink_lane": _Row("NVLink lanes are lost.", {"nvl": (0.25, 0.6)}),
    "bad_route": _Row("A route is full.", {"path": (0.25, 0.6)}), "nic_slow": _Row("A port is slow.", {"tx": (0.3, 0.7), "rx": (0.3, 0.7)}),
    "pcie_narrow": _Row("PCIe lanes are lost.", {"pcie": (0.25, 0.5)}), "storage_slow": _Row("One host reads slowly.", {"load": (8, 30)}),
    "slow_memory": _Row("A GPU's memory is slow.", {"drag": (1.25, 1.8)}), "freezes": _Row("A host freezes.", {"stop": 1}, None, "blink"),
    "hot_throttle": _Row("A machine gets hot and throttles.", {"clock": (0.5, 0.8), "heat": (8, 18, "hold"), "reasons": 64}, shape="pulse"),
    "fan_failing": _Row("A fan wears out: ever hotter, then slower.", {"heat": (14, 26), "clock": (0.55, 0.8)}, shape="ramp"),
    "dirty_optics": _Row("Dirty optics lose packets, which are sent again.", {"loss": (8e-4, 4e-3), "dirt": (20, 300)}),
    "processor_taken": _Row("A process takes the processors.", {"cpu": (0.35, 0.7), "drag": (1.3, 2.2), "load": (1.5, 3)}),
    "launch_stutter": _Row("The host stops launching for moments.", {"drag": (2, 5), "cpu": (0.1, 0.4)}, shape="blink"),
    "memory_leak": _Row("Host memory fills up until the machine swaps.", {"mem": (0.3, 0.5), "drag": (1.5, 2.5)}, shape="ramp"),
    "pause_storm": _Row("A network card asks its switch to pause without end.", {"pause": (0.4, 0.75)}),
    "two_slow_clocks": _Row("Two machines run at a low clock.", {"clock": (0.5, 0.8)}, where="two"),
    "two_slow_links": _Row("Two ports run at a lower speed.", {"tx": (0.3, 0.6), "rx": (0.3, 0.6)}, where="two"),
    "rack_power": _Row("A rack's power is capped.", {"clock": (0.55, 0.8), "reasons": 128}, where="rack"),
    "leaf_uplinks": _Row("Most uplinks of a leaf switch are lost.", {"core": (0.04, 0.15)}, where="rack"),
    "leaf_errors": _Row("A leaf switch damages packets.", {"loss": (8e-4, 4e-3), "dirt": (10, 150)}, where="rack"),
    "stage_throttled": _Row("All machines of a stage throttle.", {"clock": (0.6, 0.8), "reasons": 4}, where="stage"),
}  # fmt: skip
_LOUD: dict[str, _Row] = {
    "machine_dead": _Row("A machine dies.", {"gone": 1, "stop": 2}), "driver_frozen": _Row("The driver hangs.", {"frozen": 1, "stop": 1}),
    "hang": _Row("A kernel never ends.", {"stop": 1}), "worker_crash": _Row("A worker fails.", {"mem": (-0.25, -0.1), "stop": 2}),
    "gpu_off_bus": _Row("A GPU is gone.", {"blank": 1, "stop": 2}), "worker_stopped": _Row("A worker stops.", {"halted": 1, "stop": 2}),
    "link_flaps": _Row("A link flaps.", {"tx": (0.04, 0.15), "rx": (0.04, 0.15), "downs": (0.2, 0.4), "dirt": (50, 500)}, shape="blink"),
    "ecc_burst": _Row("Memory errors mount up and kernels wait.", {"ecc": (0.02, 0.3), "drag": (1.2, 1.6)}),
    "nic_down": _Row("A port goes down and all wait for its flows.", {"downs": (0.2, 0.6, "once"), "dirt": (50, 900), "stop": 3}),
    "out_of_memory": _Row("Host memory fills up until the kernel kills.", {"mem": (0.3, 0.6, "ramp"), "stop": (2, 2, "late")}),
    "disk_full": _Row("A disk fills up: the next checkpoint cannot be written.", {"disk": (0.5, 0.7, "ramp"), "stop": 4}),
    "rack_dead": _Row("A rack falls silent, minutes before the rest stands.", {"gone": 1, "stop": (2, 2, "late")}, where="rack"),
}  # fmt: skip
_CAUSES: dict[str, _Row] = {
    "user_bug": _Row("The user's code fails.", {"down": 1}), "slow_saves": _Row("Checkpoints are slow.", {"write": (4, 12)}, _SOME),
    "job_ends": _Row("The job has done its work.", {"down": 1}), "exchange": _Row("A restart brings a spare.", {"down": 1}, _SHORT),
    "deadlock": _Row("All wait for each other.", {"stop": 3}), "restart": _Row("The job starts again.", {"down": 1}, _SHORT),
    "load_shift": _Row("Sequences become longer or shorter.", {"work": (0.6, 1.5)}),
    "storage_slow_for_all": _Row("Storage is slow for all, on and off.", {"load": (4, 25)}, _SOME, "pulse"),
    "loading_slow_for_all": _Row("Data takes ever longer to load, everywhere.", {"load": (3, 15)}, _SOME, "ramp"),
    "congestion": _Row("Other jobs fill the spines.", {"spine": (0.06, 0.3), "marks": (0.0, 0.05)}, _SOME, "pulse"),
    "evaluation": _Row("The job evaluates: less work, little traffic.", {"net": (0.02, 0.1), "work": (0.5, 0.9)}, _SHORT),
    "hot_room": _Row("The room gets hot and all GPUs slow down a little.", {"heat": (5, 12), "clock": (0.88, 0.97)}, None, "ramp"),
}  # fmt: skip
_NUISANCES: dict[str, _Row] = {
    "unit_changed": _Row("A unit changes.", {"unit": 1}), "corrected_errors": _Row("A port corrects its errors.", {"dirt": (3, 60)}, _SOME),
    "exporter_off": _Row("An exporter restarts.", {"gone": 1}, (15, 100)), "capped": _Row("A cap is idle.", {"reasons": 4}, None, "pulse"),
    "warm_slot": _Row("A slot is warm.", {"heat": (4, 11)}, _EVER), "old_counters": _Row("Old events count.", {"past": (1, 60)}, _EVER),
    "metrics_lost": _Row("GPU metrics are lost.", {"blank": 1}, _SOME), "thrifty": _Row("A chip is thrifty.", {"power": (0.8, 0.9)}, _EVER),
    "frozen": _Row("Gauges hang.", {"frozen": 1}, (40, 400)), "hot_aisle": _Row("A rack warms.", {"heat": (3, 9)}, None, "ramp", "rack"),
    "rank_writes": _Row("A rank writes on.", {"write": (2, 6)}, _EVER), "light": _Row("Its work is light.", {"work": (0.75, 0.95)}, _EVER),
    "chatter": _Row("A port pauses.", {"chatter": (2, 8)}, _SOME), "cron": _Row("A task recurs.", {"cpu": (0.2, 0.6)}, None, "blink"),
    "second_tenant": _Row("Another tenant computes and sends.", {"cpu": (0.1, 0.45), "mem": (0.05, 0.25), "tcp": (1, 6)}, _SOME),
    "backup_traffic": _Row("A backup uses the port in its pauses.", {"stray": (0.03, 0.2), "tcp": (1, 5)}, _SOME),
    "marked_path": _Row("Packets are marked on a path that still carries them all.", {"marks": (0.01, 0.1)}, _SOME),
}  # fmt: skip
_FAULTS = {**_GREY, **_LOUD}
FAULTS, CAUSES, NUISANCES = ({name: row.text for name, row in table.items()} for table in (_FAULTS, _CAUSES, _NUISANCES))

# Who exports it (d DCGM, n NVML, v a vendor's exporter, h host, r RoCE, i InfiniBand, t TCP); how far it moves by itself, as a share and in
# its unit (None: by its logarithm); its level by phase: load, compute, recv, wait, send, write, rest, stuck, down.
_METRICS: dict[str, tuple[Any, ...]] = {
    "gpu_duty_cycle_ratio": ("dnv", 0.006, 0.002, (0.08, 0.99, 0.97, 0.98, 0.99, 0.04, 0.98, 0.99, 0.0)),
    "gpu_power_draw_watts": ("dnv", 0.015, 1.5, (0.05, 0.85, 0.14, 0.16, 0.30, 0.04, 0.16, 0.14, 0.0)),
    "gpu_temperature_celsius": ("dnv", 0.004, 0.4), "gpu_clock_hertz": ("dn", 0.002, 0.0), "gpu_memory_used_ratio": ("dn", 0.0005, 0.0),
    "gpu_sm_activity_ratio": ("d", 0.02, 0.001, (0.02, 0.80, 0.09, 0.11, 0.22, 0.01, 0.11, 0.06, 0.0)),
    "gpu_tensor_activity_ratio": ("d", 0.02, 0.001, (0.0, 0.48, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
    "gpu_graphics_activity_ratio": ("d", 0.008, 0.001, (0.05, 0.97, 0.95, 0.95, 0.97, 0.03, 0.95, 0.98, 0.0)),
    "gpu_memory_bandwidth_ratio": ("dv", 0.02, 0.001, (0.03, 0.50, 0.02, 0.02, 0.18, 0.06, 0.02, 0.01, 0.0)),
    "nvlink_bandwidth_bytes_per_second": ("d", 0.03, 1e6, (0.0, 0.5, 0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0)),
    "pcie_bandwidth_bytes_per_second": ("dv", 0.04, 5e6, (0.3, 0.05, 0.01, 0.01, 0.1, 0.5, 0.01, 0.0, 0.0)),
    "gpu_ecc_uncorrectable_total": ("dv", 0.0, 0.0), "gpu_throttle_reasons": ("dn", 0.0, 0.0), "pcie_link_width": ("dn", 0.0, 0.0),
    "cpu_usage_ratio": ("h", 0.05, 0.004, (0.45, 0.16, 0.12, 0.13, 0.17, 0.30, 0.13, 0.10, 0.01)),
    "memory_usage_ratio": ("h", 0.002, 0.001), "disk_usage_ratio": ("h", 0.0, 0.0002), "processes_stopped": ("h", 0.0, 0.0),
    "rdma_throughput_bytes_per_second": ("ri", 0.015, 2e5), "pfc_tx_packets_per_second": ("r", 0.3, None),
    "ecn_packets_per_second": ("r", 0.2, None), "cnp_packets_per_second": ("r", 0.2, None), "rdma_xmit_wait_per_second": ("i", 0.2, None),
    "link_errors_per_second": ("ri", 0.6, None), "link_downs_total": ("ri", 0.0, 0.0), "tcp_throughput_bytes_per_second": ("t", 0.3, 2e5),
    "tcp_retransmits_per_second": ("t", 0.5, None),
}  # fmt: skip


class _Knobs:
    """What is turned, by epoch and machine; a knob that nothing turns takes no room."""

    def __init__(self, duration_s: float, machines: int) -> None:
        self.start_E, self.every_M = np.arange(int(np.ceil(duration_s / _EPOCH_S)) + 1) * _EPOCH_S, np.arange(machines)
        self.turned: dict[str, np.ndarray] = {}

    def turn(self, row: _Row, members: np.ndarray, begin_s: float, end_s: float, rng: np.random.Generator) -> None:
        """Lets a row act on these machines in the epochs that begin in [begin_s, end_s)."""
        spans = ((90, 240), (90, 420), (20, 90), (15, 90), (5, 25), (45, 140))
        late_s, rise_s, on_s, off_s, short_s, rest_s = (rng.uniform(*span) for span in spans)
        age_E = self.start_E - begin_s
        profiles = {"hold": age_E >= 0, "late": age_E >= late_s, "once": age_E < _EPOCH_S, "ramp": np.clip(age_E / rise_s, 0.0, 1.0),
                    "pulse": age_E % (on_s + off_s) < on_s, "blink": age_E % (short_s + rest_s) < short_s}  # fmt: skip
        for name, spec in row.knobs.items():
            least, most, shape = (*spec, row.shape)[:3] if isinstance(spec, tuple) else (spec, spec, row.shape)
            size_M = rng.uniform(least, most, len(members) if len(members) < len(self.every_M) else 1)  # a cause is alike for all
            shape_EM = (((age_E >= 0) & (self.start_E < end_s)) * profiles[shape])[:, None]
            knob_EM = self.turned.setdefault(name, np.full((len(age_E), len(self.every_M)), float(name in _FACTORS)))
            now_EM = knob_EM[:, members]
            if name in _FLAGS:
                knob_EM[:, members] = np.where((shape_EM > 0) & (now_EM == 0), np.round(size_M), now_EM)
            else:
                knob_EM[:, members] = now_EM * (1.0 + (size_M - 1.0) * shape_EM) if name in _FACTORS else now_EM + size_M * shape_EM

    def read(self, name: str, at: Any, *, sound: bool = False, count: bool = False) -> np.ndarray:
        """A knob at epochs, (M,) or (R, M). sound: of a device that it does not reach. count: of a rate of events, how many so far."""
        if name not in self.turned or (sound and name in _OF_GPU):
            return np.full(len(self.every_M), float(name in _FACTORS))
        knob_EM = np.floor(np.cumsum(self.turned[name], axis=0) * _EPOCH_S + 1e-3) if count else self.turned[name]
        return np.asarray(knob_EM[at, self.every_M])

    def stretch(self, at: Any, *, sound: bool = False) -> np.ndarray:
        """How much longer computing takes: what depends on launches and memory, on the clock, and on NVLink."""
        drag, clock, nvl = (self.read(name, at, sound=sound) for name in ("drag", "clock", "nvl"))
        return np.asarray(drag * (0.15 + 0.85 / clock) * (0.78 + 0.22 / nvl))


class _Job:
    """What lasts: sizes, layout, and leaf_M, replica_M, ring_M: where each machine belongs; role_M: 1 is rollout. nic: bytes a second."""

    def __init__(self, seed: int, machines: int | None, duration_s: float | None) -> None:
        rng = np.random.default_rng([seed, 1])
        far = 2.0 * rng.uniform() - 1.0  # half of the jobs have 40 machines or fewer, thousands are rare
        self.count = count = machines or round(40.0 * (10.0**far if far < 0 else 100.0 ** (far**2.5)))
        long_s, pause_s = round(rng.uniform(900, 3600)), rng.choice([1, 2, 5, 10, 15, 30], p=[0.16, 0.12, 0.28, 0.22, 0.14, 0.08])
        self.duration_s = duration_s or float(max(900.0, min(long_s, _CELLS * 15 // count)))
        self.scrape_s = float(max(pause_s, *(s for s in (0, 2, 5, 10, 15, 30) if s < 2.0 * count * self.duration_s / _CELLS)))
        self.step_s = min(60.0, max(float(np.clip(np.exp(rng.normal(1.8, 1.3)), 0.3, 60.0)), count * self.duration_s / _STEPS))
        kind = str(rng.choice(["data", "tensor", "pipeline", "expert"], p=[0.3, 0.1, 0.38, 0.22]))
        widths = {"data": 1, "tensor": 2, "pipeline": int(rng.choice([2, 3, 4, 8])), "expert": int(rng.choice([2, 4, 8]))}
        width = min(widths[kind], max(1, count // 2))
        self.width, self.kind, self.nic = width, kind if width > 1 else "data", float(rng.choice([25e9, 50e9, 100e9, 200e9, 400e9]))
        leaf_size, index_M = max(2, min(int(rng.choice([4, 8, 16, 32])), count // 3)), np.arange(count)
        self.leaf_M = np.minimum((rng.permutation(count) if rng.uniform() < 0.25 else index_M) // leaf_size, max(count // leaf_size - 1, 0))
        trainers = max(2 * width, int(count * rng.uniform(0.35, 0.7))) if rng.uniform() < 0.13 and count >= 8 else count
        self.replica_M = np.where(index_M < trainers, index_M // width, trainers // width + 1 + index_M - trainers)
        self.ring_M, self.role_M = np.where(index_M < trainers, index_M % width, width), (index_M >= trainers).astype(int)


class _Flows:
    """The edges of one kind of collective among the members of each team, the ports that they cross, and the rates that these allow."""

    def __init__(self, job: _Job, team_M: np.ndarray, tree: bool, rng: np.random.Generator) -> None:
        order_M, self.team_M = np.argsort(team_M, kind="stable"), np.unique(team_M, return_inverse=True)[1]
        teams = np.split(order_M, np.flatnonzero(np.diff(team_M[order_M])) + 1)
        fathers = [team[np.maximum(np.arange(len(team)) - 1, 0) // 2] for team in teams]
        pairs = [(np.append(a, b), np.append(b, a)) if tree else (a, np.roll(a, -1)) for a, b in zip(teams, fathers, strict=True)]
        self.source_L, self.target_L = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
        from_L, to_L, spine_L = job.leaf_M[self.source_L], job.leaf_M[self.target_L], rng.integers(0, _SPINES, len(self.source_L))
        up_L, down_L = (3 * job.count + leaf_L * _SPINES + spine_L for leaf_L in (from_L, job.leaf_M.max() + 1 + to_L))
        # Ports: of each machine for sending, receiving and its route (M each); of each leaf and spine, up and down.
        self.ports_LX = np.stack([self.source_L, 2 * job.count + self.source_L, up_L, down_L, job.count + self.target_L], axis=1)
        self.used_LX = (from_L != to_L)[:, None] | np.array([True, True, False, False, True])  # below one leaf nothing goes up
        self.port_I, self.team_I = self.ports_LX[self.used_LX], self.team_M[self.source_L[np.nonzero(self.used_LX)[0]]]
        self.first_C = np.flatnonzero(np.diff(self.team_I, prepend=-1))

    def shares(self, capacity_P: np.ndarray) -> np.ndarray:
        """(C,): bytes a second on each edge of a collective: all grow alike until a port is full, the others go on."""
        rate_C, open_C, left_P = np.zeros(len(self.first_C)), np.ones(len(self.first_C), dtype=bool), capacity_P.copy()
        while open_C.any():
            flows_P = np.bincount(self.port_I, weights=open_C[self.team_I], minlength=len(capacity_P))
            limit_C = np.minimum.reduceat((left_P / np.maximum(flows_P, 1e-9))[self.port_I], self.first_C)
            full_C = open_C & (limit_C <= limit_C[open_C].min() * 1.03)
            rate_C[full_C] = limit_C[full_C]
            used_P = np.bincount(self.port_I, weights=(rate_C * full_C)[self.team_I], minlength=len(capacity_P))
            left_P, open_C = np.maximum(left_P - used_P, 1.0), open_C & ~full_C
        return rate_C

    def pressure(self, offered_C: np.ndarray, capacity_P: np.ndarray) -> np.ndarray:
        """(2, M): how many times what it carries is offered to the fullest port that a machine sends through, and receives through."""
        offered_P = np.bincount(self.port_I, weights=offered_C[self.team_I], minlength=len(capacity_P)) / capacity_P
        load_LX, most_2M = np.where(self.used_LX, offered_P[self.ports_LX], 0.0), np.zeros((2, len(self.team_M)))
        np.maximum.at(most_2M[0], self.source_L, load_LX.max(axis=1))
        np.maximum.at(most_2M[1], self.target_L, load_LX[:, 1:].max(axis=1))
        return most_2M


class _Network:
    """What flows. state_EXM by epoch and machine: rate (bytes a second), seconds that a ring takes beyond what computing hides, seconds
    that a replica's own exchange takes beyond it, pressure where a machine sends, and where it receives."""

    def __init__(self, job: _Job, knobs: _Knobs, rng: np.random.Generator) -> None:
        count, leaves, epochs = job.count, int(job.leaf_M.max()) + 1, len(knobs.start_E)
        rings, inner = _Flows(job, job.ring_M, bool(rng.uniform() < 0.25), rng), _Flows(job, job.replica_M, False, rng)
        self.share, self.hidden = rng.uniform(0.12, 0.45), rng.uniform(0.0, 0.35)  # of a step exchanging; of the exchange behind computing
        uplink = job.nic * max(1.0, count / leaves / _SPINES) * rng.uniform(0.6, 1.2)
        base_P = np.repeat([job.nic, 1.06 * job.nic, uplink], [2 * count, count, 2 * leaves * _SPINES])
        offered_C, inside = rings.shares(np.where(np.arange(len(base_P)) < 2 * count, base_P, 1e18)), np.median(inner.shares(base_P))
        total_s, inner_s = self.share * job.step_s / (1.0 - self.hidden), job.step_s * rng.uniform(0.04, 0.15) * (job.width > 1)
        self.bytes_ring, self.inner = total_s * float(np.median(rings.shares(base_P))), float(inner_s * inside / job.step_s)
        spared = 1.3 if job.kind == "pipeline" else 0.2  # how much of a replica's exchange is behind computing, by its usual time
        busy_P, state_XM, known, self.state_EXM = np.zeros(2 * leaves * _SPINES), np.zeros(0), b"", np.zeros((epochs, 5, count))
        for epoch in range(epochs):
            if epoch % 6 == 0:  # other jobs come and go on the spines
                busy_P = np.clip(0.03 + 0.8 * busy_P + 0.05 * rng.standard_t(3, len(busy_P)), 0.0, 0.6)
            tx, rx, path, core, spine, pcie, loss, pause = turned = [knobs.read(name, epoch) for name in _LINKS]
            key = np.concatenate([*turned, busy_P]).tobytes()
            if key != known:
                good_M, core_D = np.minimum(1.0, 1.25 * pcie) / (1.0 + 300.0 * loss), np.ones(leaves)
                np.minimum.at(core_D, job.leaf_M, core)
                core_P = np.tile(np.repeat(core_D * spine.min(), _SPINES), 2) * (1.0 - busy_P)
                capacity_P = base_P * np.concatenate([tx * good_M, rx * good_M * (1.0 - pause), path, core_P])
                rate_C, again_C = rings.shares(capacity_P), np.maximum(inner_s * (inside / inner.shares(capacity_P) - spared), 0.0)
                beyond_C = np.maximum(self.bytes_ring / rate_C - self.hidden * total_s, 0.1 * self.bytes_ring / rate_C)
                by_ring_XM, most_2M = np.stack([rate_C, beyond_C])[:, rings.team_M], rings.pressure(offered_C, capacity_P)
                state_XM, known = np.concatenate([by_ring_XM, again_C[None, inner.team_M], most_2M]), key
            self.state_EXM[epoch] = state_XM


def _steps(job: _Job, knobs: _Knobs, net: _Network, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(S,) when each step begins, and (S, M, F) the seconds that each machine spends in each phase of it, in order."""
    first, batches = np.flatnonzero(np.diff(job.replica_M, prepend=-1)), int(rng.integers(4, 17))
    of_replica_M = np.searchsorted(first, np.arange(job.count), side="right") - 1
    fill = (batches + job.width - 1) / batches if job.kind == "pipeline" else 1.0  # what the pipeline's beginning and end cost
    gain_M = np.exp(rng.normal(0, 0.006, job.count) + rng.normal(0, 0.03, job.width + 1)[job.ring_M])
    comp_M = job.step_s * (0.95 - net.share) / fill * gain_M * np.where(job.role_M, rng.uniform(0.6, 0.95), 1.0)
    load_s, patience_s, every_s = job.step_s * rng.uniform(0.04, 0.12), rng.uniform(300, 900), rng.uniform(100, 700)
    write_s, depth = float(np.clip(np.exp(rng.normal(1.3, 1.0)), 0.3, 25)), int(1.3 * job.duration_s / job.step_s) + 32
    own_SM, common_S = rng.standard_normal((depth, job.count), dtype=np.float32), np.exp(0.01 * rng.standard_t(4, depth))
    own_SM, storage_S = np.exp(0.008 * own_SM + 0.15 * (own_SM > 3.6)), np.exp(rng.normal(0, 0.3, depth))
    now_s, done, due_s, dead, last_s = -_BEFORE_S * rng.uniform(0.7, 1.0), 0, every_s * rng.uniform(), False, job.step_s
    steps: list[tuple[np.ndarray, np.ndarray]] = []
    while now_s < job.duration_s:
        epoch = min(max(int(now_s // _EPOCH_S), 0), len(knobs.start_E) - 1)
        work, load, net_M, write, down, stop = (knobs.read(name, epoch) for name in ("work", "load", "net", "write", "down", "stop"))
        busy_M, due, gone = comp_M * work * knobs.stretch(epoch), now_s >= due_s, dead or bool(down.any())
        stuck_M = (stop > 0) & ((stop < 4) | due)
        if gone or stuck_M.any():  # nothing goes on until an epoch in which it may; after some minutes a job that hangs is given up
            held_EM = np.ones((1, 1)) if dead else knobs.turned["down"] if gone else knobs.turned["stop"][:, stuck_M]
            back = np.flatnonzero(~np.any(held_EM, axis=1)[epoch:])
            span_s = (knobs.start_E[epoch + back[0]] if len(back) else job.duration_s + _BEFORE_S) - now_s
            dead, span_s = dead or (not gone and span_s > patience_s), span_s if gone else min(span_s, patience_s)
            mute_M = np.maximum.reduceat(stuck_M & (stop != 3), first)[of_replica_M]  # these wait to receive, others in the exchange
            fate_M = (stop * stuck_M).astype(int) * (not gone) + 2 * gone
            place_M = np.choose(fate_M, [np.where(mute_M, _RECV, _REST), _STUCK, _DOWN, _REST, _DOWN])
            part_SMF, starts_S, keep = np.zeros((1, job.count, 9)), np.array([now_s]), 1
            part_SMF[0, :, _COMPUTE] = np.where(place_M < _STUCK, np.minimum(busy_M, span_s), 0.0)
            part_SMF[0, np.arange(job.count), place_M] = span_s - part_SMF[0, :, _COMPUTE]
            now_s += span_s
        else:
            until_s = max(_EPOCH_S * (epoch + 1), now_s + 1e-6)
            at_S = (done + np.arange(min(int((until_s - now_s) / (0.6 * last_s)) + 1, 4000))) % depth
            part_SMF = np.zeros((len(at_S), job.count, 9))
            part_SMF[:, :, _LOAD] = 0.01 * job.step_s + load_s * np.maximum(load * storage_S[at_S, None] - 2.0, 0.0)
            part_SMF[:, :, _COMPUTE] = busy_M * own_SM[at_S] * common_S[at_S, None]
            used_SM = part_SMF.sum(axis=2)
            pipe_SM = (np.maximum.reduceat(used_SM, first, axis=1) * fill + net.state_EXM[epoch, 2, first])[:, of_replica_M]
            part_SMF[:, :, _RECV], part_SMF[:, :, _WAIT] = pipe_SM - used_SM, pipe_SM.max(axis=1, keepdims=True) - pipe_SM
            part_SMF[:, :, _SEND] = net.state_EXM[epoch, 1] * net_M * common_S[at_S, None] ** 3
            if due:
                part_SMF[0, :, _WRITE], due_s = write_s * write * own_SM[at_S[0]], now_s + every_s
            long_SM = part_SMF.sum(axis=2)
            part_SMF[:, :, _REST] = long_SM.max(axis=1, keepdims=True) - long_SM
            end_S = now_s + np.cumsum(long_SM.max(axis=1))
            starts_S = np.append(now_s, end_S[:-1])
            keep = int(np.searchsorted(starts_S, until_s))
            now_s, done, last_s = float(end_S[keep - 1]), done + keep, float(end_S[keep - 1] - starts_S[keep - 1])
        steps.append((starts_S[:keep], part_SMF[:keep]))
    return np.concatenate([starts_S for starts_S, _ in steps]), np.concatenate([part_SMF for _, part_SMF in steps])


def _occupied(start_S: np.ndarray, spent_SMF: np.ndarray, time_RM: np.ndarray, window_s: float) -> np.ndarray:
    """(R, M, F): the share of a window before each scrape that was spent in each phase."""
    begin_SMF, total_SMF = np.cumsum(spent_SMF, axis=2) - spent_SMF, np.cumsum(spent_SMF, axis=0) - spent_SMF
    sofar = []
    for moment_RM in (time_RM - window_s, time_RM):
        at = np.maximum(np.searchsorted(start_S, moment_RM, side="right") - 1, 0), np.arange(moment_RM.shape[1])
        sofar.append(total_SMF[at] + np.clip((moment_RM - start_S[at[0]])[..., None] - begin_SMF[at], 0.0, spent_SMF[at]))
    return np.asarray((sofar[1] - sofar[0]) / window_s)


class _Reader:
    """Reads metrics off phases, flows and knobs. mean_RMF, now_RMF: phases over the scrape's window, and over its last moment."""

    def __init__(self, job: _Job, knobs: _Knobs, net: _Network, seed: int) -> None:
        rng, rows = np.random.default_rng([seed, 8]), int(job.duration_s // job.scrape_s)
        phase_M = rng.uniform(0, job.scrape_s if rng.uniform() < 0.6 else 0.05, job.count)
        self.time_RM = np.arange(rows)[:, None] * job.scrape_s + phase_M + rng.uniform(0, 0.02 * job.scrape_s, (rows, job.count))
        steps, moment_s = _steps(job, knobs, net, np.random.default_rng([seed, 7])), min(job.scrape_s, rng.uniform(0.1, 1.0))
        self.mean_RMF, self.now_RMF = (_occupied(*steps, self.time_RM, window_s) for window_s in (job.scrape_s, moment_s))
        self.at_RM = np.clip((self.time_RM - 0.5 * job.scrape_s) // _EPOCH_S, 0, len(knobs.start_E) - 1).astype(int)
        self.job, self.knobs, self.net, self.seed = job, knobs, net, seed

    def gpu(self, *, sound: bool) -> dict[str, np.ndarray]:
        """What GPUs export. sound: of the devices of a machine that its fault does not reach, and that wait for the one that it does."""
        rng, job, knobs, at_RM = np.random.default_rng([self.seed, 9]), self.job, self.knobs, self.at_RM
        k = {name: knobs.read(name, at_RM, sound=sound) for name in ("drag", "clock", "power", "heat", "reasons", "past", "pcie")}
        slow_RM, waits_RM = knobs.stretch(at_RM, sound=sound), knobs.stretch(at_RM, sound=sound) / knobs.stretch(at_RM)
        mean_RMF, now_RMF = self.mean_RMF.copy(), self.now_RMF.copy()
        for part_RMF in (mean_RMF, now_RMF):
            part_RMF[:, :, _RECV] += part_RMF[:, :, _COMPUTE] * (1.0 - waits_RM)
            part_RMF[:, :, _COMPUTE] *= waits_RM
        (fill, idle_w, peak_w), spin = rng.uniform((0.6, 60, 300), (1.1, 120, 800)), rng.choice([1.0, 0.25], p=[0.8, 0.2])
        some = np.where(job.role_M, 0.6, 1.0)  # a rollout's kernels are small
        kernels = {"sm": some * fill / k["drag"], "tensor": some**2 * fill / k["drag"], "memory": rng.uniform(0.6, 1.4) / some / slow_RM,
                   "power": k["power"] * k["clock"] ** 2 / k["drag"] ** 0.4, "bandwidth": 1.0 / slow_RM}  # fmt: skip
        out: dict[str, np.ndarray] = {}
        for name in (name for name, row in _METRICS.items() if len(row) > 3 and row[0] != "h"):
            level_F = np.array(_METRICS[name][3]) * np.where(np.isin(np.arange(9), (_RECV, _WAIT, _REST)), spin, 1.0)
            kind, part_RMF = name.split("_")[1], now_RMF if "duty" in name or "power" in name else mean_RMF
            more_RM = part_RMF[:, :, _COMPUTE] * level_F[_COMPUTE] * (kernels.get(kind, 1.0) - 1.0)
            out[name] = (part_RMF @ level_F + more_RM) * np.exp(rng.normal(0, 0.012 * (kind != "duty"), job.count))
            out[name] *= rng.uniform(4e10, 2e11) if "bytes" in name else 1.0
        warm_RM, cools = out["gpu_power_draw_watts"] * rng.uniform(28, 42), 1.0 - np.exp(-job.scrape_s / rng.uniform(25, 90))
        warm_M = np.full(job.count, warm_RM[0].mean())
        for row in range(len(warm_RM)):
            warm_RM[row] = warm_M = warm_M + cools * (warm_RM[row] - warm_M)
        down_RM, past, part = now_RMF[:, :, _DOWN] > 0.5, np.floor(k["past"]), rng.uniform(0.55, 0.93)
        out["gpu_power_draw_watts"] = idle_w + (peak_w - idle_w) * out["gpu_power_draw_watts"]
        out["gpu_temperature_celsius"] = rng.normal(32, 2.5, job.count) + warm_RM + k["heat"]
        out["gpu_clock_hertz"] = rng.uniform(1.2e9, 1.98e9) * k["clock"] * (1.0 - 0.35 * down_RM)
        out["gpu_memory_used_ratio"] = (part - 0.02 * job.ring_M + rng.normal(0, 0.003, job.count)) * np.where(down_RM, 0.03, 1.0)
        out["gpu_ecc_uncorrectable_total"] = knobs.read("ecc", at_RM, sound=sound, count=True) + past
        out["gpu_throttle_reasons"], out["pcie_link_width"] = k["reasons"] + down_RM, 16.0 * 2.0 ** np.round(np.log2(k["pcie"]))
        return {name: np.broadcast_to(value, at_RM.shape) for name, value in out.items()}

    def host(self) -> dict[str, np.ndarray]:
        """What hosts and their ports export."""
        rng, count, net, at_RM = np.random.default_rng([self.seed, 10]), self.job.count, self.net, self.at_RM
        names = ("cpu", "mem", "disk", "halted", "net", "stray", "tcp", "marks", "loss", "dirt", "pcie", "pause", "chatter", "past")
        k, part_RMF = {name: self.knobs.read(name, at_RM) for name in names}, self.mean_RMF
        comp_RM, recv_RM, send_RM = (part_RMF[:, :, phase] for phase in (_COMPUTE, _RECV, _SEND))
        rate_RM, sends_RM, takes_RM = (net.state_EXM[at_RM, x, np.arange(count)] for x in (0, 3, 4))
        hidden, unlike_M = net.hidden * net.bytes_ring / (self.job.step_s * (1.0 - net.share)), np.exp(rng.normal(0, 0.06, count))
        rdma_RM = 2.0 * (send_RM * rate_RM + (comp_RM * hidden + net.inner * (self.job.role_M == 0) * (comp_RM + recv_RM)) * k["net"])
        packets_RM, (queue_RM, ahead_RM) = rdma_RM / 8192.0, np.clip(0.12 * (np.stack([takes_RM, sends_RM]) - 1.08), 0.0, 0.35)
        marked_RM = packets_RM * (queue_RM + k["marks"] + 10 ** rng.uniform(-6, -3.5) * np.exp(rng.normal(0, 0.5, count)))
        back_RM = packets_RM * (0.02 * (1.0 / np.minimum(1.0, 1.25 * k["pcie"]) - 1.0) + 0.06 * k["pause"])
        paused_RM = 10 ** rng.uniform(-0.5, 3) * np.exp(rng.normal(0, 0.4, count)) * (send_RM + 0.01) * (1.0 + k["chatter"])
        xmit_RM = 1e8 * send_RM * (1.02 - 1.0 / np.maximum(1.0, sends_RM))
        values = (
            rng.uniform(0.6, 1.5) * unlike_M * (part_RMF @ np.array(_METRICS["cpu_usage_ratio"][3])) + k["cpu"],
            rng.uniform(0.2, 0.5) + rng.normal(0, 0.015, count) + k["mem"] - 0.1 * part_RMF[:, :, _DOWN],
            rng.uniform(0.2, 0.6) + rng.normal(0, 0.03, count) + k["disk"], k["halted"], rdma_RM + k["stray"] * self.job.nic,
            paused_RM + back_RM, marked_RM, 0.3 * marked_RM + 0.1 * packets_RM * ahead_RM, xmit_RM,
            k["dirt"] + 0.02 * k["loss"] * packets_RM + 10 ** rng.uniform(-3, 0) * np.exp(rng.normal(0, 0.7, count)),
            self.knobs.read("downs", at_RM, count=True) + np.floor(k["past"]),
            10 ** rng.uniform(5.5, 7.5) * (1.0 + k["tcp"]) * (1.0 + 20.0 * part_RMF[:, :, _LOAD]),
            10 ** rng.uniform(-1.5, 0.8) * (1.0 + 3.0 * queue_RM) + 4e3 * k["loss"],
        )  # fmt: skip
        host = [name for name, row in _METRICS.items() if row[0] in ("h", "r", "i", "ri", "t")]
        return {name: np.broadcast_to(value, at_RM.shape) for name, value in zip(host, values, strict=True)}

    def exported(self, values_RMK: np.ndarray, metrics: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
        """Values as exporters give them: noise that remembers a minute or so and has heavy tails, within what a metric can be."""
        keep, own_RMK = np.exp(-self.job.scrape_s / rng.uniform(20, 120)), rng.standard_normal(values_RMK.shape, dtype=np.float32)
        noise_RMK = own_RMK.copy()
        for row in range(1, len(own_RMK)):
            noise_RMK[row] = keep * noise_RMK[row - 1] + np.sqrt(1.0 - keep**2) * own_RMK[row]
        noise_RMK = 0.8 * noise_RMK + 0.17 * own_RMK[::-1] * own_RMK[::-1] ** 2
        units = [name for name in ("gpu_clock_hertz", "rdma_throughput_bytes_per_second", "gpu_power_draw_watts") if name in metrics][:1]
        frozen_RM = np.broadcast_to(self.knobs.read("frozen", self.at_RM), self.at_RM.shape) > 0
        last_RM = np.maximum.accumulate(np.where(frozen_RM, 0, np.arange(len(frozen_RM))[:, None]), axis=0)
        for k, name in enumerate(metrics):
            (letters, share, unit), value_RM, noise_RM = _METRICS[name][:3], values_RMK[:, :, k], noise_RMK[:, :, k]
            value_RM = value_RM * (np.exp(share * noise_RM) if unit is None else 1.0 + share * noise_RM) + (unit or 0.0) * noise_RM
            value_RM = np.clip(np.round(value_RM / 15e6) * 15e6 if "clock" in name else value_RM, 0.0, 1.0 if "_ratio" in name else None)
            value_RM = value_RM * np.where(self.knobs.read("unit", self.at_RM) > 0, 1e-3, 1.0) if name in units else value_RM
            values_RMK[:, :, k] = value_RM[last_RM, np.arange(self.job.count)] if set(letters) & set("dnv") else value_RM
        return values_RMK


def _plan(job: _Job, knobs: _Knobs, seed: int, onset_s: float, spared_M: np.ndarray) -> tuple[str | None, float, tuple[str, ...]]:
    """Turns what has nothing to do with the fault: the job's cause, when a spare comes (seconds), and the nuisances."""
    rng, cause, spare_s = np.random.default_rng([seed, 4]), None, np.inf
    name, early_s, happens = str(rng.choice(list(_CAUSES))), rng.uniform(60, 0.8 * job.duration_s), rng.uniform() < 0.4
    row, rng = _CAUSES[name], np.random.default_rng([seed, 5])
    begin_s = max(early_s, (onset_s + 240.0) * (row.span_s is None))  # what ends the job ends no fault unseen
    if happens and begin_s < job.duration_s - 30.0:
        end_s = begin_s + rng.uniform(*row.span_s) if row.span_s else np.inf
        cause, spare_s = name, 0.5 * (begin_s + end_s)
        knobs.turn(row, np.arange(job.count), begin_s, end_s, rng)
    drawn = tuple(str(name) for name in rng.permutation(list(_NUISANCES))[: rng.choice(4, p=[0.28, 0.36, 0.24, 0.12])])
    for name in drawn:
        row, one, early_s = _NUISANCES[name], int(rng.choice(spared_M)), rng.uniform(0, 0.85 * job.duration_s)
        members = spared_M[job.leaf_M[spared_M] == job.leaf_M[one]] if row.where == "rack" else np.array([one])
        begin_s, long_s = (0.0, np.inf) if row.span_s == _EVER else (early_s, rng.uniform(*row.span_s) if row.span_s else np.inf)
        knobs.turn(row, members, begin_s, begin_s + long_s, rng)
    return cause, spare_s, drawn


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (see minder.simulate.worlds.world.Family)."""
    job, rng, start_s = _Job(seed, machines, duration_s), np.random.default_rng([seed, 2]), 1.76e9 + 4096.0 * (seed % 9973)
    knobs, order_M = _Knobs(job.duration_s, job.count), rng.permutation(job.count)
    rack_M, stage_M = job.leaf_M == job.leaf_M[order_M[0]], (job.ring_M == job.ring_M[order_M[0]]) & (job.width > 2)
    spared_M = np.flatnonzero(~(rack_M | stage_M | np.isin(np.arange(job.count), order_M[:2])))  # of nuisances: never the fault's machines
    early, late_s = rng.uniform(), rng.uniform(120.0, max(121.0, min(0.75 * job.duration_s, job.duration_s - 240.0)))
    onset_s = 0.0 if early < 0.05 else rng.uniform(15, 120) if early < 0.13 else late_s
    wheres, grey = (("one",), ("two",), ("rack", "stage"))[rng.choice(3, p=[0.85, 0.05, 0.1])], rng.uniform() < 0.47
    kinds = [name for name, row in _FAULTS.items() if row.where in wheres and ((name in _GREY) == grey or wheres == ("two",))]
    own, faulty, heal_s = str(rng.choice(kinds)), rng.uniform() < 0.62, rng.uniform(300, 800) if rng.uniform() < 0.3 else np.inf
    kind = fault or (own if faulty else NO_FAULT)
    row = _Row("", {}) if kind == NO_FAULT else _FAULTS[kind]
    group_M = np.flatnonzero(stage_M if row.where == "stage" and stage_M.any() else rack_M)
    hit_M = np.sort({"one": order_M[:1], "two": order_M[:2]}.get(row.where, group_M))
    end_s = np.inf if "stop" in row.knobs and row.shape != "blink" else onset_s + heal_s
    cause, spare_s, nuisances = _plan(job, knobs, seed, onset_s, spared_M)
    knobs.turn(row, hit_M, onset_s, end_s, np.random.default_rng([seed, 3]))
    reader, rng = _Reader(job, knobs, _Network(job, knobs, np.random.default_rng([seed, 6])), seed), np.random.default_rng([seed, 11])
    letters = str(rng.choice(["d", "n", "v"], p=[0.58, 0.22, 0.2])) + "h" * (rng.uniform() < 0.78)
    letters += str(rng.choice(["r", "i", ""], p=[0.52, 0.28, 0.2])) + "t" * (rng.uniform() < 0.45)
    metrics = tuple(name for name, spec in _METRICS.items() if set(spec[0]) & set(letters) and (rng.uniform() > 0.08 or "duty" in name))
    count, reach = int(rng.choice([0, 4, 8], p=[0.7, 0.12, 0.18])), rng.choice([1.0, 0.5, 0.25, 0.125], p=[0.7, 0.1, 0.1, 0.1])
    count, bad_M = count if reader.time_RM.size * (count + 1) <= _CELLS else 0, rng.integers(0, max(count, 1), job.count)
    host, rows = reader.host(), []
    hurt, sound = ({**reader.gpu(sound=sound), **host} for sound in (False, True))
    for g in range(-1, count):
        values_RMK, unlike_M = np.full((*reader.time_RM.shape, len(metrics)), np.nan), np.exp(rng.normal(0, 0.012 * (g >= 0), job.count))
        hit_by_M = np.full(job.count, reach) if g < 0 else np.where(bad_M == g, 1.0, float(reach == 1.0))  # the share of it that is hit
        lost_RM = (knobs.read("blank", reader.at_RM) > 0) & (hit_by_M == 1.0)
        for k, name in enumerate(metrics):
            if (name in host) == (g < 0) or not count:
                mixed_RM = sound[name] + hit_by_M * (hurt[name] - sound[name])
                values_RMK[:, :, k] = np.where(lost_RM & (name not in host), np.nan, mixed_RM)
                values_RMK[:, :, k] *= unlike_M if name in ("gpu_power_draw_watts", "gpu_temperature_celsius") else 1.0
        keep_RM = (knobs.read("gone", reader.at_RM) == 0) & (rng.uniform(size=reader.time_RM.shape) > 0.003)
        values_NK, machine_N = reader.exported(values_RMK, metrics, rng)[keep_RM], np.nonzero(keep_RM)[1]
        rows.append((reader.time_RM[keep_RM], machine_N, np.full(len(machine_N), g), values_NK))
    times_N, machine_N, device_N, values_NK = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    machine_N = np.where((machine_N == spared_M[0]) & (times_N >= spare_s) & (cause == "exchange"), job.count, machine_N)
    leaves = [*job.leaf_M, job.leaf_M[spared_M[0]]][: job.count + (cause == "exchange")]
    names = tuple(f"h{leaf:03d}-{m:04d}" for m, leaf in enumerate(leaves))
    off_M, late_M = np.zeros(len(names)), rng.permutation(job.count)[: rng.integers(1, 4) * (rng.uniform() < 0.1)]
    off_M[late_M] = rng.choice([-1, 1], len(late_M)) * rng.uniform(15, 120, len(late_M))
    hit_names, group = tuple(names[m] for m in hit_M if kind != NO_FAULT), row.where in ("rack", "stage")
    begun_s, ended_s = start_s + onset_s if hit_names else None, start_s + end_s if hit_names and end_s < job.duration_s else None
    shown = (hit_names * (not group), hit_names * group, kind if hit_names else None, begun_s, ended_s)
    said = [("rack", leaves * (rng.uniform() < 0.8)), ("leaf", leaves * (rng.uniform() < 0.7))]
    racks, leafs = ({name: f"{what}-{leaf:03d}" for name, leaf in zip(names, some, strict=False)} for what, some in said)
    return World(
        NAME, seed, names, metrics, job.scrape_s, job.step_s, start_s + times_N + off_M[machine_N], machine_N, device_N, values_NK,
        Truth(*shown, kind in _GREY, cause, nuisances), tuple(f"gpu{g}" for g in range(count)),
        dict(zip(names, job.ring_M.tolist(), strict=False)) if job.kind == "pipeline" else {},
        {name: ("trainer", "rollout")[role] for name, role in zip(names, job.role_M, strict=False)} if job.role_M.any() else {},
        racks, leafs, {names[m]: float(off_M[m]) for m in late_M},
    )  # fmt: skip
