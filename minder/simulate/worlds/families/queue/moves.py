"""What hits the job as a whole, and what looks like a fault and is none. Legend: R servers."""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.queue.faults import CONGESTION, CPU, Scene
from minder.simulate.worlds.families.queue.story import Gap, Hold, Mark, Service, Story

__all__ = ["bring_cause", "bring_nuisance"]

_STILL = ("_total", "_width", "_reasons", "_errors_per_second")  # these may be 0 or constant: an exporter's lie would not show
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


def bring_cause(name: str, scene: Scene, story: Story) -> None:
    """What hits the job as a whole, into the story."""
    rng, start, end, all_R = scene.rng, scene.start, scene.end, scene.all_R
    span, some = (start, end, all_R), float(rng.uniform())
    match name:
        case "storage_slow":
            rate = scene.layout.load_share * scene.slower(0.9, 0.2)
            story.add(Service(*span, load=rate, write=0.2 + 0.5 * some))
        case "loading_slow":
            story.add(Service(*span, load=scene.layout.load_share * scene.slower(0.95, 0.3)), Mark(*span, CPU, "add", 0.25 * some))
        case "congestion":
            story.add(Service(*span, network=scene.slower(0.8, 0.2)), Mark(*span, CONGESTION, "times", 2.0 + 8.0 * some))
        case "evaluation":
            story.add(Service(start, min(end, start + 60 + 240 * some), all_R, evaluation=True))
        case "load_shift":
            story.add(Service(start, np.inf, all_R, compute=float(rng.choice([0.6, 0.75, 1.25, 1.5])), network=0.8 + 0.5 * some))
        case "power_cap":
            cap = 0.7 + 0.2 * some
            story.add(
                Service(*span, compute=cap),
                Mark(*span, ("gpu_clock_hertz",), "times", cap),
                Mark(*span, ("gpu_power_draw_watts",), "times", cap),
            )
            story.add(Mark(*span, ("gpu_throttle_reasons",), "set", 4.0))
        case "compilation":
            story.add(Gap(start, 30 + 120 * some), Mark(start, start + 30 + 120 * some, all_R, CPU, "add", 0.4))
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
    story.add(Mark(*span, CPU, "add", float(rng.uniform(0.1, 0.5))), Mark(*span, ("memory_usage_ratio",), "add", 0.15))
    story.add(Mark(*span, ("tcp_throughput_bytes_per_second",), "times", float(rng.uniform(1.5, 5.0))))


def bring_nuisance(name: str, scene: Scene, story: Story) -> None:
    """What looks like a fault and is none, into the story."""
    rng, span = scene.rng, (scene.start, scene.end, scene.who_R)
    names = scene.layout.metrics
    one = (str(rng.choice([known for known in names if not known.endswith(_STILL)])),)
    match name:
        case "agent_lost":
            story.add(Mark(scene.start, np.inf, scene.who_R, (), "silent"))
        case "agent_restart" | "evaluation_agent":
            story.add(Mark(scene.start, scene.start + float(rng.uniform(20.0, 120.0)), scene.who_R, (), "silent"))
            if name == "evaluation_agent":
                story.add(Service(scene.start - 20.0, scene.start + 150.0, scene.all_R, evaluation=True))
        case "broken_metric":
            family = tuple(known for known in names if known.split("_")[:2] == one[0].split("_")[:2] or known == one[0])
            story.add(Mark(*span, family, "times", float(rng.choice([0.1, 0.3, 0.5])), lie=True))
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
            story.add(Mark(0.0, np.inf, first_R, CPU, "add", 0.03))
