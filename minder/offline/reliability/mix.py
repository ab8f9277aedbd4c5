"""The published incident mix and recovery times, as records (datasets/incident_mix)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from minder.model.errors import BadInputError
from minder.model.resources import find_resource
from minder.offline.reliability.times import OwnTime, load_times

__all__ = ["IncidentRate", "Published", "Symptom", "load_published", "restart_seconds"]

_POSITIVE = ("step_s", "group_machines")  # what is divided by them, or counted in them, is something


@dataclass(frozen=True, slots=True)
class Symptom:
    """One row of the mix. mean_s, max_s: from localisation to restart where it is automatic; tested_s: by stress tests, None: they
    never find it. detect: name of a pair in `Published.detect_s`."""

    name: str
    category: Literal["explicit", "implicit", "manual"]
    count: int
    evicts: Literal["machine", "group", "none"]
    evict_share: float
    detect: str
    mean_s: float
    max_s: float
    tested_s: float | None = None
    borrowed: str = ""


@dataclass(frozen=True, slots=True)
class IncidentRate:
    """Incidents per machine and day, and manual restarts per job and day."""

    per_machine_day: float
    manual_per_day: float
    source: str


@dataclass(frozen=True, slots=True)
class Published:
    """Everything that the simulation takes from papers, and what it assumes. Seconds; detect_s: (with, without) automatic detection.

    times: what minder's own mechanisms take, by name.
    """

    symptoms: tuple[Symptom, ...]
    rates: Mapping[str, IncidentRate]
    detect_s: Mapping[str, tuple[float, float]]
    restart: Mapping[str, Any]
    search: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    assumed: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[tuple[str, str], ...] = ()
    times: Mapping[str, OwnTime] = field(default_factory=dict)

    def assuming(self, changes: Sequence[str]) -> Published:
        """The same with "name=value" changes to what is assumed. Raises BadInputError that names the option."""
        assumed = dict(self.assumed)
        for change in changes:
            name, _, text = change.partition("=")
            known = ", ".join(sorted(self.assumed))
            if name not in assumed:
                raise BadInputError(f'--assume "{change}": known are {known}; write {next(iter(self.assumed))}=VALUE')
            try:
                assumed[name] = float(text)
            except ValueError as error:
                raise BadInputError(f'--assume "{change}": {text or "nothing"} is no number') from error
            if not (math.isfinite(assumed[name]) and assumed[name] >= 0):
                raise BadInputError(f'--assume "{change}": a finite number of 0 or more is needed')
            if name in _POSITIVE and not assumed[name]:
                raise BadInputError(f'--assume "{change}": more than 0 is needed')
        return replace(self, assumed=assumed)


def load_published() -> Published:
    """Read the packaged files. Raises MinderError where they are missing."""
    folder = find_resource("datasets/incident_mix")
    mix = tomllib.loads((folder / "symptoms.toml").read_text(encoding="utf-8"))
    times = tomllib.loads((folder / "recovery.toml").read_text(encoding="utf-8"))
    symptoms = tuple(Symptom(**row.pop("localise"), **row) for row in mix["symptoms"])
    return Published(
        symptoms=symptoms,
        rates={name: IncidentRate(**row) for name, row in times["rates"].items()},
        detect_s={name: (row["with_s"], row["without_s"]) for name, row in times["detect"].items()},
        restart=times["restart"],
        search=times["manual_search"],
        checkpoint=times["checkpoint"],
        assumed=times["assumed"],
        sources=tuple(_sources(times)),
        times=load_times(),
    )


def _sources(times: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [("BR", "ByteRobust, SOSP 2025, arXiv 2509.16293v4")]
    found += [("incident mix", "BR Table 1; who is evicted: BR Tables 2 and 4; localisation: BR Table 6")]
    found += [(f"rate {name}", str(row["source"])) for name, row in times["rates"].items()]
    found += [(f"detect {name}", str(row["source"])) for name, row in times["detect"].items()]
    for table in ("restart", "manual_search", "checkpoint"):
        found += [(f"{table} {key}".removesuffix(" source"), str(value)) for key, value in times[table].items() if key.endswith("source")]
    return found


def restart_seconds(published: Published, what: Literal["requeue_s", "hot_update_s"], machines: int) -> float:
    """Seconds of a restart at this size: a straight line through the table's points over log2 of machines, also beyond them."""
    table = published.restart
    sizes = np.log2(np.array(table["machines"], dtype=float))
    slope, start = np.polyfit(sizes, np.array(table[what], dtype=float), 1)
    return max(float(min(table[what])) / 4.0, float(start + slope * math.log2(max(1, machines))))
