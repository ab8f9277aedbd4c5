"""What `minder demo` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minder.config import check_url
from minder.model.errors import BadInputError
from minder.simulate.lab.faults import FAULT_KINDS

__all__ = ["DemoOptions"]

_SLOW_KINDS = ("slow-cpu", "slow-link")  # detected by comparing step times: more healthy steps first
_SPARES_READY = 110  # a plain script's spares load torch in the first half minute, from the same processors: steps are slow until then


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Raises BadInputError for a combination that makes no sense.

    at_step: the fault comes when this step is done. masked: the injector's fingerprints are hidden from the agents.
    plain: the training script calls no minder function. telemetry: "auto" takes Prometheus if it is on the PATH,
    an address the Prometheus there. memory: checkpoints lie in the machines' memory, and no folder is shared.
    slow_machines: of the ladder (minder.act.policy.ladder).
    """

    fault: str = "hang"
    out: Path = Path("demo-out")
    at_step: int | None = None
    machine: int = 2
    seed: int = 0
    machines: int = 6
    standbys: int = 2
    memory: bool = False
    slow_machines: Literal["evict", "prove"] = "evict"
    steps: int | None = None
    step_seconds: float = 0.25
    masked: bool = False
    plain: bool = False
    mode: Literal["auto", "namespaces", "processes"] = "auto"
    telemetry: str = "auto"
    scrape_interval_s: float = 1.0
    record: Path | None = None
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        if self.fault not in FAULT_KINDS:
            raise BadInputError(f"--fault {self.fault}: use one of {', '.join(FAULT_KINDS)}")
        if not 3 <= self.machines <= 32:
            raise BadInputError(f"--machines {self.machines}: 3 to 32; two machines that disagree cannot say who is wrong")
        if not 0 <= self.machine < self.machines:
            raise BadInputError(f"--machine {self.machine}: the lab's machines are 0 to {self.machines - 1}")
        if self.telemetry not in ("auto", "scrape", "prometheus"):
            check_url("--prometheus", self.telemetry)
        if self.injected_at < 5 or self.injected_at >= self.total_steps - 5:
            raise BadInputError(f"--at {self.injected_at}: give a step from 5 to {self.total_steps - 6}, or more --steps")

    @property
    def injected_at(self) -> int:
        if self.at_step is not None:
            return self.at_step
        if self.fault in _SLOW_KINDS:
            return _SPARES_READY if self.plain else 40
        return 25

    @property
    def total_steps(self) -> int:
        if self.steps is not None:
            return self.steps
        if self.fault == "crash-sticky":
            return self.injected_at + 120
        return self.injected_at + (45 if self.fault in _SLOW_KINDS else 35)

    @property
    def in_place(self) -> bool:
        """A cascade is what happens without in-place restart; a script without our two lines has none."""
        return not self.plain and self.fault != "crash-cascade"
