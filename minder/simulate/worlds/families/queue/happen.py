"""What each kind of trouble does in this model: faults of machines, causes that hit the job as a whole, and nuisances.

Legend: M machines, R servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.queue.layout import GPU_METRICS, HOST_METRICS, Layout
from minder.simulate.worlds.families.queue.story import Gap, Hold, Mark, Service, Story

__all__ = ["Scene", "bring_cause", "bring_fault", "bring_nuisance"]

_CLOCK, _POWER, _CPU = ("gpu_clock_hertz",), ("gpu_power_draw_watts",), ("cpu_usage_ratio",)
_CONGESTION = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second")
_ERRORS, _DOWNS, _THROTTLE = ("link_errors_per_second",), ("link_downs_total",), ("gpu_throttle_reasons",)
_GPU, _HOST = tuple(sorted(GPU_METRICS)), tuple(sorted(HOST_METRICS))


@dataclass(frozen=True, slots=True)
class Scene:
    """Where and when one trouble stands. who_M: machines. card_R: one GPU of each where GPUs are exported. size: 0 weak to 1 strong."""

    layout: Layout
    rng: np.random.Generator
    who_M: np.ndarray
    card_R: np.ndarray
    start: float
    end: float
    size: float = 1.0

    @property
    def who_R(self) -> np.ndarray:
        """All servers of the machines."""
        return np.repeat(self.who_M, self.layout.gpus)

    @property
    def all_R(self) -> np.ndarray:
        """Every server of the job."""
        return np.ones(self.layout.servers, dtype=bool)

    def slower(self, weak: float, strong: float) -> float:
        """A rate between weak (size 0) and strong (size 1)."""
        return weak + (strong - weak) * self.size


def _idle(scene: Scene, who_R: np.ndarray, spin: bool) -> list[Mark]:
    """How a held machine's readings look beside HELD's: a process that spins keeps a core busy."""
    return [Mark(scene.start, scene.end, who_R, _CPU, "add", 0.1)] if spin else []


def _slow_gpu(scene: Scene, story: Story) -> None:
    rate = scene.slower(0.9, 0.4)
    story.add(Service(scene.start, scene.end, scene.card_R, compute=rate))
    story.add(Mark(scene.start, scene.end, scene.card_R, _POWER, "times", 0.97 - 0.25 * (1 - rate)))


def _flat_clock(scene: Scene, story: Story) -> None:
    clock = scene.slower(0.88, 0.5)
    story.add(Service(scene.start, scene.end, scene.card_R, compute=1 - 0.15 * (1 - clock)))
    story.add(Mark(scene.start, scene.end, scene.card_R, _CLOCK, "times", clock))


def _throttle_bouts(scene: Scene, story: Story) -> None:
    clock, period = scene.slower(0.85, 0.45), float(scene.rng.uniform(40.0, 150.0))
    on = period * float(scene.rng.uniform(0.25, 0.7))
    span = (scene.start, scene.end, scene.card_R)
    story.add(Service(*span, compute=clock, period_s=period, on_s=on))
    story.add(Mark(*span, _CLOCK, "times", clock, period, on), Mark(*span, _POWER, "times", 0.5 + 0.5 * clock, period, on))
    story.add(Mark(*span, _THROTTLE, "set", float(scene.rng.choice([0x20, 0x40, 0x08, 0x80])), period, on))
    if scene.rng.random() < 0.5:
        story.add(Mark(*span, ("gpu_temperature_celsius",), "add", 4 + 10 * scene.size))


def _nvlink_lane(scene: Scene, story: Story) -> None:
    rate = scene.slower(0.9, 0.5)
    story.add(Service(scene.start, scene.end, scene.card_R, compute=0.5 + 0.5 * rate))
    story.add(Mark(scene.start, scene.end, scene.card_R, ("nvlink_bandwidth_bytes_per_second",), "times", rate))


def _dirty_optics(scene: Scene, story: Story) -> None:
    span = (scene.start, scene.end, scene.who_R)
    story.add(Service(*span, network=scene.slower(0.95, 0.5)))
    story.add(Mark(*span, _CONGESTION, "times", scene.slower(2.5, 8.0)), Mark(*span, _ERRORS, "add", scene.slower(1.0, 60.0)))


def _pcie_width(scene: Scene, story: Story) -> None:
    lanes = float(scene.rng.choice([8.0])) if scene.size < 0.5 else float(scene.rng.choice([4.0, 2.0, 1.0]))
    span = (scene.start, scene.end, scene.card_R)
    story.add(Service(*span, load=lanes / 16, write=max(0.3, lanes / 16), compute=1 - 0.03 * (16 / lanes)))
    story.add(Mark(*span, ("pcie_link_width",), "set", lanes))
    story.add(Mark(*span, ("pcie_bandwidth_bytes_per_second",), "times", scene.slower(0.85, 0.4)))


def _busy_processor(scene: Scene, story: Story) -> None:
    span = (scene.start, scene.end, scene.who_R)
    story.add(Service(*span, compute=scene.slower(0.9, 0.35), load=scene.slower(0.9, 0.5)))
    story.add(Mark(*span, _CPU, "add", scene.slower(0.2, 0.7)))
    story.add(Mark(*span, ("gpu_sm_activity_ratio", "gpu_duty_cycle_ratio"), "times", scene.slower(0.95, 0.5)))


def _link_flap(scene: Scene, story: Story) -> None:
    now = scene.start
    while now < scene.end:
        length = scene.slower(1.0, 15.0) * float(scene.rng.uniform(0.6, 1.4))
        story.add(Hold(now, length, scene.who_R, "exchange"))
        story.add(Mark(now, np.inf, scene.who_R, _DOWNS, "add", 1.0), Mark(now, now + 30, scene.who_R, _ERRORS, "add", 20.0))
        now += float(scene.rng.uniform(40.0, 160.0))


def _frozen_gauges(scene: Scene, story: Story) -> None:
    metrics = _GPU if scene.rng.random() < 0.5 else _GPU + _HOST
    story.add(Hold(scene.start, np.inf, scene.who_R), Mark(scene.start, scene.end, scene.who_R, metrics, "freeze", lie=True))


def _gpu_lost(scene: Scene, story: Story) -> None:
    story.add(Hold(scene.start, np.inf, scene.who_R))
    gone: tuple[str, ...] = _GPU
    if scene.layout.gpus > 1:
        story.add(Mark(scene.start, scene.end, scene.card_R, gone, "blank" if scene.rng.random() < 0.6 else "set", 0.0))
        return
    story.add(Mark(scene.start, scene.end, scene.who_R, _POWER, "times", 0.8))
    story.add(Mark(scene.start, scene.end, scene.who_R, ("gpu_duty_cycle_ratio", "gpu_clock_hertz", "pcie_link_width"), "times", 0.875))


def _stall(scene: Scene, story: Story) -> None:
    story.add(Hold(scene.start, np.inf, scene.who_R))
    story.add(*_idle(scene, scene.who_R, bool(scene.rng.random() < 0.5)))


def _ecc_errors(scene: Scene, story: Story) -> None:
    later = scene.start + float(scene.rng.uniform(10.0, 60.0))
    story.add(Mark(scene.start, scene.end, scene.card_R, ("gpu_ecc_uncorrectable_total",), "climb", scene.slower(0.02, 0.3)))
    story.add(Mark(later, scene.end, scene.card_R, ("gpu_rows_remapped_total",), "add", float(scene.rng.integers(1, 5))))
    story.add(Hold(later, np.inf, scene.who_R))


def _machine_dead(scene: Scene, story: Story) -> None:
    story.add(Hold(scene.start, np.inf, scene.who_R), Mark(scene.start, scene.end, scene.who_R, (), "silent"))


def _memory_leak(scene: Scene, story: Story) -> None:
    full = scene.start + float(scene.rng.uniform(90.0, 240.0))
    story.add(Mark(scene.start, full, scene.who_R, ("memory_usage_ratio",), "to", 0.995), Hold(full, np.inf, scene.who_R))
    story.add(Mark(full, scene.end, scene.who_R, ("memory_usage_ratio",), "set", float(scene.rng.uniform(0.04, 0.2))))


def _recurring_freezes(scene: Scene, story: Story) -> None:
    now, every = scene.start, float(scene.rng.uniform(45.0, 150.0))
    while now < scene.end:
        story.add(Hold(now, scene.slower(3.0, 30.0) * float(scene.rng.uniform(0.7, 1.3)), scene.who_R))
        now += every * float(scene.rng.uniform(0.8, 1.2))


def _slow_network(scene: Scene, story: Story) -> None:
    rate = scene.slower(0.85, 0.2)
    span = (scene.start, scene.end, scene.who_R)
    story.add(Service(*span, network=rate), Mark(*span, _CONGESTION, "times", scene.slower(1.5, 6.0)))


def _slow_storage(scene: Scene, story: Story) -> None:
    rate = scene.layout.load_share * scene.slower(0.85, 0.25)  # slow enough to be felt through the buffer
    span = (scene.start, scene.end, scene.who_R)
    story.add(Service(*span, load=rate, write=rate))
    story.add(Mark(*span, ("tcp_throughput_bytes_per_second",), "times", scene.slower(0.8, 0.3)))


def _full_disk(scene: Scene, story: Story) -> None:
    story.add(Hold(scene.start, np.inf, scene.who_R, "write"))


def _group_silent(scene: Scene, story: Story) -> None:
    later = scene.start + float(scene.rng.uniform(45.0, 150.0))
    story.add(Mark(scene.start, scene.end, scene.who_R, (), "silent"), Hold(later, np.inf, scene.who_R))


def _group_slow(scene: Scene, story: Story) -> None:
    span = (scene.start, scene.end, scene.who_R)
    if scene.rng.random() < 0.6:
        story.add(Service(*span, network=scene.slower(0.7, 0.2)), Mark(*span, _CONGESTION, "times", scene.slower(2.0, 7.0)))
        return
    story.add(Service(*span, compute=scene.slower(0.85, 0.4)), Mark(*span, _CLOCK, "times", scene.slower(0.9, 0.6)))
    story.add(Mark(*span, _POWER, "times", scene.slower(0.95, 0.7)))


def _two_slow(scene: Scene, story: Story) -> None:
    (_slow_gpu if scene.rng.random() < 0.6 else _busy_processor)(scene, story)


_FAULTS: dict[str, Callable[[Scene, Story], None]] = {
    "busy_processor": _busy_processor,
    "dirty_optics": _dirty_optics,
    "early_stall": _stall,
    "ecc_errors": _ecc_errors,
    "flat_clock": _flat_clock,
    "frozen_gauges": _frozen_gauges,
    "full_disk": _full_disk,
    "gpu_lost": _gpu_lost,
    "group_silent": _group_silent,
    "group_slow": _group_slow,
    "link_flap": _link_flap,
    "machine_dead": _machine_dead,
    "memory_leak": _memory_leak,
    "nvlink_lane": _nvlink_lane,
    "pcie_width": _pcie_width,
    "recurring_freezes": _recurring_freezes,
    "slow_from_start": _slow_gpu,
    "slow_gpu": _slow_gpu,
    "slow_network": _slow_network,
    "slow_storage": _slow_storage,
    "stall": _stall,
    "throttle_bouts": _throttle_bouts,
    "two_slow": _two_slow,
}


def bring_fault(name: str, scene: Scene, story: Story) -> None:
    """This fault's parts into the story."""
    _FAULTS[name](scene, story)


def bring_cause(name: str, scene: Scene, story: Story) -> None:
    """What hits the job as a whole, into the story."""
    rng, start, end, all_R = scene.rng, scene.start, scene.end, scene.all_R
    span, some = (start, end, all_R), float(rng.uniform())
    match name:
        case "storage_slow":
            rate = scene.layout.load_share * scene.slower(0.9, 0.2)
            story.add(Service(*span, load=rate, write=0.2 + 0.5 * some))
        case "loading_slow":
            story.add(Service(*span, load=scene.layout.load_share * scene.slower(0.95, 0.3)), Mark(*span, _CPU, "add", 0.25 * some))
        case "congestion":
            story.add(Service(*span, network=scene.slower(0.8, 0.2)), Mark(*span, _CONGESTION, "times", 2.0 + 8.0 * some))
        case "evaluation":
            story.add(Service(start, min(end, start + 60 + 240 * some), all_R, evaluation=True))
        case "load_shift":
            story.add(Service(start, np.inf, all_R, compute=float(rng.choice([0.6, 0.75, 1.25, 1.5])), network=0.8 + 0.5 * some))
        case "power_cap":
            cap = 0.7 + 0.2 * some
            story.add(Service(*span, compute=cap), Mark(*span, _CLOCK, "times", cap), Mark(*span, _POWER, "times", cap))
            story.add(Mark(*span, _THROTTLE, "set", 4.0))
        case "compilation":
            story.add(Gap(start, 30 + 120 * some), Mark(start, start + 30 + 120 * some, all_R, _CPU, "add", 0.4))
        case "restart":
            story.add(Gap(start, 60 + 180 * some))
        case "deadlock":
            story.add(Hold(start, np.inf, all_R, "wait"))
        case "job_ends" | "user_bug":
            story.add(Gap(start, np.inf))
            if name == "job_ends":
                story.add(Mark(start + 60 + 240 * some, np.inf, all_R, (), "silent"))


def _tenant(scene: Scene, story: Story) -> None:
    rng, span = scene.rng, (scene.start, scene.end, scene.who_R)
    story.add(Mark(*span, _CPU, "add", float(rng.uniform(0.1, 0.5))), Mark(*span, ("memory_usage_ratio",), "add", 0.15))
    story.add(Mark(*span, ("tcp_throughput_bytes_per_second",), "times", float(rng.uniform(1.5, 5.0))))


def bring_nuisance(name: str, scene: Scene, story: Story) -> None:
    """What looks like a fault and is none, into the story."""
    rng, span = scene.rng, (scene.start, scene.end, scene.who_R)
    names = scene.layout.metrics
    one = (str(rng.choice(names)),)
    match name:
        case "agent_lost":
            story.add(Mark(scene.start, np.inf, scene.who_R, (), "silent"))
        case "agent_restart" | "evaluation_agent":
            story.add(Mark(scene.start, scene.start + float(rng.uniform(20.0, 120.0)), scene.who_R, (), "silent"))
            if name == "evaluation_agent":
                story.add(Service(scene.start - 20.0, scene.start + 150.0, scene.all_R, evaluation=True))
        case "broken_metric":
            story.add(Mark(*span, one, "times", float(rng.choice([0.1, 0.3, 0.5])), lie=True))
        case "exporter_freeze":
            story.add(Mark(*span, (), "freeze", lie=True))
        case "stuck_gauge":
            story.add(Mark(*span, one, "freeze", lie=True))
        case "zero_for_missing":
            story.add(Mark(*span, one, "set", 0.0, lie=True))
        case "unit_change":
            units = [(name, by) for name, by in _UNITS if name in names] or [(one[0], 1.0)]
            name, by = units[int(rng.integers(len(units)))]
            story.add(Mark(scene.start, np.inf, scene.who_R, (name,), "times", by, lie=True))
        case "hot_aisle":
            story.add(Mark(*span, ("gpu_temperature_celsius",), "add", float(rng.uniform(4.0, 12.0))))
        case "second_tenant":
            _tenant(scene, story)
        case "rank0_writes":
            first_R = np.arange(scene.layout.servers) < scene.layout.gpus
            story.add(Service(0.0, np.inf, first_R, write=float(rng.uniform(0.15, 0.5))))
            story.add(Mark(0.0, np.inf, first_R, _CPU, "add", 0.03))


# MHz for Hz, bits for bytes, a share of one for a hundred, kW for W, KiB for B
_UNITS = (
    ("gpu_clock_hertz", 1e-6),
    ("rdma_throughput_bytes_per_second", 8.0),
    ("cpu_usage_ratio", 0.01),
    ("gpu_power_draw_watts", 1e-3),
    ("nvlink_bandwidth_bytes_per_second", 1 / 1024),
    ("pcie_bandwidth_bytes_per_second", 1e-3),
    ("gpu_duty_cycle_ratio", 0.01),
)
