"""Roles of tokens. viewer, operator and admin contain one another; agent and launcher stand beside them and speak for one machine,
source for the machines of its jobs (a monitor of the site: Alertmanager, NVSentinel)."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from minder.record.api.fields import Answer

__all__ = ["ROLES", "Caller", "Role", "contains"]

Role = Literal["viewer", "operator", "admin", "agent", "launcher", "source"]
ROLES: tuple[str, ...] = get_args(Role)
_LADDER = ("viewer", "operator", "admin")


class Caller(Answer):
    """Whom a token speaks for."""

    token: str = Field(description="Id of the token, not the token itself.")
    name: str = Field(description="Name of the token's holder; it stands in the ledger as `by`.")
    role: Role = Field(description="What the token may do.")
    jobs: tuple[str, ...] | None = Field(default=None, description="Jobs that the token covers; null: every job.")
    machine: str | None = Field(
        default=None,
        description="Machine that an agent's or launcher's token speaks for; null for any other role.",
    )
    expires: str | None = Field(default=None, description="When the token ends, ISO 8601 in UTC; null: it does not.")
    issuer: str | None = Field(default=None, description="Identity provider that vouches for the caller; null for a token of minder's own.")
    subject: str | None = Field(default=None, description="Id of the caller at that provider; null for a token of minder's own.")

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
