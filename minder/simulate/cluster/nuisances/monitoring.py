"""The monitoring's own faults: sensors that stick, clocks that are off, exporters that die, outages."""

from __future__ import annotations

from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.scene import Scene

__all__ = ["add_dead_exporter", "add_late_dark", "add_outage", "add_skewed_clock", "add_stuck_sensor"]


def add_stuck_sensor(scene: Scene) -> None:
    """One or two gauges repeat their last value, for minutes or until the end."""
    rng = scene.streams.of("stuck_sensor")
    for _ in range(int(rng.integers(1, 3))):
        rows = scene.span(rng.uniform(30.0, scene.duration_s - 100.0), rng.uniform(90.0, 1500.0))
        machine, metric = int(rng.integers(scene.machines)), int(rng.integers(len(scene.models)))
        scene.frozen.append((machine, metric, rows.start, rows.stop))


def add_skewed_clock(scene: Scene) -> None:
    """One machine's clock is seconds off."""
    rng = scene.streams.of("skewed_clock")
    scene.skew_M[rng.integers(scene.machines)] = float(rng.choice([-1.0, 1.0]) * rng.uniform(3.0, 15.0))


def _bystander(scene: Scene, concept_draw: int) -> int | None:
    """A machine that is not faulty."""
    faulty = set(scene.fault.machines) if scene.fault else set()
    others = [machine for machine in range(scene.machines) if machine not in faulty]
    return others[concept_draw % len(others)] if others else None


def add_dead_exporter(scene: Scene) -> None:
    """An exporter dies while its machine trains on; sometimes it comes back."""
    rng = scene.streams.of("dead_exporter")
    machine = _bystander(scene, int(rng.integers(1 << 30)))
    if machine is not None:
        lasts_s = rng.uniform(60.0, 600.0) if rng.random() < 0.4 else float("inf")
        scene.silent_TM[scene.span(rng.uniform(60.0, scene.duration_s - 100.0), lasts_s), machine] = True


def add_outage(scene: Scene) -> None:
    """No machine is scraped for a while."""
    rng = scene.streams.of("outage")
    scene.silent_TM[scene.span(rng.uniform(100.0, scene.duration_s - 120.0), rng.uniform(30.0, 150.0))] = True


def add_late_dark(scene: Scene) -> None:
    """Peers of a halted job go dark minutes after the fault: their processes give up, or their pods are collected."""
    rng = scene.streams.of("late_dark")
    if scene.fault is None or FAULTS[scene.fault.kind].effect in ("slow", "flapping"):
        return
    for machine in range(scene.machines):
        leaves, at_s = rng.random() < 0.3, scene.fault.onset_s + rng.uniform(150.0, 400.0)
        if leaves and machine not in scene.fault.machines and at_s < scene.duration_s:
            if rng.random() < 0.5:
                scene.silent_TM[scene.span(at_s), machine] = True
            else:
                scene.enter("gone", scene.span(at_s), [machine])
