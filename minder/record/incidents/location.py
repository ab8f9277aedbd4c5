"""Where the ledger lives when no address is given."""

from __future__ import annotations

import os
from pathlib import Path

from minder.model.errors import BadInputError

__all__ = ["code_folder", "find_ledger"]


def find_ledger(given: str | None = None, beside: Path | None = None) -> str:
    """The path or URL given, else $MINDER_LEDGER, else ledger.db `beside` a job's state, in $MINDER_STATE_DIR or ~/.local/state/minder.

    Raises BadInputError where what is given is empty: a variable that was misspelt must not lead to another ledger.
    """
    if given is not None and not given.strip():
        raise BadInputError("--ledger is empty: name a file or a postgresql:// URL, or leave it out")
    if given is not None:
        return given
    if os.environ.get("MINDER_LEDGER"):
        return os.environ["MINDER_LEDGER"]
    if beside is not None:
        return str(beside / "ledger.db")
    return str(_state_folder() / "ledger.db")


def code_folder(location: str) -> Path:
    """Where the code of updates lies: beside the ledger's file; of a database in $MINDER_STATE_DIR or ~/.local/state/minder, which
    controller and service share then."""
    return _state_folder() / "code" if "://" in location or location == ":memory:" else Path(location).absolute().parent / "code"


def _state_folder() -> Path:
    return Path(os.environ.get("MINDER_STATE_DIR") or Path.home() / ".local" / "state" / "minder")
