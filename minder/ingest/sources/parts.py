"""A table that grows while a job runs: written in parts that survive a crash, put together when all is over."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

from minder.model.private import make_private, open_private

__all__ = ["PartTable", "table_paths"]


def table_paths(folder: Path, name: str) -> list[Path]:
    """Where a table of a recording lies: the whole file, else the parts that a killed writer left; empty for neither."""
    whole = folder / f"{name}.parquet"
    return [whole] if whole.exists() else sorted((folder / f"{name}.parts").glob("*.parquet"))


class PartTable:
    """<folder>/<name>.parquet being written. `take_up` first where an earlier process may have begun it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._whole = folder / f"{name}.parquet"
        self._parts = folder / f"{name}.parts"
        self._next = 0

    def take_up(self) -> None:
        """Go on behind the parts that are there; a file that was finished becomes the next of them."""
        numbers = [int(path.stem) for path in self._parts.glob("*.parquet")]
        self._next = max(numbers, default=-1) + 1
        if self._whole.exists():
            make_private(self._parts)
            self._whole.rename(self._parts / f"{self._next:06d}.parquet")
            self._next += 1

    def write(self, rows: pl.DataFrame) -> None:
        """One more part, whole or not at all."""
        make_private(self._parts)
        path = self._parts / f"{self._next:06d}.parquet"
        self._next += 1
        hidden = path.with_suffix(".tmp")
        open_private(hidden, "a").close()  # polars would let every user read it
        rows.write_parquet(hidden)
        hidden.rename(path)

    def close(self) -> None:
        """The parts become one file in the order of `timestamp`; a table without rows has none."""
        parts = sorted(self._parts.glob("*.parquet"))
        if parts:
            table = pl.concat([pl.read_parquet(part) for part in parts], how="diagonal").sort("timestamp", maintain_order=True)
            hidden = self._whole.with_suffix(".parquet.tmp")
            open_private(hidden, "a").close()
            table.write_parquet(hidden)
            hidden.rename(self._whole)
        shutil.rmtree(self._parts, ignore_errors=True)
