"""Which machine a scrape target is. A target that maps to nothing, or two that map to one machine, are errors: silence or a
mixture would look like a machine's fault."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from minder.model.errors import IdentityError

__all__ = ["Claim", "MachineMap", "Ownership", "target_name"]

_PORT = re.compile(r":\d+$")
_RECLAIM_S = 300.0  # a target that comes back later than this has moved


def target_name(labels: Mapping[str, str]) -> str:
    """How messages call a target."""
    instance = labels.get("instance", "without an instance label")
    return f'{instance} of job "{labels["job"]}"' if labels.get("job") else instance


@dataclass(frozen=True, slots=True)
class MachineMap:
    """A target's labels to a machine's name.

    label: names the machine. machines: a label's value, or an instance, to a name, before anything else. pattern: of the whole
    value; its first group, if any, is the name. An `instance` without a pattern loses its port.
    known: the job's machines and standbys; targets of others are left aside. Empty: all are taken.
    """

    label: str = "machine"
    pattern: str | None = None
    machines: Mapping[str, str] = field(default_factory=dict)
    known: Collection[str] = ()

    def resolve(self, labels: Mapping[str, str]) -> str | None:
        """The machine, or None for one that is not ours. Raises IdentityError for a target that maps to nothing."""
        machine = self._name(labels)
        return machine if not self.known or machine in self.known else None

    def _name(self, labels: Mapping[str, str]) -> str:
        value, instance = labels.get(self.label), labels.get("instance")
        for key in (value, instance):
            if key is not None and key in self.machines:
                return self.machines[key]
        if not value:
            raise IdentityError(
                f'target {target_name(labels)} has no label "{self.label}": set telemetry.machine_label to a label that names the '
                "machine, or add the target to telemetry.machine_map"
            )
        if self.pattern is not None:
            found = re.fullmatch(self.pattern, value)
            if found is None:
                raise IdentityError(
                    f'target {target_name(labels)}: {self.label}="{value}" does not match the pattern "{self.pattern}": mend the '
                    "pattern, or add the target to telemetry.machine_map"
                )
            return str(found[1]) if found.re.groups else value
        return _PORT.sub("", value) if self.label == "instance" else value


@dataclass(slots=True, eq=False)
class Claim:
    """One target gave one or more of a machine's metrics, all of them last at time_s."""

    target: str
    time_s: float
    holds: bool = True  # until somebody claims one of them anew


class Ownership:
    """Which target speaks for a machine's metric. A target may hand over to another (it moved), but not get it back at once."""

    def __init__(self) -> None:
        self._owner: dict[tuple[str, str, str | None], Claim] = {}
        self._former: dict[tuple[str, str, str | None], tuple[str, float]] = {}

    def claim(self, keys: Iterable[tuple[str, str, str | None]], target: str, time_s: float, before: Claim | None = None) -> Claim:
        """A target gave each (machine, metric, device) at a time; times rise. Raises IdentityError if two targets take turns.

        before: what this returned for the same keys and target last; while it holds, they are not looked at one by one.
        """
        if before is not None and before.holds:
            before.time_s = time_s
            return before
        made = Claim(target, time_s)
        for key in keys:
            self._take(key, made)
        return made

    def _take(self, key: tuple[str, str, str | None], made: Claim) -> None:
        owner = self._owner.get(key)
        if owner is not None and owner.target != made.target:
            former = self._former.get(key)
            same_time = made.time_s == owner.time_s
            if same_time or (former is not None and former[0] == made.target and made.time_s - former[1] < _RECLAIM_S):
                raise IdentityError(
                    f"targets {owner.target} and {made.target} both map to machine {key[0]} and both give {key[1]}: give them different "
                    "machines in telemetry.machine_map, or narrow telemetry.selector to one of them"
                )
            self._former[key] = (owner.target, owner.time_s)
        if owner is not None:
            owner.holds = False
        self._owner[key] = made
