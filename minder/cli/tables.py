"""Plain columns: the same in a terminal, a pipe and a ticket."""

from __future__ import annotations

import getpass
import os
import pwd
from collections.abc import Sequence
from pathlib import Path

import typer

from minder.model.errors import BadInputError

__all__ = ["check_choice", "operator_name", "print_table"]

_LOGIN = Path("/proc/self/loginuid")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """The first row is the header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """Raises BadInputError."""
    if value not in choices:
        raise BadInputError(f'{option} "{value}": use {" or ".join(choices)}')


def operator_name() -> str:
    """Who typed the command; the person behind sudo, doas or su, as far as the environment or the kernel's login id says."""
    try:
        behind = os.environ.get("SUDO_USER") or os.environ.get("DOAS_USER") or (_login_name() if os.getuid() == 0 else None)
        return behind or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _login_name() -> str | None:
    """Of the session that this process belongs to: su does not change it. None where there was no login, as in a container."""
    try:
        return pwd.getpwuid(int(_LOGIN.read_text())).pw_name
    except (KeyError, OSError, ValueError, OverflowError):
        return None
