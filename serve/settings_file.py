"""`minder serve --settings service.toml`: what the service is set to besides its command line. Unknown keys are errors."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from minder.ingest.sources.invalid import first_problem
from minder.model.errors import ConfigError
from serve.identity.oidc_settings import OidcSettings
from serve.notify.targets import Target, demand_address
from serve.watching.settings import JobsSettings, check_hosts

__all__ = ["ServiceFile", "load_settings"]

_FILE_KEYS = (
    "url_file", "secret_file", "token_file", "ca_file", "jwks_file", "client_secret_file", "agent_token_file",
    "machine_token_dir", "cert_file", "key_file",
)  # fmt: skip


class ServiceFile(BaseModel):
    """What the service is set to besides its command line. public_url: where people reach the service's pages; links in messages begin
    with it. notify: who is notified of verdicts, a [[notify]] table for each. oidc: an identity provider whose tokens count too, and with
    whom people may sign in to the pages. jobs: jobs may be registered through the API, within what it says.
    standby_hosts: where a machine may listen that an operator adds to a job's pool through the API, as [jobs] hosts; empty: nowhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    public_url: str | None = None
    notify: tuple[Target, ...] = ()
    oidc: OidcSettings | None = None
    jobs: JobsSettings | None = None
    standby_hosts: tuple[str, ...] = ()

    @field_validator("standby_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return check_hosts(hosts)

    @field_validator("public_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None:
            demand_address(url, "public_url")
        return url

    @model_validator(mode="after")
    def _can_be_come_back_to(self) -> ServiceFile:
        if self.oidc is not None and self.oidc.sign_in is not None and self.public_url is None:
            raise ValueError("oidc.sign_in needs public_url: the identity provider sends people back to it")
        return self

    @field_validator("notify")
    @classmethod
    def _names_differ(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        twice = [name for name, count in Counter(target.name for target in targets).items() if count > 1]
        if twice:
            raise ValueError(f'"{twice[0]}" stands twice: give each receiver a name of its own')
        return targets


def load_settings(path: Path) -> ServiceFile:
    """Read and check a file, the files that it names included. A relative path in it is relative to its folder.

    Raises ConfigError with one line: file, key, what is wrong; never a secret.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}: give the path of a service.toml") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        found = ServiceFile.model_validate(_anchored(data, path.absolute().parent))
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error, ServiceFile)}") from error
    if found.oidc is not None and found.oidc.sign_in is not None:
        try:
            found.oidc.sign_in.secret()
        except ConfigError as error:
            raise ConfigError(f"{path}: oidc.sign_in: {error}") from error
    if found.jobs is not None:
        try:
            found.jobs.check()
        except ConfigError as error:
            raise ConfigError(f"{path}: jobs: {error}") from error
    for target in found.notify:
        try:
            target.check()
        except ConfigError as error:
            raise ConfigError(f"{path}: notify {target.name}: {error}") from error
    return found


def _anchored(value: Any, folder: Path) -> Any:
    """The same tables with the paths of files made absolute."""
    if isinstance(value, list):
        return [_anchored(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: str(folder / Path(item).expanduser()) if key in _FILE_KEYS and isinstance(item, str) and item else _anchored(item, folder)
        for key, item in value.items()
    }
