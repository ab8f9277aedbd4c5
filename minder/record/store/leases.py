"""Who leads: one row per job, with a token that grows whenever another process takes it (a fencing token).

No clock is compared with another's: a holder counts its beats up, and a waiting controller takes the lease after the beats stood still for
so long by its own clock (minder.act.controller.lease). Writes of the ledger check the token in their own transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from minder.model.errors import LeaseLostError
from minder.record.store.engine import reading, writing
from minder.record.store.opened import OpenedStore
from minder.record.store.tables import LEASES

__all__ = ["Lease", "LeaseStore", "demand_lease"]

# Built once: every write of the ledger asks it, and building it takes as long as the answer.
_BY_NAME = select(LEASES).where(LEASES.c.name == bindparam("wanted"))


@dataclass(frozen=True, slots=True)
class Lease:
    """The row as it was read. released: its holder gave it back."""

    name: str
    token: int
    beats: int
    holder: str
    released: bool


class LeaseStore(OpenedStore):
    """The leases table of one database. Every method raises LedgerError where the database refuses."""

    def read(self, name: str) -> Lease | None:
        with reading(self._engine) as connection:
            return _read(connection, name)

    def take(self, name: str, holder: str, seen: Lease | None) -> Lease | None:
        """Take the lease if it still is what was `seen` (None: it was never held), or was given back; None where it is not."""
        with writing(self._engine) as connection:
            now = _read(connection, name)
            if now is not None and not now.released and now != seen:
                return None
            mine = Lease(name, 1 if now is None else now.token + 1, 0, holder, False)
            values = {"token": mine.token, "beats": 0, "holder": holder, "released": 0}
            if now is None:
                connection.execute(LEASES.insert().values(name=name, **values))
            else:
                connection.execute(update(LEASES).where(LEASES.c.name == name).values(**values))
        return mine

    def beat(self, mine: Lease) -> None:
        """Raises LeaseLostError where another process has taken it."""
        with writing(self._engine) as connection:
            demand_lease(connection, mine)
            connection.execute(update(LEASES).where(LEASES.c.name == mine.name).values(beats=LEASES.c.beats + 1))

    def release(self, mine: Lease) -> None:
        """Give it back, if it still is ours: the next one need not wait."""
        with writing(self._engine) as connection:
            ours = (LEASES.c.name == mine.name) & (LEASES.c.token == mine.token)
            connection.execute(update(LEASES).where(ours).values(released=1))


def demand_lease(connection: Connection, mine: Lease) -> None:
    """Within the caller's transaction: raises LeaseLostError unless the lease is still this one."""
    now = _read(connection, mine.name)
    if now is None or now.token != mine.token:
        who = "no controller" if now is None else now.holder
        raise LeaseLostError(f"{mine.name} is led by {who} now: this controller acts no more")


def _read(connection: Connection, name: str) -> Lease | None:
    row = connection.execute(_BY_NAME, {"wanted": name}).first()
    return None if row is None else Lease(row.name, row.token, row.beats, row.holder, bool(row.released))
