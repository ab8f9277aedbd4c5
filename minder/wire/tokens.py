"""Bearer tokens: read from a private file, compared in constant time."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from minder.model.errors import ConfigError

__all__ = ["is_authorised", "read_token", "write_token"]


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file. Raises ConfigError if the file is missing, empty, or readable by everybody."""
    file = Path(path)
    try:
        mode = file.stat().st_mode
        token = file.read_text().strip()
    except OSError as error:
        raise ConfigError(f"token file {file}: {error.strerror}; create it, for example with `openssl rand -hex 16`") from error
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(f"token file {file} can be read by everybody: run `chmod 600 {file}`")
    if not token:
        raise ConfigError(f"token file {file} is empty: write a token into it")
    return token


def write_token(path: str | os.PathLike[str]) -> str:
    """A new random token in a new private file."""
    token = secrets.token_hex(16)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(handle, 0o600)  # an older file keeps its mode otherwise
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")
    return token


def is_authorised(header: str | None, token: str) -> bool:
    """Whether an Authorization header carries the token."""
    return header is not None and hmac.compare_digest(header.encode(), f"Bearer {token}".encode())
