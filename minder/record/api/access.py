"""Roles of tokens. viewer, operator and admin contain one another; agent and launcher stand beside them and speak for one machine,
source for the machines of its jobs (a monitor of the site: Alertmanager, NVSentinel)."""

from __future__ import annotations

from typing import Literal, get_args

from minder.record.api.fields import Answer

__all__ = ["ROLES", "Caller", "Role", "contains"]

Role = Literal["viewer", "operator", "admin", "agent", "launcher", "source"]
ROLES: tuple[str, ...] = get_args(Role)
_LADDER = ("viewer", "operator", "admin")


class Caller(Answer):
    """Whom a token speaks for. jobs: null for every job. expires: ISO 8601. issuer, subject: as whom an identity provider knows them."""

    token: str
    name: str
    role: Role
    jobs: tuple[str, ...] | None = None
    machine: str | None = None
    expires: str | None = None
    issuer: str | None = None
    subject: str | None = None

    def signature(self) -> dict[str, str]:
        """What an event of the ledger says of who caused it: the name, which token, and whom an identity provider means by it."""
        found = {"by": self.name, "token": self.token}
        return found if self.issuer is None else found | {"issuer": self.issuer, "subject": self.subject or "?"}


def contains(role: str, needed: str) -> bool:
    """Whether a token of `role` may do what `needed` may do.

    >>> contains("operator", "viewer"), contains("agent", "viewer")
    (True, False)
    """
    if role in _LADDER and needed in _LADDER:
        return _LADDER.index(role) >= _LADDER.index(needed)
    return role == needed
