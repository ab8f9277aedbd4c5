"""The tables of `job.toml`: one class each, with what it means and which values it takes."""

from __future__ import annotations

import re
import ssl
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from minder.act.controller.diagnosis.replaying import ReplaySettings
from minder.edge.probes.contract import ALONE, find_program
from minder.ingest.sources.settings import PrometheusSettings
from minder.model.errors import BadInputError, ConfigError
from minder.wire.addresses import is_loopback, parse_address
from minder.wire.tls import client_context
from minder.wire.tokens import read_token

__all__ = [
    "DetectorConfig",
    "LocalHandle",
    "MachineConfig",
    "MetricsConfig",
    "ReplayConfig",
    "SignalsConfig",
    "StandbyConfig",
    "Table",
    "TelemetryConfig",
    "TlsConfig",
    "demand_url",
    "token_in",
]


class Table(BaseModel):
    """A table of job.toml: values do not change, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalHandle(Table):
    """How a machine that lives on the controller's own host can be ended when nothing of it answers. run_dir: that of its agent and
    launcher. cgroups: those that its processes run in, as paths."""

    run_dir: str | None = None
    cgroups: tuple[str, ...] = ()


class MachineConfig(Table):
    """One machine. name: as its agent and telemetry call it. agent, launcher: its address, like "http://10.0.0.7:9401"; a machine
    without a launcher is only watched. standby: waits to take another machine's place. rack, switch: what it shares with others; suspects
    that share one are one trouble. block: the part of the network, below one spine switch, in which groups stay close together.
    job_address: its address on the job's network, where pair tests meet; the host of launcher or agent, if not given. serial: for the
    vendor; nothing is decided by it. local: where it lives on the controller's own host.
    """

    name: str
    agent: str | None = None
    launcher: str | None = None
    standby: bool = False
    rack: str | None = None
    switch: str | None = None
    block: str | None = None
    serial: str | None = None
    job_address: str | None = None
    local: LocalHandle | None = None

    @field_validator("agent", "launcher")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        return None if url is None else demand_url(url)


class TelemetryConfig(PrometheusSettings):
    """Where samples come from. source: "auto" is Prometheus if a url is given, else the built-in scraper of the agents. url: the
    Prometheus, with its path prefix. interval_s: how often it is asked, or the agents are scraped. machine_label: the label that names the
    machine; a list: the first of them that a series has. machine_map: names of machines by what identifies their targets, where the label
    does not. join: where a series without the label finds its machine, a [[telemetry.join]] table for each. short_names: a machine's
    name ends at its first dot. mapping: whose metric names are read: "minder" (our agents), another mapping that comes with minder
    (docs/mappings.md), a TOML file of yours, or several joined by "+". selector: label matchers that narrow what is asked for, like
    'cluster="a"'. headers: sent with every request to the Prometheus. ca_file: PEM file of who signs its certificate. cert_file, key_file:
    our own certificate, where it wants one. username: for basic authentication. password_file: a file with its password, readable by
    its owner and group only; or the password is in MINDER_PROMETHEUS_PASSWORD. bearer_token_file: a file with a token, as private; or the
    token is in MINDER_PROMETHEUS_TOKEN. tenant: sent as X-Scope-OrgID.
    """

    source: Literal["auto", "scrape", "prometheus"] = "auto"

    @property
    def asks_prometheus(self) -> bool:
        """Whether samples come from a Prometheus, and not from the machines' agents."""
        return self.source == "prometheus" or (self.source == "auto" and bool(self.url))

    @model_validator(mode="after")
    def _knows_its_server(self) -> TelemetryConfig:
        if self.url is not None:
            demand_url(self.url)
        elif self.source == "prometheus":
            raise ValueError('telemetry.url is missing: source = "prometheus" needs the server\'s address')
        return self


class DetectorConfig(Table):
    """Which detector reads the telemetry. name: a detector by name. model: before the name: "models:/minder-detector@champion", or a
    folder that `minder train` wrote. shadow: another one that looks on, and whose would-be verdicts go to the ledger only. drift: whether
    metrics that leave the range of the model's training are reported."""

    name: str = "default"
    model: str | None = None
    shadow: str | None = None
    drift: bool = True

    @property
    def uri(self) -> str:
        return self.model or self.name


class SignalsConfig(Table):
    """When links call a person; what every other signal leads to stands in minder/edge/signals/signal_rules.toml. link_flaps: so many on
    one machine within link_flap_window_s, 0 never. link_flap_window_s: seconds within which they are counted. link_down_s: so many seconds
    down is no flap."""

    link_flaps: int = Field(default=2, ge=0)
    link_flap_window_s: float = Field(default=300.0, gt=0)
    link_down_s: float = Field(default=45.0, gt=0)


class MetricsConfig(Table):
    """The controller's own metrics for Prometheus, off unless it listens. listen: an address like "127.0.0.1:9403". token_file: needed
    on an address that other machines reach."""

    listen: str | None = None
    token_file: str | None = None

    @model_validator(mode="after")
    def _is_safe(self) -> MetricsConfig:
        if self.listen is None:
            return self
        try:
            host, _ = parse_address(self.listen, "metrics.listen", "127.0.0.1:9403")
        except BadInputError as error:  # with the others of the file
            raise ValueError(str(error)) from None
        if not is_loopback(host) and self.token_file is None:
            raise ValueError(f"metrics.listen {self.listen} can be reached from outside: give metrics.token_file, or listen on 127.0.0.1")
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, None where metrics are off."""
        return None if self.listen is None else parse_address(self.listen, "metrics.listen", "127.0.0.1:9403")

    def token(self) -> str | None:
        """Raises ConfigError where its file cannot be used."""
        return None if self.token_file is None else token_in("metrics.token_file", self.token_file)


class TlsConfig(Table):
    """What https:// addresses of agents and launchers are called with, as PEM files. ca: who signs their certificates (the system's
    authorities if not given). cert, key: the controller's own, where machines ask for one."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> TlsConfig:
        if (self.cert is None) != (self.key is None):
            raise ValueError("give both tls.cert and tls.key, or neither")
        return self

    def context(self) -> ssl.SSLContext | None:
        """None where nothing is configured. Raises ConfigError that names the file."""
        return client_context(self.ca, self.cert, self.key) if self.ca or self.cert else None


class StandbyConfig(Table):
    """How standbys are tested while they wait, by their launchers at low priority. probe_every_s: so often; 0 for never. probes: which
    (docs/diagnostics.md). alignment: also bit-wise alignment, which finds what computes wrong numbers; without torch it says that it does
    not apply."""

    probe_every_s: float = Field(default=3600.0, ge=0.0)
    probes: tuple[str, ...] = ("links", "clock", "device_health", "loopback", "memory", "gemm")
    alignment: bool = True

    @field_validator("probes")
    @classmethod
    def _run_beside_workers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in ALONE:
                raise ValueError(f'standby.probes: no probe "{name}" that one machine runs by itself; there are {", ".join(ALONE)}')
            if find_program(name).probe.changes:
                raise ValueError(f"standby.probes: {name} may change settings of a machine, and a standby may be wanted at any moment")
        return names

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names, each once, alignment last."""
        return tuple(dict.fromkeys((*self.probes, *(("alignment",) if self.alignment else ()))))


class ReplayConfig(Table):
    """What groups of machines run when the job is replayed while it stands (docs/replay.md). command: "script" is the job's own script, the
    one that its launchers were started with, under MINDER_REPLAY=steps,seed,layers; "reference" a small model that comes with minder.
    steps: of each run. runs: of each group in each phase; more of them find a fault that comes and goes. seed: of weights and data. layers:
    of the job's model, of which the replay keeps one a pipeline stage; 0: not known."""

    command: Literal["reference", "script"] = "reference"
    steps: int = Field(default=100, ge=1, le=10_000)
    runs: int = Field(default=2, ge=1, le=100)
    seed: int = Field(default=0, ge=0)
    layers: int = Field(default=0, ge=0)

    @property
    def settings(self) -> ReplaySettings:
        return ReplaySettings(self.command, self.steps, self.runs, self.seed, self.layers)


def demand_url(url: str) -> str:
    """The address as it stands. Raises ValueError unless a client can call it."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond 65535, a bracket that does not close
        good = False
    if not good:
        shown = re.sub(r"//[^/]*@", "//...@", url)  # a password is not printed
        raise ValueError(f'"{shown}" is no address: give one like "http://10.0.0.7:9401"')
    return url


def token_in(key: str, path: str) -> str:
    try:
        return read_token(path)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
