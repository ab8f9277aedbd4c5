"""Where a job's machines stand and which ranks they run: worked out once for as long as its registration and configuration stay."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from minder.config import JobConfig
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism
from minder.record.incidents.places import find_places
from serve.job_index import JobPast

__all__ = ["AXES", "NO_LAYOUT", "NO_RACK", "JobShape", "JobShapes"]

AXES = {"pp": "pipeline stage", "dp": "data-parallel rank", "tp": "tensor rank", "rack": "rack"}
NO_LAYOUT = "machines, in order of their ranks"
NO_RACK = "no rack is recorded"

_PLACES = ("rack", "switch", "serial")


@dataclass(frozen=True)
class JobShape:
    """Of one job. past: what the ledger leads to; config: None where the service has none."""

    past: JobPast
    config: JobConfig | None
    _titles: dict[str, dict[str, str]] = field(default_factory=dict)

    @cached_property
    def rank_machine(self) -> Mapping[int, str]:
        """Now; of a job that is watched and whose engine does not say otherwise, as its configuration has it."""
        watched = self.past.watched is not None and self.config is not None and self.config.engine is None
        return self.past.state.rank_machine or (self.config.topology().rank_machine if watched and self.config is not None else {})

    @cached_property
    def ranks(self) -> Mapping[str, tuple[int, ...]]:
        """Machine to its ranks, ascending."""
        found: dict[str, list[int]] = {}
        for rank in sorted(self.rank_machine):
            found.setdefault(self.rank_machine[rank], []).append(rank)
        return {machine: tuple(ranks) for machine, ranks in found.items()}

    @cached_property
    def places(self) -> Mapping[str, Mapping[str, str]]:
        """Machine to its rack, switch and serial number, as far as they are known: the configuration's word is the newer one."""
        found = find_places([self.past.registered] if self.past.registered is not None else [])
        for item in self.config.machines if self.config is not None else ():
            known = {key: value for key in _PLACES if (value := getattr(item, key))}
            if known:
                found[item.name] = found.get(item.name, {}) | known
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Every machine that the ledger or the configuration has of it."""
        registered = {} if self.past.registered is None else self.past.registered.payload
        own = [*self.past.machines, *self.past.state.barred, *(registered.get("machines") or ()), *(registered.get("standbys") or ())]
        return frozenset(map(str, own)) | {item.name for item in (self.config.machines if self.config is not None else ())}

    @cached_property
    def _reached(self) -> frozenset[str] | None:
        """Machines with the address of an agent or a launcher; None where an engine gives all their addresses."""
        if self.config is None or self.config.engine is not None:
            return None
        return frozenset(item.name for item in self.config.machines if item.agent or item.launcher)

    def is_asked(self, machine: str) -> bool:
        """Whether an agent or a launcher of it should be heard: a job may be watched by its telemetry alone."""
        return self._reached is None or machine in self._reached

    @cached_property
    def parallelism(self) -> Parallelism | None:
        """Of the ranks that run now: a job that goes on with fewer machines has fewer replicas."""
        if self.config is None:
            return None
        layout = self.config.topology().parallelism
        with contextlib.suppress(BadInputError):
            return layout.sized(len(self.rank_machine)) if self.past.state.view(()).is_short else layout
        return layout

    def titles(self, axis: str) -> Mapping[str, str]:
        """Machine to the name of its group on an axis ("pp", "dp", "tp"), such as "pipeline stage 3", or of its rack ("rack")."""
        if axis not in self._titles:
            found = {machine: self.places.get(machine, {}).get("rack", NO_RACK) for machine in self.ranks}
            self._titles[axis] = found if axis == "rack" else self._spans(axis)
        return self._titles[axis]

    def _spans(self, axis: str) -> dict[str, str]:
        layout = self.parallelism
        if layout is None:
            return dict.fromkeys(self.ranks, NO_LAYOUT)
        found, (stride, size) = {}, layout.stride(axis)
        for machine, ranks in self.ranks.items():
            places = {rank // stride % size for rank in ranks}
            span = f"{min(places)}" if len(places) == 1 else f"{min(places)} to {max(places)}"
            found[machine] = f"{AXES[axis]} {span}" if ranks[-1] < layout.world_size else NO_LAYOUT
        return found


class JobShapes:
    """The newest shape of each job; safe for several threads."""

    def __init__(self) -> None:
        self._kept: dict[str, JobShape] = {}
        self._lock = threading.Lock()

    def of(self, name: str, past: JobPast, config: JobConfig | None) -> JobShape:
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or kept.past is not past or kept.config is not config:
                kept = self._kept[name] = JobShape(past, config)
            return kept
