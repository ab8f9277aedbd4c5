"""The [jobs] table of the service's settings: what a job that is registered through the API may ask for."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from minder.config import TlsConfig
from minder.model.errors import ConfigError
from minder.model.resources import default_state_dir
from minder.wire.tokens import read_token

__all__ = ["JobsSettings", "allows_host", "check_hosts", "host_in", "watch_dir"]

_PATTERN = re.compile(r"(\*|[A-Za-z0-9-])+(\.(\*|[A-Za-z0-9-])+)*")


class JobsSettings(BaseModel):
    """Without this table no job is registered through the API. A registered job is watched by a process of this service, and in dry run.
    machine_token_dir: a folder with the token of each machine that such a job may name. agent_token_file: one token for all agents, as
    before; for one more version. ca_file: who signs their certificates (PEM); cert_file, key_file: the watcher's own.
    hosts: where its agents and its Prometheus may be: names ("*" stands for anything without a dot), addresses, networks; the token goes
    to no other. engines: which an [engine] table of it may name. act: evict for real, where it has an [engine]. most: how many are watched
    at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine_token_dir: str | None = None
    agent_token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    hosts: tuple[str, ...] = ("localhost", "127.0.0.0/8", "::1")
    engines: tuple[Literal["slurm", "kubernetes"], ...] = ()
    act: bool = False
    most: int = Field(default=20, ge=1, le=200)

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return check_hosts(hosts)

    @model_validator(mode="after")
    def _is_whole(self) -> JobsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("give both cert_file and key_file, or neither")
        if self.machine_token_dir is not None and self.agent_token_file is not None:
            raise ValueError("give machine_token_dir or agent_token_file, not both: agent_token_file is one token for all machines")
        return self

    @property
    def tls(self) -> TlsConfig:
        return TlsConfig(ca=self.ca_file, cert=self.cert_file, key=self.key_file)

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used."""
        if self.agent_token_file is not None:
            read_token(self.agent_token_file)
        if self.machine_token_dir is not None and not Path(self.machine_token_dir).is_dir():
            raise ConfigError(f"machine_token_dir {self.machine_token_dir} is no folder: run `minder token machine NAME --dir` with it")
        self.tls.context()


def check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError for what is none."""
    for host in hosts:
        if _network(host) is None and not _PATTERN.fullmatch(host):
            raise ValueError(f'"{host}" is no name, address or network: write "node-*.example.org", "10.0.0.7" or "10.0.0.0/16"')
    return hosts


def allows_host(settings: JobsSettings, host: str) -> bool:
    """Whether a job may name this host. A name is not looked up.

    >>> allows_host(JobsSettings(hosts=("10.0.0.0/16", "node-*.lan")), "node-7.lan")
    True
    >>> allows_host(JobsSettings(hosts=("10.0.0.0/16", "node-*.lan")), "node-7.evil.lan")
    False
    """
    return host_in(settings.hosts, host)


def host_in(hosts: Sequence[str], host: str) -> bool:
    """Whether a host is one of these names ("*" stands for anything without a dot), addresses, networks. A name is not looked up."""
    address = _network(host)
    if address is not None:
        networks = [network for entry in hosts if (network := _network(entry)) is not None]
        return any(address.version == network.version and address.subnet_of(network) for network in networks)  # type: ignore[arg-type]
    return any(_network(entry) is None and _matches(entry, host) for entry in hosts)


def watch_dir(job: str) -> Path:
    """Where the watcher of a registered job keeps its state."""
    return default_state_dir() / "registered" / job


def _matches(pattern: str, host: str) -> bool:
    return re.fullmatch("[^.]*".join(map(re.escape, pattern.lower().split("*"))), host.lower()) is not None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
