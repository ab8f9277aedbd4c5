"""What stands in one site and what its job asks of it: sizes, step, layout, rates of the counters, exporters. No fault is known here.

Legend: M machines, P ways to spend time, G points of slow drift, 10 s apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BEFORE_S", "DRIFT_S", "GPU", "WAYS", "Exporter", "Site", "build_site"]

# The ways in which a rank's main thread spends its time, in the order of a step.
LOAD, WORK, RECV, SPIN, SEND, WRITE, LINGER, BLOCK, DEAD = WAYS = tuple(range(9))
BEFORE_S = 150.0  # the account starts so long before the recording: the first windows of an exporter are full
DRIFT_S = 10.0
ROWS = 110_000  # at most about so many rows a world, so that a draw is quick
STEPS = 450_000  # at most so many steps times machines

GPU = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_temperature_celsius", "gpu_clock_hertz", "gpu_memory_used_ratio",
       "gpu_memory_bandwidth_ratio", "gpu_throttle_reasons", "gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total",
       "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_graphics_activity_ratio", "gpu_fp_activity_ratio",
       "nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second", "pcie_link_width")  # fmt: skip
_BY_VENDOR = {
    "dcgm": GPU,
    "nvml": (*GPU[:5], GPU[6], GPU[7], GPU[15]),
    "vendor": (*GPU[:6], GPU[9], GPU[13], GPU[14]),
}
_HOST = ("cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "cpu_throttled_ratio", "oom_kills_total", "processes_stopped",
         "tcp_throughput_bytes_per_second", "tcp_retransmits_per_second")  # fmt: skip
_NET = {
    "roce": ("rdma_throughput_bytes_per_second", "pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second",
             "link_errors_per_second", "link_downs_total"),
    "infiniband": ("rdma_throughput_bytes_per_second", "rdma_xmit_wait_per_second", "link_errors_per_second", "link_downs_total"),
}  # fmt: skip
_JOB = ("steps_total", "step_seconds", "job_cpu_ratio", "job_io_bytes_per_second")


@dataclass(frozen=True, slots=True)
class Exporter:
    """One exporter of every machine. period_s: between refreshes, 0 for one that reads the kernel at each scrape. window_s: over
    which its rates are taken. own_stamp: it stamps samples with the time of the refresh, not of the scrape."""

    name: str
    metrics: tuple[str, ...]
    period_s: float
    window_s: float
    own_stamp: bool


@dataclass(frozen=True, slots=True)
class Site:
    """rate: of each counter, in its own unit a second (see `_rates`). scale: durable factors of each machine (M,) by counter group.

    stage_M, rack_M, switch_M: places. cost_MP: seconds that each way costs in a normal step. drift_MG: slow drift of speed, in shares.
    micro: cycles of load, work and receive in a step. ring: an exchange goes at the pace of its slowest member.
    """

    machines: int
    duration_s: float
    scrape_s: float
    step_s: float
    micro: int
    stages: int
    devices: int
    mode: str
    ring: bool
    spins: bool
    fabric: str
    jitter: float
    write_every_s: float
    first_write_s: float
    write_s: float
    cost_MP: np.ndarray
    drift_MG: np.ndarray
    stage_M: np.ndarray
    rack_M: np.ndarray
    switch_M: np.ndarray
    rollout_M: np.ndarray
    rate: dict[str, float]
    scale: dict[str, np.ndarray]
    exporters: tuple[Exporter, ...]


def _size(rng: np.random.Generator) -> int:
    """Number of machines: median near 40, thousands rare."""
    low, high = ((4, 40), (40, 300), (300, 1500), (1500, 4000))[int(rng.choice(4, p=[0.52, 0.38, 0.09, 0.01]))]
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def _scrape(rng: np.random.Generator, machines: int, duration_s: float) -> float:
    """Seconds between scrapes: the site's own wish, longer where there are many machines."""
    wish = float(rng.choice([1.0, 2.0, 5.0, 10.0, 15.0, 30.0], p=[0.1, 0.15, 0.25, 0.2, 0.2, 0.1]))
    least = duration_s * machines / ROWS
    return next((offer for offer in (1.0, 2.0, 5.0, 10.0, 15.0, 30.0) if offer >= max(wish, least)), 30.0)


def _rates(rng: np.random.Generator) -> dict[str, float]:
    """Watts and bytes a second at full pace, and how full each pipe is in each way of spending time."""
    span = rng.uniform
    return {
        "watts": float(rng.choice([300.0, 400.0, 700.0, 1000.0])), "idle": span(0.12, 0.2), "spin_watts": span(0.28, 0.45),
        "sm": span(0.6, 0.92), "sm_spin": span(0.04, 0.2), "tensor": span(0.2, 0.6), "fp": span(0.05, 0.2), "dram": span(0.25, 0.6),
        "hertz": float(rng.choice([1.41e9, 1.755e9, 1.98e9])), "droop": span(0.0, 0.07), "kelvin": span(28.0, 45.0),
        "air": span(22.0, 34.0), "memory": span(0.55, 0.94), "nvlink": 10 ** span(10.3, 11.5), "pcie_load": 10 ** span(8.5, 10.0),
        "pcie_send": 10 ** span(9.5, 10.5), "nic": 10 ** span(9.7, 11.3), "relay": span(0.0, 0.15), "cnp": 10 ** span(0.5, 4.0),
        "pause": 10 ** span(-0.5, 3.3), "wait": 10 ** span(2.0, 6.0), "symbol": 10 ** span(-4.0, -1.0), "tcp_idle": 10 ** span(4.0, 6.0),
        "tcp_load": 10 ** span(7.5, 9.6), "tcp_write": 10 ** span(8.5, 9.7), "retrans": 10 ** span(-1.0, 1.0),
        "cores": float(rng.choice([64, 96, 128, 192])), "loaders": span(6.0, 40.0), "system": span(0.005, 0.04), "pages": span(0.15, 0.7),
        "disk": span(0.2, 0.8), "lanes": 16.0, "noise": 10 ** span(-2.6, -1.5),
    }  # fmt: skip


def _exporters(rng: np.random.Generator, fabric: str, scrape_s: float) -> tuple[Exporter, ...]:
    """What is installed: always one for GPUs, often one for the host, the network and the job, each with a subset of its metrics."""
    vendor = str(rng.choice(["dcgm", "nvml", "vendor"], p=[0.6, 0.25, 0.15]))
    offers = {"gpu": _BY_VENDOR[vendor], "host": _HOST, "net": _NET[fabric], "job": _JOB}
    installed = {"gpu": True, "host": bool(rng.random() < 0.8), "net": bool(rng.random() < 0.8), "job": bool(rng.random() < 0.35)}
    built = []
    for name, metrics in offers.items():
        kept = tuple(metric for metric in metrics if rng.random() > 0.12)
        cached = rng.random() < {"gpu": 0.9, "host": 0.1, "net": 0.4, "job": 0.3}[name]
        period_s = float(rng.choice([0.5, 1.0, 5.0, 10.0, 15.0], p=[0.1, 0.3, 0.25, 0.2, 0.15])) if cached else 0.0
        window_s = period_s if name == "gpu" and period_s else float(scrape_s * rng.choice([1, 2, 4], p=[0.5, 0.3, 0.2]))
        own_stamp = bool(cached and rng.random() < 0.25)
        if installed[name] and kept:
            built.append(Exporter(name, kept, period_s, min(window_s, 120.0), own_stamp))
    return tuple(built)


def _drift(rng: np.random.Generator, machines: int, points: int, size: float) -> np.ndarray:
    """(M, G): a slow walk about 0 that forgets in about 90 s, with a heavy tail across machines."""
    keep = float(np.exp(-DRIFT_S / 90.0))
    shock_MG = rng.normal(0.0, 1.0, (machines, points)) * size * np.sqrt(1 - keep**2)
    walk_MG = np.empty_like(shock_MG)
    now_M = rng.normal(0.0, size, machines)
    for g in range(points):
        now_M = keep * now_M + shock_MG[:, g]
        walk_MG[:, g] = now_M
    return np.asarray(walk_MG * np.exp(rng.normal(0.0, 0.4, machines))[:, None])


def _costs(rng: np.random.Generator, step_s: float, mode: str, stage_M: np.ndarray, rollout_M: np.ndarray) -> np.ndarray:
    """(M, P): seconds of a normal step. Machines differ durably by a per cent or two; stages, and ranks of a rollout, by more."""
    machines = len(stage_M)
    send = rng.uniform(0.05, 0.3) if mode != "expert" else rng.uniform(0.15, 0.45)
    load = rng.uniform(0.002, 0.08)
    cost_MP = np.zeros((machines, len(WAYS)))
    unlike_M = np.exp(rng.normal(0.0, 10 ** rng.uniform(-2.6, -1.7), machines))
    cost_MP[:, LOAD] = load * step_s * np.exp(rng.normal(0.0, 0.2, machines))
    cost_MP[:, WORK] = (1.0 - send - load) * step_s * unlike_M * np.exp(rng.normal(0.0, 0.05, 64))[stage_M]
    cost_MP[:, SEND] = send * step_s
    if mode == "rollout":
        cost_MP[rollout_M, WORK] *= rng.uniform(0.85, 1.15)
        cost_MP[rollout_M, LOAD] *= 0.2
    return cost_MP


def build_site(seed: int, machines: int | None, duration_s: float | None) -> Site:
    """The site and the job of a seed. machines and duration_s (seconds): None for the seed's own."""
    rng = np.random.default_rng([seed, 1])
    size, minutes = _size(rng), rng.uniform(15.0, 60.0)
    machines = size if machines is None else machines
    own_s = 60.0 * (minutes if machines < 300 else 15.0 + (minutes - 15.0) * 0.3 if machines < 1500 else 15.0)
    duration_s = own_s if duration_s is None else duration_s
    scrape_s = _scrape(rng, machines, duration_s)
    step_s = max(float(np.exp(rng.uniform(np.log(0.3), np.log(60.0)))), duration_s * machines / STEPS)
    mode = str(rng.choice(["data", "pipeline", "expert", "rollout"], p=[0.4, 0.3, 0.18, 0.12]))
    fabric = str(rng.choice(["roce", "infiniband"], p=[0.6, 0.4]))
    divisors = [stages for stages in (2, 4, 8, 3, 6) if machines % stages == 0 and machines > stages]
    pick = rng.random()
    stages = divisors[int(pick * len(divisors))] if mode == "pipeline" and divisors else 1
    per_machine = int(rng.choice([4, 8]))
    rows = duration_s / scrape_s * machines * (per_machine + 1)
    devices = per_machine if rng.random() < 0.3 and rows <= ROWS else 0
    place_M = np.arange(machines)
    rack = max(2, min(int(rng.choice([4, 8, 16, 32])), machines // 3))
    rollout_M = (place_M >= machines - max(1, machines // 3)) & (mode == "rollout")
    micro = int(rng.integers(2, 17)) if step_s > 3.0 else 1
    every_s = float(rng.uniform(180.0, 900.0)) if rng.random() < 0.75 else float("inf")
    write_s = float(rng.uniform(3.0, 40.0))
    rates = _rates(rng)
    points = int((duration_s + BEFORE_S) / DRIFT_S) + 3
    spread = 10 ** rng.uniform(-2.2, -1.4)
    groups = ("watts", "air", "kelvin", "host", "net", "hertz", "memory")
    widths = {"watts": spread, "air": 0.05, "kelvin": 0.06, "host": 2 * spread, "net": spread, "hertz": 0.002, "memory": 0.01}
    return Site(
        machines=machines, duration_s=duration_s, scrape_s=scrape_s, step_s=step_s, micro=micro, stages=stages, devices=devices, mode=mode,
        ring=bool(rng.random() < 0.6 and mode != "expert"), spins=bool(rng.random() < 0.8), fabric=fabric,
        jitter=10 ** rng.uniform(-2.7, -1.4), write_every_s=every_s, first_write_s=float(rng.uniform(30.0, 400.0)), write_s=write_s,
        cost_MP=_costs(rng, step_s, mode, place_M % stages, rollout_M),
        drift_MG=_drift(rng, machines, points, 10 ** rng.uniform(-2.8, -1.8)),
        stage_M=place_M % stages, rack_M=place_M // rack, switch_M=place_M // (rack * 2 if machines >= 4 * rack else rack),
        rollout_M=rollout_M, rate=rates,
        scale={name: np.exp(rng.standard_t(5, machines) * widths[name]) for name in groups},
        exporters=_exporters(rng, fabric, scrape_s),
    )  # fmt: skip
