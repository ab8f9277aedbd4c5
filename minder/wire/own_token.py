"""The token of this machine's agent or launcher: its own, from a file or the environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from minder.model.errors import BadInputError, ConfigError
from minder.model.log import event
from minder.wire.token_files import Token, TokenFile
from minder.wire.tokens import machine_of

__all__ = ["metrics_token", "own_token", "warn_of_shared"]


def own_token(file: Path | None, machine: str, environment: Mapping[str, str] = os.environ) -> Token | None:
    """From the file, which is read again when it changes, else from MINDER_TOKEN, else none.

    Raises ConfigError for a file that cannot be used, BadInputError; both also for the token of another machine.
    """
    if file is not None:
        try:
            return TokenFile(file, machine)
        except ConfigError as error:
            raise ConfigError(f"--token-file: {error}") from error
    text = environment.get("MINDER_TOKEN") or None
    named = machine_of(text or "")
    if named is not None and named != machine:
        raise BadInputError(f"MINDER_TOKEN holds the token of {named}, not of {machine}: put this machine's own there, or mend --machine")
    return text


def warn_of_shared(token: Token | None, machine: str, log: logging.Logger) -> None:
    """One line where a file's token names no machine: one for all machines, read on one of them, opens all."""
    if isinstance(token, TokenFile) and machine_of(token.current) is None:
        detail = f"it names no machine; one for all is taken for one more version: run `minder token machine {machine}`"
        event(log, logging.WARNING, "shared token", path=token.path, detail=detail)


def metrics_token(file: Path | None) -> Token | None:
    """From --metrics-token-file. Raises ConfigError."""
    return None if file is None else TokenFile(file)
