"""What the machines and the job tell in words: the fault's own log line, exit or link event; phases; steps (docs/recordings.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minder.model.evidence import Signal
from minder.simulate.cluster.fault_plan import FaultPlan
from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.iteration import Iteration
from minder.simulate.cluster.scene import Scene

__all__ = ["announce", "recorded_signals"]

_LOGS = {"hdfs": "HDFS read failed: could not obtain block", "mount": "mount point does not respond: stale file handle"}
_STEP_EVERY_S = 10.0


def announce(scene: Scene) -> None:
    """Let the fault speak, at the onset or some seconds later."""
    plan = scene.fault
    if plan is None or not FAULTS[plan.kind].signal:
        return
    rng = scene.streams.of("signals")
    for machine in plan.machines:
        scene.signals += _fault_signals(scene, plan, scene.shape.machines[machine], rng)


def _fault_signals(scene: Scene, plan: FaultPlan, machine: str, rng: np.random.Generator) -> list[Signal]:
    kind, _, rest = FAULTS[plan.kind].signal.partition(" ")
    at_s, gpu, port = plan.onset_s + rng.uniform(0.0, 4.0), int(rng.integers(8)), f"mlx5_{rng.integers(8)}"
    if kind == "xid":
        message = f"NVRM: Xid (PCI:0000:{gpu:02x}:00): {rest}, pid={rng.integers(1000, 99999)}"
        return [Signal(at_s, "xid", machine, message, device=f"gpu{gpu}", data={"code": int(rest)})]
    if kind == "exit":
        data = {"code": None, "signal": 9} if rest == "9" else {"code": int(rest), "signal": None}
        return [
            Signal(at_s + plan.ramp_s, "exit", machine, rank=_first_rank(scene, machine) + gpu % scene.shape.gpus_per_machine, data=data)
        ]
    if kind == "kernel":
        return [Signal(at_s, "kernel", machine, "Kernel panic - not syncing: Fatal exception in interrupt")]
    if kind == "log":
        return [Signal(at_s, "log", machine, _LOGS[rest], data={"level": "error"})]
    if rest == "down":
        return [Signal(at_s, "link", machine, device=port, data={"state": "down"})]
    flaps_s = np.arange(plan.onset_s, scene.duration_s, rng.uniform(20.0, 45.0))
    return [
        Signal(t + dt, "link", machine, device=port, data={"state": state}) for t in flaps_s for dt, state in ((0.0, "down"), (6.0, "up"))
    ]


def _first_rank(scene: Scene, machine: str) -> int:
    return scene.shape.machines.index(machine) * scene.shape.gpus_per_machine


def recorded_signals(scene: Scene, iteration: Iteration, begin_s: float, with_signals: bool) -> list[Signal]:
    """Everything that goes into events.jsonl, in time order, in unix seconds."""
    found = [*_phases(scene), *_steps(scene, iteration), *(scene.signals if with_signals else ())]
    inside = [signal for signal in found if 0.0 <= signal.time_s < scene.duration_s]
    return [replace(signal, time_s=round(begin_s + signal.time_s, 3)) for signal in sorted(inside, key=lambda signal: signal.time_s)]


def _phases(scene: Scene) -> list[Signal]:
    ends = [(phase.begin_s, phase.name, "begin") for phase in scene.phases] + [(phase.end_s, phase.name, "end") for phase in scene.phases]
    return [Signal(at_s, "phase", data={"phase": name, "state": state}) for at_s, name, state in ends]


def _steps(scene: Scene, iteration: Iteration) -> list[Signal]:
    """A line every few steps, as loops log them; the loss falls slowly and is noisy."""
    rng = scene.streams.of("steps")
    progress = np.where(scene.wait_TM.min(axis=1) > 0.85, 0.0, np.diff(iteration.progress(scene)))
    done_T = np.floor(np.cumsum(progress))
    every = max(1, round(_STEP_EVERY_S / iteration.step_s))
    first = int(rng.integers(100, 50_000))
    ticks = np.nonzero(np.diff(np.floor(done_T / every), prepend=0.0) > 0)[0]
    noise_N, norm_N = rng.normal(0.0, 0.02, len(ticks)), np.exp(rng.normal(-0.5, 0.15, len(ticks)))
    return [
        Signal(
            float(scene.time_T[t]), "step",
            data={"step": first + int(done_T[t]), "loss": round(2.2 + float(noise_N[n]), 4), "grad_norm": round(float(norm_N[n]), 4),
                  "seconds": round(iteration.step_s / max(float(scene.pace_T[t]), 0.05), 3)},
        )
        for n, t in enumerate(ticks)
    ]  # fmt: skip
