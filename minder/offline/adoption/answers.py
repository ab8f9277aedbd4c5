"""A person's yes or no to what a dry run would have done (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from minder.model.errors import BadInputError
from minder.offline.adoption.report import Adoption, WouldBe

__all__ = ["find_answered", "outcomes_of"]

_OUTCOMES = {"yes": "confirmed", "no": "no-fault-found"}


def find_answered(found: Adoption, yes: Sequence[str], no: Sequence[str]) -> list[tuple[WouldBe, str]]:
    """What the incidents that were named stand for, with the answer to each that is not in the ledger yet.

    Raises BadInputError for an incident that is both, or that is no would-be eviction.
    """
    both = next((name for name in yes if name in set(no)), None)
    if both is not None:
        raise BadInputError(f"incident {both} is given to --yes and to --no: decide for one")
    listed = (*found.would, *found.held)
    answers: list[tuple[WouldBe, str]] = []
    for name, answer in [*((name, "yes") for name in yes), *((name, "no") for name in no)]:
        meant = [item for item in listed if item.incident == name]
        if not meant:
            known = ", ".join(dict.fromkeys(item.incident for item in listed)) or "none"
            raise BadInputError(f"incident {name} is no eviction that a dry run would have made; there are: {known}")
        answers += [(item, answer) for item in meant if item.answer != answer]
    return answers


def outcomes_of(item: WouldBe, answer: str) -> list[tuple[str, str]]:
    """(machine, outcome) for the ledger, as `minder machine outcome` writes them."""
    return [(machine, _OUTCOMES[answer]) for machine in item.machines]
