"""A first job.toml that `minder watch` takes as it is, and beside it the mapping of what had to be guessed and the secrets that it needs.

Two drafts on one host share nothing: name, port and state folder (with ledger and lease) come from where the file is.
"""

from __future__ import annotations

import json
import os
import re
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minder.doctor.proposal import Proposal
from minder.doctor.series import Server
from minder.ingest.sources.mapping import Rule
from minder.model.errors import BadInputError

__all__ = ["Draft", "Reached", "draft_name"]

_FIRST_PORT, _PORTS = 20000, 10000  # so many that two drafts hardly ever share one; below the ports of outgoing connections


@dataclass(frozen=True, slots=True)
class Reached:
    """How the server was reached, as far as job.toml can say it: files by their paths. A password or token that came otherwise is
    written into a file of its own."""

    username: str = ""
    password: str = ""
    password_file: str | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tenant: str = ""
    headers: Mapping[str, str] | None = None

    @property
    def is_secret(self) -> bool:
        return bool(self.password or self.headers)


def draft_name(path: Path) -> str:
    """A job's name that another draft on this host does not get.

    >>> draft_name(Path("/srv/llm/job.toml"))
    'llm-21b7'
    """
    where = path.absolute()
    words = [word for word in (where.parent.name, where.stem) if word not in ("", "job")]
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(words)).strip("-._") or "job"
    return f"{stem[:48]}-{zlib.crc32(str(where).encode()) & 0xFFFF:04x}"


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be written for a proposal. path: of the job.toml. Nothing is written before `write`."""

    path: Path
    proposal: Proposal
    server: Server
    name: str
    reached: Reached = Reached()

    @property
    def mapping_file(self) -> Path:
        """Where the guessed rules are: beside it."""
        return self.path.with_name(f"{self.path.stem}.mapping.toml")

    @property
    def password_file(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.password")

    @property
    def port(self) -> int:
        """Free now, and no other draft's."""
        first = _FIRST_PORT + zlib.crc32(str(self.path.absolute()).encode()) % _PORTS
        for port in range(first, first + 100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    return port
        return first

    def write(self) -> list[Path]:
        """The files written, those with a secret readable by their owner only. Raises BadInputError where there is nothing to draft, or a
        file is there already."""
        if self.proposal.identity is None or not self.proposal.used:
            raise BadInputError("there is nothing to draft: no machine's metrics were recognised (see the lines above)")
        texts = {self.path: self.text()}
        if self.proposal.guessed:
            texts[self.mapping_file] = rules_text(self.proposal.guessed)
        if self.reached.password:
            texts[self.password_file] = self.reached.password + "\n"
        for file in texts:
            if file.exists():
                raise BadInputError(f"{file} is there already: give another --draft, or move it away")
        secret = {self.password_file, self.path} if self.reached.is_secret else set[Path]()
        if not self.path.parent.is_dir():
            raise BadInputError(f"--draft {self.path}: there is no folder {self.path.parent}: make it, or give another path")
        try:
            for file, text in texts.items():
                handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file in secret else 0o644)
                with os.fdopen(handle, "w", encoding="utf-8") as opened:
                    opened.write(text)
        except OSError as error:
            raise BadInputError(f"--draft {self.path}: {error.strerror}") from error
        return list(texts)

    def text(self) -> str:
        """Of the job.toml."""
        identity = self.proposal.identity
        assert identity is not None
        machines = "".join(f"  {{ name = {_text(machine)} }},\n" for machine in identity.machines)
        lines = [
            f"name = {_text(self.name)}",
            f"state_dir = {_text(f'{self.path.stem}.state')}",
            "machines = [",
            machines.rstrip("\n"),
            "]",
            "",
            "[telemetry]",
            *_entries(self._telemetry()),
        ]
        for join in identity.joins:
            lines += ["", "[[telemetry.join]]", *_entries({"series": join.series, "on": dict(join.on), "take": join.take})]
        lines += ["", "[metrics]", f'listen = "127.0.0.1:{self.port}"']
        return "\n".join(lines) + "\n"

    def _telemetry(self) -> dict[str, object]:
        proposal, reached, identity = self.proposal, self.reached, self.proposal.identity
        assert identity is not None
        labels: object = identity.labels[0] if len(identity.labels) == 1 else list(identity.labels)
        found: dict[str, object] = {
            "url": self.server.url,
            "interval_s": proposal.interval_s,
            "machine_label": labels or "machine",
            "short_names": identity.short_names,
            "mapping": "+".join([*proposal.mappings, *([self.mapping_file.name] if proposal.guessed else [])]),
            "selector": proposal.selector or self.server.selector,
            "ca_file": reached.ca_file,
            "cert_file": reached.cert_file,
            "key_file": reached.key_file,
            "username": reached.username,
            "password_file": self.password_file.name if reached.password else reached.password_file,
            "bearer_token_file": reached.bearer_token_file,
            "tenant": reached.tenant,
            "headers": dict(reached.headers or {}),
        }
        return {key: value for key, value in found.items() if value}


def rules_text(rules: Sequence[Rule]) -> str:
    """A mapping file (docs/mappings.md)."""
    head = "# Guessed from names and values by `minder doctor`: read it, and take out what is wrong.\n"
    return head + "".join("\n[[rule]]\n" + "\n".join(_entries(rule.model_dump(exclude_defaults=True))) + "\n" for rule in rules)


def _entries(table: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_text(str(key))} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else _text(value)


def _text(value: object) -> str:
    """A TOML value: JSON's escapes of strings are TOML's."""
    return json.dumps(value, ensure_ascii=False)
