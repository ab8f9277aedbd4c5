"""What minder's own mechanisms take, and who says so (datasets/incident_mix/minder.toml)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minder.model.errors import BadInputError
from minder.model.resources import find_resource

__all__ = ["OwnTime", "load_times", "with_site_times"]


@dataclass(frozen=True, slots=True)
class OwnTime:
    """seconds: None where it follows from published tables and the job's size. kind: lab, published, assumed or site. where: in words."""

    name: str
    kind: str
    where: str
    seconds: float | None = None


def load_times() -> dict[str, OwnTime]:
    """By name. Raises MinderError where the file is missing."""
    rows = tomllib.loads((find_resource("datasets/incident_mix") / "minder.toml").read_text(encoding="utf-8"))["times"]
    return {name: OwnTime(name, **row) for name, row in rows.items()}


def with_site_times(times: Mapping[str, OwnTime], given: Sequence[str]) -> dict[str, OwnTime]:
    """The same with "name=seconds" that a site measured itself. Raises BadInputError that names the option."""
    found = dict(times)
    for text in given:
        name, _, value = text.partition("=")
        if name not in found:
            raise BadInputError(f'--time "{text}": known are {", ".join(found)}; write {next(iter(found))}=SECONDS')
        try:
            seconds = float(value)
        except ValueError as error:
            raise BadInputError(f'--time "{text}": {value or "nothing"} is no number') from error
        if not (math.isfinite(seconds) and seconds >= 0):
            raise BadInputError(f'--time "{text}": a finite number of 0 or more is needed')
        found[name] = replace(found[name], seconds=seconds, kind="site", where="given with --time")
    return found
