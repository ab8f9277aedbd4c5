"""What each fault of machines does in this model.

Legend: M machines, R servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.queue.layout import GPU_METRICS, HOST_METRICS, Layout
from minder.simulate.worlds.families.queue.story import Hold, Mark, Service, Story

__all__ = ["CONGESTION", "CPU", "Scene", "bring_fault"]

_CLOCK, _POWER, CPU = ("gpu_clock_hertz",), ("gpu_power_draw_watts",), ("cpu_usage_ratio",)
CONGESTION = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second")
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
    return [Mark(scene.start, scene.end, who_R, CPU, "add", 0.1)] if spin else []


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
    story.add(Mark(*span, CONGESTION, "times", scene.slower(2.5, 8.0)), Mark(*span, _ERRORS, "count", scene.slower(1.0, 60.0)))


def _pcie_width(scene: Scene, story: Story) -> None:
    lanes = float(scene.rng.choice([8.0])) if scene.size < 0.5 else float(scene.rng.choice([4.0, 2.0, 1.0]))
    span = (scene.start, scene.end, scene.card_R)
    story.add(Service(*span, load=lanes / 16, write=max(0.3, lanes / 16), compute=1 - 0.03 * (16 / lanes)))
    story.add(Mark(*span, ("pcie_link_width",), "set", lanes))
    story.add(Mark(*span, ("pcie_bandwidth_bytes_per_second",), "times", scene.slower(0.85, 0.4)))


def _busy_processor(scene: Scene, story: Story) -> None:
    span = (scene.start, scene.end, scene.who_R)
    story.add(Service(*span, compute=scene.slower(0.9, 0.35), load=scene.slower(0.9, 0.5)))
    story.add(Mark(*span, CPU, "add", scene.slower(0.2, 0.7)))
    story.add(Mark(*span, ("gpu_sm_activity_ratio", "gpu_duty_cycle_ratio"), "times", scene.slower(0.95, 0.5)))


def _link_flap(scene: Scene, story: Story) -> None:
    now = scene.start
    while now < scene.end:
        length = scene.slower(1.0, 15.0) * float(scene.rng.uniform(0.6, 1.4))
        story.add(Hold(now, length, scene.who_R, "exchange"))
        story.add(Mark(now, np.inf, scene.who_R, _DOWNS, "add", 1.0), Mark(now, now + 30, scene.who_R, _ERRORS, "count", 20.0))
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
    story.add(Service(*span, network=rate), Mark(*span, CONGESTION, "times", scene.slower(1.5, 6.0)))


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
        story.add(Service(*span, network=scene.slower(0.7, 0.2)), Mark(*span, CONGESTION, "times", scene.slower(2.0, 7.0)))
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
