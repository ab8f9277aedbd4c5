"""A folder with one token for each machine: what a controller reads, and what `minder token machine` makes.

The file of a machine is called as the machine. The same file goes to that machine, and to no other.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from minder.model.errors import BadInputError, ConfigError
from minder.model.names import check_machine_name
from minder.model.private import make_private
from minder.wire.token_files import Token, TokenFile
from minder.wire.tokens import Tokens, new_machine_token, read_tokens, write_tokens

__all__ = ["MachineTokens", "give_token", "machine_token"]


@dataclass(slots=True)
class MachineTokens:
    """What machines' agents, or their launchers, are asked with: a folder with a token for each, or one file for all, and the keys in
    job.toml that name them."""

    folder_key: str
    folder: str | None
    file_key: str
    file: str | None
    _shared: TokenFile | None = None

    @property
    def is_given(self) -> bool:
        return bool(self.folder or self.file)

    def of(self, machine: str) -> Token:
        """ "" where none is configured. Raises ConfigError that names the key."""
        try:
            if self.folder:
                return machine_token(self.folder, machine)
            if self.file and self._shared is None:
                self._shared = TokenFile(self.file)
        except ConfigError as error:
            raise ConfigError(f"{self.folder_key if self.folder else self.file_key}: {error}") from error
        return self._shared or ""


def machine_token(folder: str | os.PathLike[str], machine: str) -> TokenFile:
    """The token of one machine in a folder with one file for each. Raises ConfigError."""
    try:
        path = Path(folder) / check_machine_name("the machine", machine)
    except BadInputError as error:
        raise ConfigError(f"{error}, so it has no file in {folder}") from error
    mode = path.parent.stat().st_mode if path.parent.is_dir() else 0
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(f"{path.parent} can be written by everybody: run `chmod 700 {path.parent}`")
    try:
        return TokenFile(path, machine)
    except ConfigError as error:
        if path.exists():
            raise
        raise ConfigError(f"no token of {machine} in {folder}: run `minder token machine {machine} --dir {folder}`") from error


def give_token(folder: Path, machine: str, *, exchange: bool = False, overlap_s: float = 0.0) -> str:
    """Make the machine's token in the folder, which is made too: "made", "kept" where there is one, or "exchanged".

    overlap_s: so long the token before it counts too. Raises BadInputError for a name that no machine may have, ConfigError for a file
    that cannot be used, OSError.
    """
    path = make_private(folder) / check_machine_name("machine", machine)
    if not path.exists():
        write_tokens(path, Tokens(new_machine_token(machine)))
        return "made"
    before = read_tokens(path)
    if not exchange:
        return "kept"
    write_tokens(path, Tokens(new_machine_token(machine), before.current, time.time() + overlap_s))
    return "exchanged"
