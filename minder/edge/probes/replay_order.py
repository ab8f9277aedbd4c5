"""What an order of the probe `replay` carries beside its id and hash: this machine's ranks of its group, where they meet, for how long.

It chooses ranks, addresses and numbers, never what code runs: the reference model comes with minder, and a job's own script is the one that
the launcher was started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from minder.model.errors import BadInputError
from minder.model.topology import Parallelism

__all__ = ["Meeting", "ReplayOrder", "parse_replay"]

_EXAMPLE = (
    '{"group": "h0", "program": "reference", "ranks": [{"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", ...}], '
    '"meetings": [{"generation": 4, "port": 29600}], "parallelism": {"tensor": 2, "pipeline": 2, "data": 1}, "steps": 100, "runs": 2}'
)
_MOST_RANKS, _MOST_RUNS, _MOST_STEPS = 256, 100, 10_000


@dataclass(frozen=True, slots=True)
class Meeting:
    """A store of its own, for one run or for all: its generation, and its port at the address of the ranks."""

    generation: int
    port: int


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """group: its name. program: "reference", or "script" for the launcher's own. ranks: the environment of each rank of this machine.
    meetings: of each run; a single one serves all runs of the reference model, which meets once. parallelism: of the group's own job.
    layers: of the replayed model."""

    group: str
    program: Literal["reference", "script"]
    ranks: tuple[Mapping[str, str], ...]
    meetings: tuple[Meeting, ...]
    parallelism: Parallelism
    steps: int
    runs: int
    seed: int = 0
    layers: int = 1

    def options(self) -> dict[str, Any]:
        """As the program reads them."""
        return {**asdict(self), "ranks": [dict(rank) for rank in self.ranks]}

    def environment(self, index: int, run: int) -> dict[str, str]:
        """Of the rank at this place of the machine, in this run."""
        at = self.meetings[min(run, len(self.meetings) - 1)]
        return {**self.ranks[index], "MASTER_PORT": str(at.port), "MINDER_GENERATION": str(at.generation)}


def parse_replay(item: Any) -> ReplayOrder:
    """From a decoded JSON object. Raises BadInputError that names the field."""
    if not isinstance(item, Mapping):
        raise BadInputError(f"replay must be an object such as {_EXAMPLE}")
    group, program = item.get("group"), item.get("program")
    if not isinstance(group, str) or not 1 <= len(group) <= 80:
        raise BadInputError(f"replay.group is {group!r}: the name of a group, such as h0")
    if program not in ("reference", "script"):
        raise BadInputError(f"replay.program is {program!r}: reference or script")
    numbers = {name: _whole(name, item.get(name), *bounds) for name, bounds in _BOUNDS.items()}
    order = ReplayOrder(group, program, _ranks(item.get("ranks")), _meetings(item.get("meetings")), _parallelism(item), **numbers)
    if program == "script" and len(order.meetings) < order.runs:
        raise BadInputError(f"replay.meetings has {len(order.meetings)}: a script needs one for each of its {order.runs} runs")
    return order


_BOUNDS = {"steps": (1, _MOST_STEPS), "runs": (1, _MOST_RUNS), "seed": (0, 2**31), "layers": (1, 2**20)}


def _ranks(value: Any) -> tuple[Mapping[str, str], ...]:
    good = isinstance(value, (list, tuple)) and 1 <= len(value) <= _MOST_RANKS
    if not good or not all(isinstance(one, Mapping) and all(isinstance(text, str) for text in one.values()) for one in value):
        raise BadInputError(f"replay.ranks must be a list of 1 to {_MOST_RANKS} environments, as in {_EXAMPLE}")
    if any(not str(one.get(name, "")).isdigit() for one in value for name in ("RANK", "WORLD_SIZE")):
        raise BadInputError(f"replay.ranks: each needs RANK and WORLD_SIZE, as in {_EXAMPLE}")
    return tuple({str(name): text for name, text in one.items()} for one in value)


def _meetings(value: Any) -> tuple[Meeting, ...]:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MOST_RUNS or not all(isinstance(one, Mapping) for one in value):
        raise BadInputError(f"replay.meetings must be a list of 1 to {_MOST_RUNS} objects, as in {_EXAMPLE}")
    return tuple(Meeting(_whole("generation", one.get("generation"), 0, 2**53), _whole("port", one.get("port"), 1, 65535)) for one in value)


def _parallelism(item: Mapping[str, Any]) -> Parallelism:
    value = item.get("parallelism")
    try:
        return Parallelism(**value) if isinstance(value, Mapping) else Parallelism(tensor=0)
    except TypeError as error:
        raise BadInputError(f"replay.parallelism: {error}") from error


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInputError(f"replay.{name} is {value!r}: a whole number from {least} to {most}")
    return value
