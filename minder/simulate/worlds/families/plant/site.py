"""What stands there before anything happens: machines, boards with their silicon, air, links, disks, the job's demand, the exporters.

Legend: M machines, G GPUs of a machine. Suffix _c: degrees Celsius; _w: watts; shares and rates without a suffix are of nominal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Board", "Demand", "Site", "draw_site", "stream"]

_SCRAPES_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
_ROWS = 260_000  # rows of samples of one world: what can be computed in a second or two


def stream(seed: int, concern: int) -> np.random.Generator:
    """Random numbers of one concern: what one concern draws moves no other's numbers."""
    return np.random.default_rng([seed, 7919, concern])


@dataclass(frozen=True, slots=True)
class Board:
    """A kind of accelerator. limit_c: where it begins to throttle. die_c, sink_c: how much hotter than the next part at full power."""

    clock_hz: float
    idle_w: float
    full_w: float
    limit_c: float
    die_c: float
    sink_c: float
    link_bytes: float
    memory: float


_BOARDS = (
    Board(1.41e9, 58.0, 400.0, 84.0, 13.0, 27.0, 2.4e11, 0.82),
    Board(1.98e9, 85.0, 700.0, 86.0, 15.0, 27.0, 3.6e11, 0.87),
    Board(1.70e9, 95.0, 560.0, 92.0, 18.0, 30.0, 2.0e11, 0.74),
    Board(1.80e9, 110.0, 310.0, 80.0, 12.0, 24.0, 1.2e11, 0.70),
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one step asks for, as shares of its nominal time: flop and memory work, NVLink, network exposed and hidden behind work.

    intensity: power of pure work by the board's full power. launch: the processor's time for a step by the GPU's; load: the disk's.
    """

    flop: float
    memory: float
    nvlink: float
    exposed: float
    hidden: float
    intensity: float
    launch: float
    load: float
    tensor: float
    occupied: float
    bubble: float
    buffered: float


@dataclass(frozen=True, slots=True)
class Site:
    """One site and one job on it. *_M, *_MG: how healthy machines differ for good. stage_M, role_M: -1 where the job has none."""

    names: tuple[str, ...]
    gpus: int
    per_gpu: bool
    start_s: float
    duration_s: float
    tick_s: float
    scrape_s: float
    step_s: float
    board: Board
    demand: Demand
    stage_M: np.ndarray
    role_M: np.ndarray
    rack_M: np.ndarray
    switch_M: np.ndarray
    cold_c: float
    inlet_c_M: np.ndarray
    silicon_MG: np.ndarray
    clock_MG: np.ndarray
    cooling_MG: np.ndarray
    share_M: np.ndarray
    nic_bytes: float
    pcie_head: float
    roce: bool
    fallow: float
    cpu_base_M: np.ndarray
    memory_M: np.ndarray
    disk_M: np.ndarray
    noise: float
    window_s: float
    worst: bool
    metrics: tuple[str, ...]

    @property
    def ticks(self) -> int:
        return int(np.ceil(self.duration_s / self.tick_s)) + 1


def draw_site(seed: int, machines: int | None, duration_s: float | None) -> Site:
    """A site by its seed. machines and duration_s as in `draw`."""
    size, law = stream(seed, 1), stream(seed, 2)
    drawn = round(4.0 * 1000.0 ** (size.random() ** 1.585))  # log-uniform, bent so that the median is 40
    many = drawn if machines is None else machines
    length_s = float(size.integers(15, 61) * 60)
    if duration_s is not None:
        length_s = float(duration_s)
    per_gpu = bool(size.random() < 0.22) and many <= 24
    gpus = int(size.choice([4, 8])) if many <= 160 else 1
    scrape_s = float(size.choice(_SCRAPES_S, p=[0.2, 0.12, 0.2, 0.18, 0.2, 0.1]))
    if duration_s is None and many > 1000:
        length_s = min(length_s, 1800.0)
    cells = many * (gpus + 1 if per_gpu else 1)
    while scrape_s < _SCRAPES_S[-1] and cells * length_s / scrape_s > _ROWS:
        scrape_s = _SCRAPES_S[_SCRAPES_S.index(scrape_s) + 1]
    step_s = float(np.exp(law.uniform(np.log(0.3), np.log(60.0))) if law.random() < 0.4 else np.exp(law.normal(np.log(5.0), 0.8)))
    step_s = float(np.clip(step_s, 0.3, 60.0))
    layout = _layout(law, many)
    board = _BOARDS[int(law.choice(len(_BOARDS), p=[0.3, 0.4, 0.18, 0.12]))]
    stretch = law.choice([0.6, 1.0, 1.6])
    prefix = str(law.choice(["pod", "blade", "cn", "hall2-", "a"]))
    return Site(
        names=tuple(f"{prefix}{number:04d}" for number in range(many)),
        gpus=gpus, per_gpu=per_gpu, start_s=1.76e9 + float(law.integers(0, 10_000_000)), duration_s=length_s,
        tick_s=max(2.0, length_s / 800.0), scrape_s=scrape_s, step_s=step_s, board=board, demand=_demand(law),
        stage_M=layout[0], role_M=layout[1], rack_M=layout[2], switch_M=layout[3],
        cold_c=float(law.uniform(18.0, 29.0)), inlet_c_M=_heavy(law, (many,), 1.1 * stretch),
        silicon_MG=1.0 + 0.03 * stretch * law.standard_normal((many, gpus)),
        clock_MG=1.0 - np.abs(0.006 * stretch * law.standard_normal((many, gpus))),
        cooling_MG=np.exp(0.07 * stretch * law.standard_normal((many, gpus))) * np.linspace(0.9, 1.12, gpus + 1)[1:],
        share_M=1.0 + 0.006 * stretch * law.standard_normal(many),
        nic_bytes=float(law.choice([2.5e10, 5e10, 2e11, 4e11])), pcie_head=float(law.uniform(1.1, 2.0)), roce=bool(law.random() < 0.6),
        fallow=float(law.choice([0.2, 1.0])),
        cpu_base_M=np.clip(law.uniform(0.04, 0.3) * np.exp(0.12 * law.standard_normal(many)), 0.01, 0.6),
        memory_M=np.clip(law.uniform(0.2, 0.7) + 0.03 * law.standard_normal(many), 0.05, 0.9),
        disk_M=np.clip(law.uniform(0.2, 0.7) + 0.08 * law.standard_normal(many), 0.03, 0.9),
        noise=float(np.exp(law.normal(0.0, 0.35))), window_s=float(law.choice([1.0, 1.0, scrape_s])), worst=bool(law.random() < 0.4),
        metrics=_metrics(stream(seed, 3)),
    )  # fmt: skip


def _heavy(law: np.random.Generator, shape: tuple[int, ...], size: float) -> np.ndarray:
    return np.clip(size * law.standard_t(4.0, shape), -4.0 * size, 4.0 * size)


def _layout(law: np.random.Generator, many: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(stage, role, rack, switch) by machine. A rack never holds more than half of the job."""
    place_M = np.arange(many)
    rack_size = min(int(law.choice([2, 4, 8, 16])), max(many // 3, 2))
    switch_size = min(rack_size * int(law.choice([1, 2, 4])), max(many // 2, 2))
    kind = law.choice(["data", "pipeline", "expert", "roles"], p=[0.4, 0.34, 0.12, 0.14])
    stage_M, role_M = np.full(many, -1), np.full(many, -1)
    if kind == "pipeline" and many >= 8:
        stages = int(law.choice([count for count in (2, 4, 8, 16) if many // count >= 3] or [2]))
        stage_M = place_M * stages // many if law.random() < 0.5 else place_M % stages
    elif kind == "roles" and many >= 8:
        role_M = (place_M >= round(many * law.uniform(0.3, 0.7))).astype(int)
    if law.random() < 0.4:
        place_M = law.permutation(many)  # the scheduler need not follow the racks
    return stage_M, role_M, place_M // rack_size, place_M // switch_size


def _demand(law: np.random.Generator) -> Demand:
    part = np.array([law.uniform(0.4, 0.8), law.uniform(0.06, 0.25), law.uniform(0.02, 0.12), law.uniform(0.05, 0.3)])
    bubble = float(law.uniform(0.0, 0.12))
    part *= (1.0 - bubble) / part.sum()
    return Demand(
        flop=float(part[0]), memory=float(part[1]), nvlink=float(part[2]), exposed=float(part[3]), hidden=float(law.uniform(0.0, 0.35)),
        intensity=float(law.uniform(0.72, 1.15)), launch=float(law.uniform(0.35, 0.9)), load=float(law.uniform(0.25, 0.85)),
        tensor=float(law.uniform(0.35, 0.75)), occupied=float(law.uniform(0.75, 0.97)), bubble=bubble,
        buffered=float(law.uniform(2.0, 30.0)),
    )  # fmt: skip


_DCGM = (
    "gpu_duty_cycle_ratio", "gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_graphics_activity_ratio", "gpu_power_draw_watts",
    "gpu_temperature_celsius", "gpu_clock_hertz", "gpu_memory_used_ratio", "gpu_memory_bandwidth_ratio",
    "nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second", "gpu_throttle_reasons", "gpu_ecc_uncorrectable_total",
    "gpu_rows_remapped_total",
)  # fmt: skip
_NVML = (
    "gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_temperature_celsius", "gpu_clock_hertz", "gpu_memory_used_ratio",
    "gpu_memory_bandwidth_ratio", "gpu_throttle_reasons", "pcie_link_width", "gpu_ecc_uncorrectable_total",
)  # fmt: skip
_VENDOR = (
    "gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_temperature_celsius", "gpu_clock_hertz", "gpu_memory_used_ratio",
    "nvlink_bandwidth_bytes_per_second", "pcie_link_width",
)  # fmt: skip
_HOST = ("cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "tcp_throughput_bytes_per_second", "tcp_retransmits_per_second")
_ROCE = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second")
_LINKS = ("link_errors_per_second", "link_downs_total")


def _metrics(law: np.random.Generator) -> tuple[str, ...]:
    """What this site exports. The network's kind of counters is settled where they are filled: a site of one kind has no other."""
    base = (_DCGM, _NVML, _VENDOR)[int(law.choice(3, p=[0.55, 0.27, 0.18]))]
    kept = [name for name in base if name in base[:1] or name == "gpu_power_draw_watts" or law.random() < 0.85]
    if base is _DCGM and law.random() < 0.4:
        kept.append("pcie_link_width")
    if law.random() < 0.78:
        kept += [name for name in _HOST if law.random() < 0.9]
    if law.random() < 0.7:
        kept += ["rdma_throughput_bytes_per_second", *_ROCE, "rdma_xmit_wait_per_second"]
        kept += [name for name in _LINKS if law.random() < 0.75]
    elif law.random() < 0.5:
        kept.append("rdma_throughput_bytes_per_second")
    if law.random() < 0.2:
        kept.append("step_seconds")
    return tuple(kept)
