"""A job of a few machines, made by hand: what each tick would show a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from minder.model.evidence import Signal
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.telemetry import Flow

START_S = 1_700_000_000.0


@dataclass
class Scene:
    """Machines m0, m1, ... with one rank each. Times are seconds after the generation's start (START_S)."""

    count: int = 4
    generation: int = 1
    phase: str = "running"
    barred: tuple[str, ...] = ()
    started_s: float = START_S
    views: dict[str, MachineView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answer(0.0)

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(f"m{index}" for index in range(self.count))

    @property
    def job(self) -> JobView:
        return JobView(
            name="llm",
            generation=self.generation,
            phase=self.phase,  # type: ignore[arg-type]
            machines=self.machines,
            standbys=(),
            barred=self.barred,
            rank_machine=dict(enumerate(self.machines)),
            quiet_until_s=0.0,
            generation_start_s=self.started_s,
        )

    def answer(self, at_s: float, step: int | None = None, **changes: Any) -> None:
        """Every machine answers, its worker runs and has done `step` at `at_s`."""
        time_s = START_S + at_s
        worker = WorkerView(0, 100, 0, "running", self.generation, step, time_s, time_s, first_step=1, first_step_time_s=START_S)
        for rank, machine in enumerate(self.machines):
            own = replace(worker, rank=rank, pid=100 + rank, **changes)
            self.views[machine] = MachineView(machine, 0.2, 0.2, (own,))

    def worker(self, machine: str, **changes: Any) -> None:
        """Change what the launcher says of this machine's worker."""
        view = self.views[machine]
        self.views[machine] = replace(view, workers=(replace(view.workers[0], **changes),))

    def silence(self, machine: str, agent_s: float | None = 30.0, launcher_s: float | None = 30.0) -> None:
        self.views[machine] = replace(self.views[machine], agent_age_s=agent_s, launcher_age_s=launcher_s)

    def see(
        self, at_s: float, signals: Sequence[Signal] = (), flows: Sequence[Flow] = (), *, clock_error_s: float = 0.01, **more: Any
    ) -> Observation:
        """The observation at START_S + at_s."""
        return Observation(START_S + at_s, None, signals, self.job, dict(self.views), flows, clock_error_s, **more)

    def signal(self, kind: str, machine: str | None, at_s: float, message: str = "", **data: Any) -> Signal:
        rank = self.machines.index(machine) if machine in self.machines else None
        generation = data.pop("generation", self.generation)
        return Signal(START_S + at_s, kind, machine, message, rank, None, 100 + (rank or 0), generation, data)  # type: ignore[arg-type]

    def killed(self, machine: str, at_s: float, number: int = 9, **data: Any) -> Signal:
        return self.signal("exit", machine, at_s, signal=number, **data)

    def left(self, machine: str, at_s: float, code: int, **data: Any) -> Signal:
        return self.signal("exit", machine, at_s, code=code, **data)

    def raised(self, machine: str, at_s: float, message: str = "boom", **data: Any) -> Signal:
        facts: Mapping[str, Any] = {"type": "ValueError", "fingerprint": "ValueError-1", "victim": False, **data}
        return self.signal("exception", machine, at_s, message, **facts)

    def reset(self, machine: str, at_s: float, **data: Any) -> Signal:
        """A peer's death, as this machine sees it."""
        facts = {"type": "RuntimeError", "fingerprint": "RuntimeError-9", "victim": True, **data}
        return self.raised(machine, at_s, "Connection closed by peer", **facts)

    def flow(self, machine: str, peer: str, at_s: float, **changes: Any) -> Flow:
        """One look at the connection from `machine` to `peer`; both ends use fixed addresses."""
        one, two = self.machines.index(machine), self.machines.index(peer)
        low, high = sorted((one, two))
        port = 40_000 + 100 * low + high
        local, remote = f"10.0.0.{one}:{port}", f"10.0.0.{two}:{port}"
        plain = Flow(machine, START_S + at_s, 100 + one, local, remote, 0, 0, 0, 0, 0, 0.0002, 1000, 1000, 5.0, 5.0)
        return replace(plain, **changes)

    def ring(self, at_s: float, change: Callable[[str, str], Mapping[str, Any]]) -> list[Flow]:
        """Both ends of the connections of a ring; `change(machine, peer)` gives what is special about one end."""
        names = self.machines
        pairs = [(names[index], names[(index + 1) % len(names)]) for index in range(len(names))]
        both = [*pairs, *((two, one) for one, two in pairs)]
        return [self.flow(one, two, at_s, **change(one, two)) for one, two in dict.fromkeys(both)]


@pytest.fixture
def start_s() -> float:
    return START_S


@pytest.fixture
def make_scene() -> Callable[..., Scene]:
    """make_scene(count=6, generation=2)"""
    return Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()
