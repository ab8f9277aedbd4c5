"""A job on paper: machines, launchers and telemetry that are functions of a clock, in front of a controller that is real.

For soak and load tests: a day of it takes minutes, and a degraded state is a line of a script. Nothing is measured by it but the
controller. No processes, no network; captures answer nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from minder.model.clock import Clock
from minder.model.errors import SourceError, WireError
from minder.model.evidence import Signal
from minder.model.observation import MachineView, WorkerView
from minder.model.telemetry import Sample

__all__ = ["PaperFault", "PaperJob"]

_USUAL = {  # metric to (usual value, spread, share that is left of it on a machine that is slow, and while the job stands still)
    "gpu_duty_cycle_ratio": (0.96, 0.01, 0.55, 0.02),
    "gpu_power_draw_watts": (540.0, 6.0, 0.55, 0.2),
    "gpu_temperature_celsius": (62.0, 0.5, 0.85, 0.7),
    "gpu_memory_bandwidth_ratio": (0.55, 0.01, 0.5, 0.01),
    "rdma_throughput_bytes_per_second": (2.1e10, 3e8, 0.6, 0.0),
    "cpu_usage_ratio": (0.22, 0.02, 1.0, 0.5),
    "memory_usage_ratio": (0.41, 0.002, 1.0, 1.0),
    "tcp_retransmits_per_second": (0.2, 0.1, 1.0, 0.0),
}
_SLOW = 1.8  # how much longer a step takes with a slow machine


@dataclass(frozen=True, slots=True)
class PaperFault:
    """slow: the machine and with it the job; hang: the job stands still and only its own heartbeat went first; silent: it does not answer.
    Times are unix seconds. It ends at end_s, or as soon as its machine runs no rank any more."""

    kind: Literal["slow", "hang", "silent"]
    machine: str
    begin_s: float
    end_s: float


@dataclass(slots=True)
class _Launcher:
    generation: int = 0
    rank: int | None = None
    state: Literal["waiting", "running", "ended"] = "waiting"
    step: int | None = None
    step_s: float | None = None
    first: tuple[int, float] | None = None
    operations: dict[str, None] = field(default_factory=dict)
    ended_s: float = -math.inf


class PaperJob:
    """What `minder.wire.fleet.Fleet` and a telemetry source offer (`PaperJob` is both), for one rank per machine.

    `advance` moves the job to the clock's time. source_down: telemetry raises SourceError. silent_telemetry: it answers nothing.
    """

    def __init__(self, clock: Clock, machines: Sequence[str], ranks: int, *, step_s: float = 2.0, seed: int = 0) -> None:
        self.faults: list[PaperFault] = []
        self.source_down = False
        self._clock, self._ranks, self._step_s = clock, ranks, step_s
        self._launchers = {name: _Launcher() for name in machines}
        self._noise = np.random.default_rng(seed)
        self._signals: list[Signal] = []
        self._step, self._part, self._at_s = 0, 0.0, clock.monotonic_s()
        self._sampled_s = -math.inf

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(self._launchers)

    def advance(self) -> None:
        """Step for as long as has passed, if every rank of one generation runs and nothing holds it up."""
        now_s, passed_s = self._clock.now_s(), self._clock.monotonic_s() - self._at_s
        self._at_s += passed_s
        for item in self._launchers.values():
            if item.state == "ended" and self._at_s - item.ended_s > 5.0:
                item.state, item.rank = "waiting", None  # a fresh process is at the barrier again
        running = self._running()
        if len(running) < self._ranks or self._stands(now_s, running):
            return
        self._part += passed_s / (self._step_s * (_SLOW if self._among("slow", now_s, running) else 1.0))
        whole = int(self._part)
        self._part -= whole
        self._step += whole
        if whole:
            for name in running:
                item = self._launchers[name]
                item.step, item.step_s = self._step, now_s
                item.first = item.first or (self._step, now_s)

    def give_back(self, machine: str) -> None:
        """Repaired: its launcher waits at the barrier."""
        self._launchers[machine].state, self._launchers[machine].rank = "waiting", None

    def _running(self) -> list[str]:
        newest = max(item.generation for item in self._launchers.values())
        return [name for name, item in self._launchers.items() if item.state == "running" and item.generation == newest]

    def _among(self, kind: str, now_s: float, names: Iterable[str]) -> list[str]:
        here = set(names)
        return [
            fault.machine for fault in self.faults if fault.kind == kind and fault.begin_s <= now_s < fault.end_s and fault.machine in here
        ]

    def _stands(self, now_s: float, running: Sequence[str]) -> bool:
        return bool(self._among("hang", now_s, running) or self._among("silent", now_s, running))

    # what a Fleet offers

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def refresh(self, machines: Iterable[str], timeout_s: float = 1.0) -> None: ...

    def clock_error_s(self) -> float:
        return 0.01

    def refusals(self) -> dict[str, str]:
        return {}

    def jobs(self) -> dict[str, tuple[str, ...]]:
        return {}

    def drain(self) -> list[Signal]:
        found, self._signals = self._signals, []
        return found

    def lost(self) -> dict[str, int]:
        return {}

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        return {"generation": self._launchers[machine].generation}

    def views(self) -> dict[str, MachineView]:
        now_s = self._clock.now_s()
        silent = {
            fault.machine: now_s - fault.begin_s for fault in self.faults if fault.kind == "silent" and fault.begin_s <= now_s < fault.end_s
        }
        found = {}
        for index, (name, item) in enumerate(self._launchers.items()):
            first = item.first or (None, None)
            alive_s = None if item.state == "waiting" else now_s - silent.get(name, 0.0)
            worker = WorkerView(0, 1000 + index, item.rank, item.state, item.generation, item.step, item.step_s, alive_s, None, 2.0, *first)
            age_s = silent.get(name, 0.2)
            found[name] = MachineView(name, age_s, age_s, (worker,))
        return found

    def capture(
        self, machines: Iterable[str], what: list[str], deadline_s: float, **options: float
    ) -> dict[str, Mapping[str, Any] | WireError]:
        return {name: WireError(f"{name} is on paper: there is nothing to see") for name in machines}

    def dumps(self, machines: Iterable[str], deadline_s: float) -> dict[str, Mapping[str, Any] | WireError]:
        return self.capture(machines, [], deadline_s)

    def traces(self, since: Mapping[str, int], timeout_s: float) -> dict[str, Mapping[str, Any] | WireError]:
        return self.capture(since, [], timeout_s)

    def clock_offsets(self) -> dict[str, tuple[float, float]]:
        return {}

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float = 5.0) -> dict[str, Mapping[str, Any] | WireError]:
        return {name: self._take(name, self._launchers[name], body) for name, body in bodies.items()}

    def _take(self, name: str, item: _Launcher, body: Mapping[str, Any]) -> Mapping[str, Any] | WireError:
        if self._among("silent", self._clock.now_s(), [name]):
            return WireError(f"{name} does not answer")
        operation = str(body["operation_id"])
        if operation in item.operations:
            return {"outcome": "already_done"}
        item.operations[operation] = None
        item.generation, item.step, item.step_s, item.first = int(body["generation"]), None, None, None
        if body["desired"] == "run":
            item.state, item.rank = "running", int(body["assignments"][0]["env"]["RANK"])
        else:
            item.state, item.rank, item.ended_s = "ended", None, self._clock.monotonic_s()
        return {"outcome": "done"}

    # what a telemetry source offers

    def collect(self, now_s: float) -> list[Sample]:
        """One sample per machine and second. Raises SourceError while `source_down`."""
        if self.source_down:
            raise SourceError("the Prometheus on paper does not answer")
        if 0.0 <= now_s - self._sampled_s < 0.99:
            return []
        self._sampled_s = now_s
        running = self._running()
        silent, slow = self._among("silent", now_s, self.machines), self._among("slow", now_s, running)
        stands = len(running) < self._ranks or self._stands(now_s, running)
        usual, spread = (np.array([row[column] for row in _USUAL.values()]) for column in (0, 1))
        left_slow, left_still = (np.array([row[column] for row in _USUAL.values()]) for column in (2, 3))
        noise_MK = self._noise.normal(size=(len(self._launchers), len(_USUAL)))
        samples = []
        for index, name in enumerate(self._launchers):
            if name in silent:
                continue
            left = left_still if stands or name not in running else left_slow if name in slow else np.ones(len(_USUAL))
            values_K = np.maximum(0.0, usual * left + spread * noise_MK[index])
            samples.append(Sample(now_s, name, dict(zip(_USUAL, values_K.tolist(), strict=True))))
        return samples

    def close(self) -> None: ...
