"""Bearer tokens: read from a private file, compared in constant time.

A token file has the token in its first line. While it is exchanged, a second line has the one before it and until when that
counts: `TOKEN until 2026-11-27T06:00:00Z`. The same file serves both sides, so they may get it in any order.
A machine's own token names the machine: `minder-machine:NAME:` and 32 hexadecimal digits. Any other text is a shared token.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from minder.model.clock import format_time, parse_time
from minder.model.errors import ConfigError

__all__ = [
    "Tokens",
    "is_authorised",
    "machine_of",
    "new_machine_token",
    "read_secret_text",
    "read_token",
    "read_tokens",
    "write_token",
    "write_tokens",
]

_MACHINE = re.compile(r"minder-machine:(.+):[0-9a-f]{32}")
_VISIBLE = re.compile(r"[!-~]+")
_LARGEST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one file says. previous: the token before, which counts until until_s (Unix time) too; "" for none."""

    current: str = field(repr=False)
    previous: str = field(default="", repr=False)
    until_s: float = 0.0

    def in_force(self, now_s: float) -> tuple[str, ...]:
        """The newest first."""
        return (self.current, self.previous) if self.previous and now_s < self.until_s else (self.current,)


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file, the newest of two. Raises ConfigError if the file is missing, empty, or readable by everybody."""
    return read_tokens(path).current


def read_secret_text(path: str | os.PathLike[str]) -> str:
    """A secret that is no token of ours, such as a password or a client's secret: the file's text, without the white space around it.
    Raises ConfigError if the file is missing, empty, no text, or readable by everybody."""
    return _private_text(Path(path))


def read_tokens(path: str | os.PathLike[str]) -> Tokens:
    """Raises ConfigError as `read_token`, and for a second line that is not `TOKEN until TIME`."""
    file = Path(path)
    current, *rest = _private_text(file).splitlines()
    current = current.strip()
    if _VISIBLE.fullmatch(current) is None:
        raise ConfigError(f"token file {file}: a token is one word of visible ASCII characters, alone in the first line")
    return Tokens(current, *_previous(file, [line.strip() for line in rest if line.strip()]))


def _private_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_LARGEST_BYTES).decode().strip()
    except OSError as error:
        raise ConfigError(f"token file {file}: {error.strerror}; create it, for example with `minder token machine NAME`") from error
    except UnicodeDecodeError:
        raise ConfigError(f"token file {file} is no text: a secret is one line of text") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(f"token file {file} can be read by everybody: run `chmod 600 {file}`")
    if not text:
        raise ConfigError(f"token file {file} is empty: write a token into it")
    return text


def _previous(file: Path, lines: list[str]) -> tuple[str, float]:
    if not lines:
        return "", 0.0
    words = lines[0].split()
    try:
        if len(lines) > 1 or len(words) != 3 or words[1] != "until" or _VISIBLE.fullmatch(words[0]) is None:
            raise ValueError
        return words[0], parse_time(words[2])
    except ValueError:
        raise ConfigError(f"token file {file}: its second line must be `TOKEN until 2026-11-27T06:00:00Z`, and the last one") from None


def machine_of(token: str) -> str | None:
    """The machine that a token names; None for a shared one.

    >>> machine_of("minder-machine:node-0001:00112233445566778899aabbccddeeff")
    'node-0001'
    """
    match = _MACHINE.fullmatch(token)
    return None if match is None else match[1]


def new_machine_token(machine: str) -> str:
    return f"minder-machine:{machine}:{secrets.token_hex(16)}"


def write_token(path: str | os.PathLike[str]) -> str:
    """A new random token in a new private file. It names no machine: for what all machines share, such as reading metrics."""
    token = secrets.token_hex(16)
    write_tokens(path, Tokens(token))
    return token


def write_tokens(path: str | os.PathLike[str], tokens: Tokens) -> None:
    """As a whole: a reader sees the old file or the new one. Raises OSError."""
    file = Path(path)
    text = tokens.current + "\n"
    if tokens.previous and tokens.until_s > time.time():
        text += f"{tokens.previous} until {format_time(tokens.until_s)}\n"
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            os.fchmod(opened.fileno(), 0o600)
            opened.write(text)
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def is_authorised(header: str | None, token: str) -> bool:
    """Whether an Authorization header carries the token."""
    return header is not None and hmac.compare_digest(header.encode(), f"Bearer {token}".encode())
