"""A period of a ledger, read for the adoption report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from minder.act.policy.config import PolicyConfig
from minder.model.history import LedgerEvent
from minder.offline.adoption.report import ADOPTION_KINDS, Adoption, build_adoption
from minder.offline.reliability.reading import end_of_period

__all__ = ["read_adoption"]


class _Events(Protocol):
    def __call__(self, *, kinds: Sequence[str]) -> list[LedgerEvent]: ...


def read_adoption(events: _Events, length_s: float, until: str, job: str | None, policies: Mapping[str, PolicyConfig]) -> Adoption:
    """The report of the last `length_s` seconds before `until`: "now", "newest" or a time. Raises BadInputError, LedgerError."""
    found = events(kinds=ADOPTION_KINDS)
    until_s = end_of_period(found, until)
    return build_adoption(found, until_s - length_s, until_s, policies, job)
