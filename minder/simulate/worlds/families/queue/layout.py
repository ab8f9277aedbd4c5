"""The job and the site of one world: machines, stages, step and scrape times, and what the site exports.

Nothing here depends on a fault. A server is what works through a step: a machine, or one of its GPUs where devices are exported.
Legend: M machines, R servers (R = M x GPUs exported), P stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["GPU_METRICS", "HOST_METRICS", "Layout", "draw_layout", "stream"]

# Exported together or not at all, with the share of sites that do.
_GROUPS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1.0, ("gpu_power_draw_watts",)),
    (0.9, ("gpu_duty_cycle_ratio",)),
    (0.9, ("gpu_temperature_celsius",)),
    (0.65, ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio")),
    (0.3, ("gpu_graphics_activity_ratio", "gpu_fp_activity_ratio")),
    (0.8, ("gpu_clock_hertz",)),
    (0.8, ("gpu_memory_used_ratio",)),
    (0.7, ("nvlink_bandwidth_bytes_per_second",)),
    (0.7, ("pcie_bandwidth_bytes_per_second",)),
    (0.45, ("gpu_throttle_reasons",)),
    (0.4, ("pcie_link_width",)),
    (0.45, ("gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total")),
    (0.9, ("cpu_usage_ratio", "memory_usage_ratio")),
    (0.7, ("disk_usage_ratio",)),
    (0.85, ("rdma_throughput_bytes_per_second",)),
    (0.5, ("tcp_throughput_bytes_per_second",)),
    (0.6, ("link_errors_per_second", "link_downs_total")),
    (0.3, ("step_seconds", "steps_total")),
)
_ROCE = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second")
_INFINIBAND = ("rdma_xmit_wait_per_second",)
GPU_METRICS = frozenset(name for _, names in _GROUPS for name in names if name.startswith(("gpu_", "nvlink_", "pcie_")))
HOST_METRICS = frozenset(name for _, names in _GROUPS for name in names).union(_ROCE, _INFINIBAND) - GPU_METRICS

_MOST_CELLS = 250_000  # servers x steps held in memory
_MOST_ROWS = 400_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The healthy job. windows_s: over what an exporter averages a GPU gauge, a GPU profile and a counter. prefetch: batches."""

    seed: int
    machines: tuple[str, ...]
    gpus: int
    duration_s: float
    step_s: float
    interval_s: float
    stage_M: np.ndarray
    rollout_M: np.ndarray
    rack_M: np.ndarray
    switch_M: np.ndarray
    pipeline: int
    microbatches: int
    ring: bool
    expert: bool
    exchange_share: float
    load_share: float
    prefetch: int
    checkpoint_every_s: float
    checkpoint_s: float
    evaluation_every_s: float
    evaluation_s: float
    jitter: float
    metrics: tuple[str, ...]
    windows_s: tuple[float, float, float]
    two_exporters: bool
    loss: float
    knows_topology: bool
    start_s: float

    @property
    def servers(self) -> int:
        """R: how many work through a step."""
        return len(self.machines) * self.gpus


def stream(seed: int, name: str) -> np.random.Generator:
    """Random numbers for one purpose; what is drawn for another purpose does not move them."""
    return np.random.default_rng([seed, *name.encode()])


def _draw_metrics(rng: np.random.Generator) -> tuple[str, ...]:
    shares = rng.random(len(_GROUPS))
    names = [name for (share, group), drawn in zip(_GROUPS, shares, strict=True) if drawn < share for name in group]
    fabric = rng.random()
    return tuple(sorted([*names, *(_ROCE if fabric < 0.4 else _INFINIBAND if fabric < 0.8 else ())]))


def _draw_count(rng: np.random.Generator) -> int:
    few, size = rng.random(2)
    low, high = (4.0, 128.0) if few < 0.85 else (128.0, 4000.0)
    return int(np.rint(low * (high / low) ** size))


def _draw_times(rng: np.random.Generator, servers: int, machines: int, duration_s: float) -> tuple[float, float]:
    """Step and scrape interval in seconds: large jobs have longer steps, and their sites scrape less often."""
    step, interval = rng.random(), float(rng.choice([1, 2, 5, 5, 10, 10, 15, 30]))
    least = min(max(0.3, duration_s * servers / _MOST_CELLS), 30.0)
    step_s = least * (60.0 / least) ** (step * step)
    slow_enough = [s for s in (1, 2, 5, 10, 15, 30) if duration_s * servers / s <= _MOST_ROWS] or [30]
    return step_s, max(interval, float(slow_enough[0]))


def _stages(count: int, pipeline: int) -> np.ndarray:
    return np.arange(count) * pipeline // count


def draw_layout(seed: int, machines: int | None, duration_s: float | None) -> Layout:
    """The job and the site of this seed; machines and seconds as given, or the seed's own."""
    rng = stream(seed, "layout")
    count = _draw_count(rng)
    own_s = rng.uniform(900.0, 2400.0)
    count, duration_s = machines or count, duration_s or own_s
    devices = rng.random() < 0.3
    gpus = int(rng.choice([2, 4, 8])) if devices and count <= 48 else 1
    step_s, interval_s = _draw_times(stream(seed, "times"), count * gpus, count, duration_s)
    rng = stream(seed, "shape")
    pipeline = min(int(rng.choice([1, 1, 1, 2, 4, 8])), max(1, count // 2))
    rack, switch = int(rng.choice([4, 8, 16])), int(rng.choice([8, 16, 32]))
    roles = rng.random() < 0.12 and count >= 8 and pipeline == 1
    ring, expert = rng.random() < 0.5, rng.random() < 0.25
    placed = np.arange(count)
    return Layout(
        seed=seed,
        machines=tuple(f"{'host' if seed % 2 else 'gpu'}-{k:04d}" for k in range(1, count + 1)),
        gpus=gpus,
        duration_s=float(duration_s),
        step_s=step_s,
        interval_s=interval_s,
        stage_M=_stages(count, pipeline),
        rollout_M=(placed >= count - max(2, count // 3)) & roles,
        rack_M=placed // rack,
        switch_M=(placed // switch) if rng.random() < 0.6 else placed % max(1, -(-count // switch)),
        pipeline=pipeline,
        microbatches=int(rng.choice([4, 8, 16, 32])),
        ring=bool(ring and not expert),
        expert=bool(expert),
        exchange_share=rng.uniform(0.08, 0.45),
        load_share=rng.uniform(0.2, 0.75),
        prefetch=int(rng.integers(1, 9)),
        checkpoint_every_s=rng.uniform(180.0, 900.0),
        checkpoint_s=rng.uniform(2.0, 25.0),
        evaluation_every_s=rng.uniform(300.0, 1200.0) if rng.random() < 0.35 else np.inf,
        evaluation_s=rng.uniform(20.0, 90.0),
        jitter=float(np.exp(rng.uniform(np.log(0.003), np.log(0.03)))) * (3.0 if expert else 1.0),
        metrics=_draw_metrics(rng),
        windows_s=(float(rng.choice([0.17, 1.0, 1.0, interval_s])), float(rng.choice([1.0, interval_s, 30.0])), interval_s),
        two_exporters=bool(rng.random() < 0.3),
        loss=float(rng.choice([0.0, 0.002, 0.01, 0.03])),
        knows_topology=bool(rng.random() < 0.65),
        start_s=1.76e9 + float(rng.integers(0, 20_000_000)),
    )
