"""Plain columns: the same in a terminal, a pipe and a ticket."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence

import typer

from minder.errors import BadInputError

__all__ = ["check_choice", "operator_name", "print_table"]


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
    """Who typed the command; the person behind sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
