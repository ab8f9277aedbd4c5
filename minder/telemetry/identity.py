"""Which machine a scrape target is. A target that maps to nothing, or two that map to one machine, are errors: silence or a
mixture would look like a machine's fault."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from minder.errors import IdentityError

__all__ = ["MachineMap", "Ownership", "target_name"]

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


class Ownership:
    """Which target speaks for a machine's metric. A target may hand over to another (it moved), but not get it back at once."""

    def __init__(self) -> None:
        self._owner: dict[tuple[str, str, str | None], tuple[str, float]] = {}
        self._former: dict[tuple[str, str, str | None], tuple[str, float]] = {}

    def claim(self, key: tuple[str, str, str | None], target: str, time_s: float) -> None:
        """A target gave (machine, metric, device) at a time; times rise. Raises IdentityError if two targets take turns."""
        owner = self._owner.get(key)
        if owner is not None and owner[0] != target:
            former = self._former.get(key)
            same_time = time_s == owner[1]
            if same_time or (former is not None and former[0] == target and time_s - former[1] < _RECLAIM_S):
                raise IdentityError(
                    f"targets {owner[0]} and {target} both map to machine {key[0]} and both give {key[1]}: give them different "
                    "machines in telemetry.machine_map, or narrow telemetry.selector to one of them"
                )
            self._former[key] = owner
        self._owner[key] = (target, time_s)
