"""job.toml, ranks.json and devices.json of a recording: the job, and where its ranks and devices were."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError, RecordingError
from minder.model.topology import Parallelism, Topology

__all__ = ["DevicePlace", "RankPlace", "RecordedJob", "read_devices", "read_job", "read_ranks", "write_job"]

_log = logging.getLogger(__name__)
_KEYS = frozenset({"name", "machines", "standbys", "gpus_per_machine", "sample_interval_seconds", "parallelism", "topology", "roles"})
_AXES = ("tensor", "pipeline", "data", "expert", "context")


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job as job.toml describes it. interval_s is None if the file does not say. roles: by machine; peers are only of the same role."""

    name: str
    machines: tuple[str, ...]
    standbys: tuple[str, ...] = ()
    gpus_per_machine: int = 1
    parallelism: Parallelism = field(default_factory=Parallelism)
    interval_s: float | None = None
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def topology(self, rank_machine: Mapping[int, str] | None = None) -> Topology:
        """The job's ranks on its machines. Raises BadInputError if the counts disagree."""
        return Topology(self.machines, self.gpus_per_machine, self.parallelism, self.standbys, self.domains, dict(rank_machine or {}))


@dataclass(frozen=True, slots=True)
class RankPlace:
    """One line of ranks.json."""

    rank: int
    machine: str
    device: str | None = None
    pid: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """One line of devices.json: an index shifts when a card drops, a uuid does not."""

    machine: str
    device: str
    uuid: str | None = None
    pci: str | None = None
    slot: str | None = None


def read_job(path: Path) -> RecordedJob:
    """Read and check job.toml; unknown keys are one warning. Raises RecordingError that says what to mend."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordingError(f"{path} is missing: a recording needs at least a job.toml with its machines") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    _refuse_a_configuration(data, path)
    unknown = sorted(set(data) - _KEYS) + sorted(f"parallelism.{key}" for key in set(_table(data, path)) - {*_AXES, "rank_order"})
    if unknown:
        _log.warning("%s: unknown keys ignored: %s", path, ", ".join(unknown))
    try:
        job = _job(data, path)
        job.topology()
    except RecordingError:
        raise
    except BadInputError as error:
        raise RecordingError(f"{path}: {error}") from error
    return job


def _refuse_a_configuration(data: Mapping[str, Any], path: Path) -> None:
    """The job.toml of `minder run`, as in a demo's folder, has the same name and says other things: machines are tables in it."""
    machines = data.get("machines")
    if isinstance(machines, list) and any(isinstance(item, Mapping) for item in machines):
        inside = path.parent / "recording"
        mend = f"its recording is {inside}" if (inside / "job.toml").exists() else "name the folder that record_dir or --record named"
        raise RecordingError(f"{path} configures a job and is no recording's: {mend}")


def _job(data: Mapping[str, Any], path: Path) -> RecordedJob:
    machines = _names(data, "machines", path)
    if not machines:
        raise RecordingError(f"{path}: machines is empty: name the job's machines")
    axes = dict(_table(data, path))
    gpus = data.get("gpus_per_machine")
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1):
        raise RecordingError(f"{path}: gpus_per_machine is {gpus!r}: give a whole number of 1 or more")
    if not axes:
        axes = {"data": len(machines) * (gpus or 1)}
    parallelism = Parallelism(**{key: value for key, value in axes.items() if key in (*_AXES, "rank_order")})
    if gpus is None:
        gpus = max(1, parallelism.world_size // len(machines))
    interval = data.get("sample_interval_seconds")
    if interval is not None and (not isinstance(interval, (int, float)) or isinstance(interval, bool) or not 0 < interval <= 3600):
        raise RecordingError(f"{path}: sample_interval_seconds is {interval!r}: give seconds, like 1.0")
    return RecordedJob(
        name=str(data.get("name") or path.parent.name),
        machines=machines,
        standbys=_names(data, "standbys", path),
        gpus_per_machine=gpus,
        parallelism=parallelism,
        interval_s=None if interval is None else float(interval),
        domains=_domains(data, path),
        roles=_roles(data, path),
    )


def _table(data: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    table = data.get("parallelism", {})
    if not isinstance(table, Mapping):
        raise RecordingError(f"{path}: parallelism is {table!r}: make it a table [parallelism]")
    return table


def _names(data: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    names = data.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise RecordingError(f"{path}: {key} is {names!r}: give a list of machine names")
    return tuple(names)


def _domains(data: Mapping[str, Any], path: Path) -> Mapping[str, Mapping[str, str]]:
    domains = data.get("topology", {})
    if not isinstance(domains, Mapping) or not all(isinstance(entry, Mapping) for entry in domains.values()):
        raise RecordingError(f'{path}: topology is not a table of machines, like "node-1" = {{ rack = "r1" }}')
    return {machine: {str(kind): str(name) for kind, name in entry.items()} for machine, entry in domains.items()}


def _roles(data: Mapping[str, Any], path: Path) -> Mapping[str, str]:
    roles = data.get("roles", {})
    if not isinstance(roles, Mapping) or not all(isinstance(role, str) for role in roles.values()):
        raise RecordingError(f'{path}: roles is not a table of machines, like "node-1" = "trainer"')
    return dict(roles)


def read_ranks(path: Path, job: RecordedJob) -> tuple[RankPlace, ...]:
    """ranks.json, or nothing where there is none. Raises RecordingError for an unknown machine or a rank placed twice."""
    places = []
    taken: set[tuple[int | None, int]] = set()
    for index, item in enumerate(_items(path)):
        where = f"{path}, entry {index + 1}"
        rank, machine = item.get("rank"), item.get("machine")
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < job.parallelism.world_size:
            raise RecordingError(f"{where}: rank is {rank!r}: give 0 to {job.parallelism.world_size - 1}")
        if machine not in job.machines and machine not in job.standbys:
            raise RecordingError(f"{where}: machine {machine!r} is not in job.toml: mend one of them")
        place = RankPlace(rank, machine, item.get("device"), item.get("pid"), item.get("generation"))
        if (place.generation, rank) in taken:
            raise RecordingError(f"{where}: rank {rank} stands twice: keep one")
        taken.add((place.generation, rank))
        places.append(place)
    return tuple(places)


def read_devices(path: Path) -> tuple[DevicePlace, ...]:
    """devices.json, or nothing where there is none."""
    places = []
    for index, item in enumerate(_items(path)):
        if not isinstance(item.get("machine"), str) or not isinstance(item.get("device"), str):
            raise RecordingError(f"{path}, entry {index + 1}: machine and device must be strings")
        slot = item.get("slot")
        place = DevicePlace(item["machine"], item["device"], item.get("uuid"), item.get("pci"), None if slot is None else str(slot))
        places.append(place)
    return tuple(places)


def _items(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise RecordingError(f"{path}: give a list of objects")
    return items


def write_job(path: Path, job: RecordedJob) -> None:
    """Write job.toml. JSON strings and lists of strings are TOML too."""
    quote = json.dumps
    lines = [
        f"name = {quote(job.name)}",
        f"machines = {quote(list(job.machines))}",
        f"standbys = {quote(list(job.standbys))}",
        f"gpus_per_machine = {job.gpus_per_machine}",
        *([] if job.interval_s is None else [f"sample_interval_seconds = {float(job.interval_s)}"]),
        "",
        "[parallelism]",
        *(f"{axis} = {getattr(job.parallelism, axis)}" for axis in _AXES),
        f"rank_order = {quote(job.parallelism.rank_order)}",
    ]
    if job.domains:
        lines += ["", "[topology]"]
        for machine, entry in job.domains.items():
            inner = ", ".join(f"{quote(kind)} = {quote(name)}" for kind, name in entry.items())
            lines.append(f"{quote(machine)} = {{ {inner} }}")
    if job.roles:
        lines += ["", "[roles]", *(f"{quote(machine)} = {quote(role)}" for machine, role in job.roles.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
