"""Receivers of notices: the [[notify]] tables of the service's settings."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from minder.model.errors import ConfigError
from minder.wire.tokens import read_secret_text

__all__ = ["Target", "read_secret"]

Tier = Literal["watch", "page", "evict"]
What = Literal["verdict", "question", "action", "closed"]


class Target(BaseModel):
    """One receiver.

    name: of your choice; the ledger and messages of failures use it. kind: what it understands; slack is any chat room with such incoming
    webhooks. url, url_file: its address, or a file with the address where it is a secret itself, as with chat rooms.
    tiers: verdicts of these, and what follows from them. jobs: names, where * stands for anything; every job if empty. tell: of what.
    secret_file: signs webhooks (at least 16 characters). token_file: sent as a bearer token. ca_file: the receiver's authority (PEM).
    evidence: false leaves out what was measured and logged. redact: patterns whose matches are blotted out, besides those of
    passwords and keys. timeout_s: how long it may take for one answer. hold_s: how long an alert stands in Alertmanager if this
    service cannot renew it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    kind: Literal["alertmanager", "webhook", "slack"]
    url: str | None = None
    url_file: str | None = None
    secret_file: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    tiers: tuple[Tier, ...] = ("page", "evict")
    jobs: tuple[str, ...] = ()
    tell: tuple[What, ...] = ("verdict", "question", "action", "closed")
    evidence: bool = True
    redact: tuple[str, ...] = ()
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    hold_s: float = Field(default=3600.0, ge=300, le=7 * 86_400)

    @field_validator("redact")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f'"{pattern}" is no regular expression: {error}') from error
        return patterns

    @model_validator(mode="after")
    def _is_whole(self) -> Target:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("give either url or url_file")
        if self.url is not None:
            demand_address(self.url, "url")
        if self.kind == "webhook" and self.secret_file is None:
            raise ValueError("a webhook needs a secret_file: its receiver must be able to tell who sends")
        if self.kind != "webhook" and self.secret_file is not None:
            raise ValueError("secret_file signs webhooks: this kind has no signature")
        if not self.tiers or not self.tell:
            raise ValueError("tiers and tell must not be empty: a receiver that gets nothing is a mistake")
        return self

    def wants_job(self, job: str | None) -> bool:
        return not self.jobs or any(fnmatchcase(job or "", pattern) for pattern in self.jobs)

    def address(self) -> str:
        """Where to send, read anew each time: a file may be replaced. Raises ConfigError."""
        if self.url is not None:
            return self.url
        url = read_secret("url_file", str(self.url_file))
        try:
            demand_address(url, "url_file")
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return url

    def check(self) -> None:
        """Every file that it names can be read. Raises ConfigError that names the key."""
        self.address()
        if self.secret_file is not None and len(read_secret("secret_file", self.secret_file)) < 16:
            raise ConfigError("secret_file: the secret is shorter than 16 characters: make one with `openssl rand -hex 32`")
        if self.token_file is not None:
            read_secret("token_file", self.token_file)


def read_secret(key: str, path: str) -> str:
    """Raises ConfigError that names the key, never the secret."""
    try:
        return read_secret_text(path)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def demand_address(url: str, key: str) -> None:
    """Raises ValueError, without the address: it may be a secret."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:
        good = False
        parts = urlsplit("")
    if not good:
        raise ValueError(f'{key} is no address: give one like "https://alerts.example.org/hook"')
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{key} holds a user or password: put it into token_file, which is sent as a bearer token")
