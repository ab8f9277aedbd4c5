"""Where a fluid world stands: machines, links, layout, what the site exports. Drawn once, before anything happens.

Legend: M machines, U units (GPUs that are followed one by one: M times `per_machine`), S switches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["FABRIC", "GPU", "JOB", "NODE", "Site", "draw_site", "stream"]

GPU = (
    "gpu_duty_cycle_ratio", "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "gpu_power_draw_watts",
    "gpu_temperature_celsius", "gpu_clock_hertz", "gpu_memory_used_ratio", "nvlink_bandwidth_bytes_per_second",
    "pcie_bandwidth_bytes_per_second", "gpu_throttle_reasons", "gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total",
    "pcie_link_width",
)  # fmt: skip
NODE = (
    "cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "tcp_throughput_bytes_per_second", "tcp_retransmits_per_second",
    "tcp_round_trip_seconds",
)  # fmt: skip
FABRIC = (
    "rdma_throughput_bytes_per_second", "pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second",
    "rdma_xmit_wait_per_second", "link_errors_per_second", "link_downs_total",
)  # fmt: skip
JOB = ("step_seconds", "steps_total")

_PROFILING = ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "nvlink_bandwidth_bytes_per_second")
_ROCE = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second")
_LAYOUTS = ("tensor", "pipeline", "expert", "roles")


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that stands still. duration_s, step_s, scrape_s: seconds. Arrays end in the axes of the module's legend."""

    seed: int
    machines: int
    per_machine: int  # GPUs followed in each machine
    device_rows: bool
    duration_s: float
    scrape_s: float
    step_s: float
    start_s: float
    layout: str
    metrics: tuple[str, ...]
    joined: bool  # one row a scrape with all metrics, or one for each exporter
    lead_only: bool  # only machine 0 exports the step
    stage_M: np.ndarray
    role_M: np.ndarray  # 0 trainer, 1 rollout
    rack_M: np.ndarray
    switch_M: np.ndarray
    oversubscription: float
    share_compute: float  # of a step
    share_exchange: float
    tdp_w: float
    nominal_hz: float
    storage_room: float  # what storage can give, as a multiple of what the job reads

    @property
    def units(self) -> int:
        return self.machines * self.per_machine

    @property
    def ticks(self) -> int:
        return int(self.duration_s)


def stream(seed: int, purpose: int) -> np.random.Generator:
    """Random numbers of one purpose of one seed: more of one purpose moves no other."""
    return np.random.default_rng([seed & 0xFFFFFFFF, 0xF1D, purpose])


def _exported(rng: np.random.Generator) -> tuple[str, ...]:
    """Metrics of this site: a fabric is Ethernet or InfiniBand, profiling counters need a newer GPU, single ones are switched off."""
    profiling, ethernet, counters, job = rng.random(4)
    dropped = set()
    if profiling < 0.3:
        dropped |= set(_PROFILING)
    dropped |= {"rdma_xmit_wait_per_second"} if ethernet < 0.5 else set(_ROCE)
    if counters < 0.3:
        dropped |= {"gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total", "gpu_throttle_reasons", "pcie_link_width"}
    if job < 0.4:
        dropped |= set(JOB)
    every = GPU + NODE + FABRIC + JOB
    lucky = rng.random(len(every))
    kept = {"gpu_power_draw_watts", "gpu_duty_cycle_ratio", "cpu_usage_ratio"}
    return tuple(name for name, luck in zip(every, lucky, strict=True) if name not in dropped and (luck > 0.12 or name in kept))


def _scrape_s(rng: np.random.Generator, machines: int) -> float:
    wanted = float(rng.choice([1.0, 2.0, 5.0, 5.0, 10.0, 10.0, 15.0, 30.0]))
    floor = 1.0 if machines <= 24 else 2.0 if machines <= 64 else 5.0 if machines <= 400 else 15.0
    return max(wanted, floor)


def _machines(rng: np.random.Generator) -> int:
    few, size = rng.random(2)
    low, high = (4, 128) if few < 0.85 else (128, 4000)
    return round(float(np.exp(np.log(low) + size * (np.log(high) - np.log(low)))))


def draw_site(seed: int, machines: int | None, duration_s: float | None) -> Site:
    """The site of this seed. machines and duration_s: in place of the seed's own."""
    rng = stream(seed, 1)
    own_machines, own_duration = _machines(rng), float(rng.uniform(900.0, 2400.0))
    n = own_machines if machines is None else machines
    per_machine = int(rng.choice([1, 1, 4, 8]))
    rows = bool(rng.random() < 0.5)
    if n > 64 or (rows and n > 32):
        per_machine = 1
    layout = _LAYOUTS[int(rng.choice(4, p=[0.35, 0.35, 0.15, 0.15]))]
    stages = int(rng.choice([2, 4, 8])) if layout == "pipeline" else 1
    stages = max(1, min(stages, n // 2))
    index = np.arange(n)
    per_rack = int(rng.choice([2, 4, 8, 16]))
    per_switch = per_rack * int(rng.choice([1, 2, 4]))
    compute = float(rng.uniform(0.5, 0.8))
    step = float(np.exp(rng.uniform(np.log(0.3), np.log(60.0))))
    return Site(
        seed=seed,
        machines=n,
        per_machine=per_machine,
        device_rows=rows and per_machine > 1,
        duration_s=own_duration if duration_s is None else float(duration_s),
        scrape_s=_scrape_s(rng, n),
        step_s=step,
        start_s=1_780_000_000.0 + float(rng.integers(0, 20_000_000)),
        layout=layout,
        metrics=_exported(rng),
        joined=bool(rng.random() < 0.4),
        lead_only=bool(rng.random() < 0.3),
        stage_M=index * stages // n,
        role_M=(index >= n * rng.uniform(0.5, 0.8)).astype(int) if layout == "roles" else np.zeros(n, int),
        rack_M=index // per_rack,
        switch_M=index // per_switch,
        oversubscription=float(rng.uniform(0.75, 1.6)),
        share_compute=compute,
        share_exchange=float((1 - compute) * rng.uniform(0.6, 0.9)),
        tdp_w=float(rng.choice([400.0, 700.0, 700.0, 1000.0])),
        nominal_hz=float(rng.choice([1.41e9, 1.755e9, 1.98e9])),
        storage_room=float(rng.uniform(1.5, 5.0)),
    )
