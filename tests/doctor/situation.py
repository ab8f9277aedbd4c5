"""Sites as they are found: what their Prometheus holds, and what a careful engineer reads from it first.

Each is a small Prometheus (targets with their pages), and the right answer: which machines there are, what is read of each, and what has
to be said. `machines` is empty where no label and no metric tells the machines apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.doctor.exporters import dcgm
from tests.doctor.recorded import Target

__all__ = ["ALL", "GPU", "NAMES", "SITES", "UTIL", "WORK", "Situation", "bare", "each", "full", "site"]

NAMES = tuple(f"gpu-{number}" for number in range(1, 5))
ALL = frozenset({"gpu", "host", "network"})
GPU = frozenset({"gpu"})


@dataclass(frozen=True)
class Situation:
    """families: of each machine. values: metric to the range in which the first machine's value must be. absent: metrics that are not to be
    read. says: words of the findings; unsaid: words that are not there. fine: nothing is missing. selector: as `--selector`."""

    name: str
    targets: tuple[Target, ...]
    machines: tuple[str, ...] = NAMES
    families: frozenset[str] | None = ALL
    values: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    fine: bool = True
    selector: str = ""


UTIL = {"gpu_duty_cycle_ratio": (0.9, 1.0)}
WORK = {**UTIL, "gpu_power_draw_watts": (500.0, 700.0)}
SITES: list[Situation] = []


def site(name: str, *targets: Target, **more: object) -> None:
    SITES.append(Situation(name, targets, **more))  # type: ignore[arg-type]


def each(
    job: str, page: object, instance: str, honor: bool = False, names: tuple[str, ...] = NAMES, every: str = "15s", **labels: str
) -> list[Target]:
    """A target for each machine. page: of a machine's name. every: its interval. {n} and {m} in labels become number and name."""
    found = []
    for number, name in enumerate(names, start=1):
        given = {key: value.format(n=number, m=name) for key, value in {"instance": instance, **labels}.items()}
        found.append(Target(job, page(name), given, honor, interval=every))  # type: ignore[operator]
    return found


def full(name: str) -> str:
    return dcgm(name, name)


def bare(name: str) -> str:
    return dcgm(name)
