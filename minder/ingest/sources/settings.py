"""What a configuration says of a Prometheus: where it is, how it is reached, whose series are whose. One home for job.toml and recipes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from minder.ingest.sources.access import Access, split_user
from minder.ingest.sources.identity import Join, MachineMap
from minder.ingest.sources.invalid import first_problem
from minder.ingest.sources.prometheus import PrometheusOptions
from minder.model.errors import ConfigError
from minder.wire.tokens import read_secret_text

__all__ = ["SETTINGS_PATHS", "JoinRule", "PrometheusSettings", "anchored", "parse_settings"]

SETTINGS_PATHS = ("ca_file", "cert_file", "key_file", "password_file", "bearer_token_file")


class JoinRule(BaseModel):
    """How a series without the label finds its machine: in another metric. series: that metric, such as node_uname_info. on: label of the
    series to label of that metric; where all are equal, it is the same machine (a port counts for nothing). take: its label that names the
    machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    series: str = Field(min_length=1)
    on: dict[str, str] = Field(min_length=1)
    take: str = Field(min_length=1)


class PrometheusSettings(BaseModel):
    """The keys are those of [telemetry] in job.toml, see docs/reference/configuration.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = None
    interval_s: float = Field(default=1.0, gt=0)
    machine_label: str | tuple[str, ...] = "machine"
    machine_map: dict[str, str] = {}
    join: tuple[JoinRule, ...] = ()
    short_names: bool = False
    mapping: str = "minder"
    selector: str = ""
    headers: dict[str, str] = Field(default={}, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    username: str = ""
    password_file: str | None = None
    bearer_token_file: str | None = None
    tenant: str = ""

    @field_validator("machine_label")
    @classmethod
    def _names_one(cls, label: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not label or not all(label):
            raise ValueError('give a label, or several in order, like ["Hostname", "node"]')
        return label

    @model_validator(mode="after")
    def _is_one_way_in(self) -> PrometheusSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("give both cert_file and key_file, or neither")
        if self.password_file is not None and not (self.username or "@" in (self.url or "")):
            raise ValueError("password_file goes with username")
        if self.bearer_token_file is not None and self.username:
            raise ValueError("give either username or bearer_token_file")
        return self

    @property
    def address(self) -> str:
        """Without user and password: what may be printed."""
        return split_user(self.url or "").url

    def access(self) -> Access:
        """With its secrets read from their files or the environment. Raises ConfigError that names the key."""
        _, user, password = split_user(self.url or "")
        found = Access(
            self.ca_file,
            self.cert_file,
            self.key_file,
            self.username or user,
            _secret("password_file", self.password_file) or password,
            _secret("bearer_token_file", self.bearer_token_file),
            self.tenant,
            self.headers,
        ).with_environment()
        found.context()
        return found

    def options(self, **more: Any) -> PrometheusOptions:
        """more: of PrometheusOptions, such as timeout_s. Raises ConfigError."""
        return PrometheusOptions(self.address, self.interval_s, self.selector, access=self.access(), renewed=self.access, **more)

    def identity(self, known: Collection[str] = ()) -> MachineMap:
        """known: the job's machines and standbys; empty: all are taken."""
        joins = tuple(Join(rule.series, tuple(rule.on.items()), rule.take) for rule in self.join)
        labels = (self.machine_label,) if isinstance(self.machine_label, str) else self.machine_label
        return MachineMap(labels, machines=self.machine_map, known=known, joins=joins, short_names=self.short_names)


def parse_settings(keys: Mapping[str, Any]) -> PrometheusSettings:
    """Raises ConfigError with the key and what is wrong."""
    try:
        return PrometheusSettings(**keys)
    except ValidationError as error:
        raise ConfigError(first_problem(error, PrometheusSettings)) from error


def anchored(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same table, its paths relative to this folder made absolute."""
    found = dict(table)
    for key in SETTINGS_PATHS:
        if isinstance(found.get(key), str) and found[key]:
            found[key] = str(folder / Path(found[key]).expanduser())
    if isinstance(found.get("mapping"), str):
        parts = [part.strip() for part in found["mapping"].split("+")]
        found["mapping"] = "+".join(str(folder / Path(part).expanduser()) if part.endswith(".toml") else part for part in parts)
    return found


def _secret(key: str, path: str | None) -> str:
    if path is None:
        return ""
    try:
        return read_secret_text(path)
    except ConfigError as error:
        raise ConfigError(f"telemetry.{key}: {error}") from error
