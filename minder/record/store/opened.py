"""An open database at the schema of this code: what every store of one begins and ends with."""

from __future__ import annotations

from pathlib import Path

from minder.model.errors import LedgerError
from minder.record.store.engine import open_engine
from minder.record.store.migrate import migrate

__all__ = ["OpenedStore"]


class OpenedStore:
    """Base of the stores. Opening one raises BadInputError for what is no database's name, LedgerError where the database refuses."""

    def __init__(self, path_or_url: str | Path, *, create: bool = True, busy_timeout_s: float = 5.0) -> None:
        self._engine = open_engine(path_or_url, create=create, busy_timeout_s=busy_timeout_s)
        try:
            migrate(self._engine)
        except LedgerError:
            self._engine.dispose()
            raise

    def close(self) -> None:
        self._engine.dispose()
